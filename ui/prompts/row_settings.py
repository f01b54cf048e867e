"""With what a past run was made, but for its prompt and seed: what makes one row of the Prompts
tab, its name in words, and which plain runs are its baseline. Pure: a RunStarted in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.config import PRESETS, SpeculationConfig, recorded_sampling
from core.errors import ConfigError
from core.events import RunStarted
from lab.budgets import by_machine, told_nodes
from ui.words.settings import OWN, Settings, settings_of

__all__ = ["RunSettings", "labels_of", "settings_of_run"]

TOLD = 3
"""A name has so many differences; all of them where two names would be the same."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """`base`: what a plain run must have asked, of which LLM, to be the baseline; `speculation`:
    the settings and the drafters. Both are texts to be compared. `parts`: in words, what was set,
    the temperature, other sampling, limits, what `auto` came to, the schedule, the drafters, the
    LLM."""

    base: str
    speculation: str
    short: str
    parts: tuple[str, str, str, str, str, str, str, str]
    drafters: tuple[str, ...]

    @property
    def detail(self) -> str:
        """All but what was set, in a line."""
        return ", ".join(part for part in self.parts[1:] if part)


def settings_of_run(started: RunStarted, schedule: str = "", num_others: int = 0) -> RunSettings:
    """Of a run as it was asked for. `schedule`, `num_others`: as in Measured. What shared the LLM
    with others is no row, and no baseline, of what did not."""
    asked = started.asked
    ssms = [model.name for model in started.models if model.role == "ssm"]
    llm = [_model(model) for model in started.models if model.role == "llm"]
    minis = [_model(model) for model in started.models if model.name in started.drafters]
    given = recorded_sampling(asked)
    sampling = {name: _normalized_value(value) for name, value in given.items() if name != "seed"}
    settings = settings_of(asked, ssms)
    who = ", ".join(started.drafters)
    nodes = _auto(started)
    beside = " beside others" if num_others else ""
    shared = f"schedule {schedule}{beside}" if schedule else ""
    return RunSettings(
        base=_text(
            [llm, started.dtype, started.device, asked.get("chat", False), sampling]
            + ([shared] if num_others else [])
        ),
        speculation=_text(
            [_settings_key(settings, asked), nodes, list(started.drafters), minis, shared]
        ),
        short=settings.brief(TOLD),
        parts=(
            settings.brief(len(settings.differ)),
            settings.sampling[0],
            ", ".join(settings.sampling[1:]),
            ", ".join(_limits(sampling)),
            nodes,
            shared,
            f"drafted by {who}" if who else "",
            f"LLM {' '.join(llm[0][:3])}" if llm else "",
        ),
        drafters=started.drafters,
    )


def labels_of(settings: Iterable[RunSettings]) -> dict[RunSettings, str]:
    """A name for each, no two the same: the preset or what differs from the defaults, and as much
    of the rest as tells it from those that would have its name."""
    alike: dict[str, list[RunSettings]] = {}
    for one in dict.fromkeys(settings):
        alike.setdefault(one.short, []).append(one)
    labels: dict[RunSettings, str] = {}
    taken: set[str] = set()
    for short, group in alike.items():
        for one in group:
            plain = _label(short, one, group)
            label, number = plain, 2
            while label in taken:
                label, number = f"{plain} ({number})", number + 1
            taken.add(label)
            labels[one] = label
    return labels


def _label(short: str, one: RunSettings, group: list[RunSettings]) -> str:
    differ = [len({other.parts[i] for other in group}) > 1 for i in range(len(one.parts))]
    first = one.parts[0] if differ[0] else short
    rest = [part for part, told in zip(one.parts[1:], differ[1:], strict=True) if told and part]
    return " · ".join([first, *rest])


def _auto(started: RunStarted) -> str:
    """How large the trees of a run could get, where the machine decided that."""
    try:
        asked = SpeculationConfig.from_plain(started.asked.get("speculation", {}))
    except ConfigError:  # of another version
        return ""
    nodes = told_nodes([started]) if by_machine(asked) else None
    return "" if nodes is None else f"trees of at most {nodes} node{'s' * (nodes != 1)}"


def _settings_key(settings: Settings, asked: dict[str, Any]) -> list[Any]:
    """The settings as a comparable value; settings of an unknown version as they were recorded."""
    known = settings.name in (*PRESETS, OWN)
    return [settings.name, settings.differ if known else asked.get("speculation")]


def _limits(sampling: dict[str, Any]) -> list[str]:
    told = [f"{sampling['max_new_tokens']:.0f} tokens"] if "max_new_tokens" in sampling else []
    told += ["ignore_eos"] if sampling.get("ignore_eos") else []
    return told + (["with stop texts"] if sampling.get("stop") else [])


def _normalized_value(value: Any) -> Any:
    """A temperature may have been written as 0 or as 0.0."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole else value


def _model(model: Any) -> list[str]:
    return [model.name, model.dtype, model.device, model.fingerprint]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
