"""The settings of a past run except prompt and seed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.config import PRESETS, SpeculationConfig, recorded_sampling
from core.errors import ConfigError
from core.events import RunStarted
from core.plurals import number_of
from lab.budgets import depends_on_timings, resolved_nodes
from ui.words.settings import OWN, Settings, settings_of

__all__ = ["RowSettings", "labels_of", "settings_of_run"]

MOST_DIFFERENCES = 3
"""The most differences in `RowSettings.short`."""


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Settings that rows are grouped by. A baseline run has the same prompt and `base`: LLM, number
    format, device, `chat`, sampling and, for a run beside others, the schedule. `base` and
    `speculation` are texts that are only compared. `short`: the row's name, if unique. `parts`, in
    words: the preset with all differences, the temperature, other sampling, limits, the resolved
    tree-size limit, the schedule, the drafters, the LLM."""

    base: str
    speculation: str
    short: str
    parts: tuple[str, str, str, str, str, str, str, str]
    drafters: tuple[str, ...]

    @property
    def detail(self) -> str:
        """All parts except the first, in a line."""
        return ", ".join(part for part in self.parts[1:] if part)


def settings_of_run(started: RunStarted, schedule: str = "", num_others: int = 0) -> RowSettings:
    """The settings of a run as it was requested. `schedule`, `num_others`: see lab.measured."""
    request_fields = started.asked
    ssms = [model.name for model in started.models if model.role == "ssm"]
    llm = [_model(model) for model in started.models if model.role == "llm"]
    drafting_ssms = [_model(model) for model in started.models if model.name in started.drafters]
    recorded = recorded_sampling(request_fields)
    sampling = {
        name: _normalized_value(value) for name, value in recorded.items() if name != "seed"
    }
    settings = settings_of(request_fields, ssms)
    drafters = ", ".join(started.drafters)
    nodes = _auto_words(started)
    beside = " beside others" if num_others else ""
    shared = f"schedule {schedule}{beside}" if schedule else ""
    return RowSettings(
        base=_text(
            [llm, started.dtype, started.device, request_fields.get("chat", False), sampling]
            + ([shared] if num_others else [])
        ),
        speculation=_text(
            [_settings_key(settings, request_fields), nodes, list(started.drafters)]
            + [drafting_ssms, shared]
        ),
        short=settings.brief(MOST_DIFFERENCES),
        parts=(
            settings.brief(len(settings.differ)),
            settings.sampling[0],
            ", ".join(settings.sampling[1:]),
            ", ".join(_limits(sampling)),
            nodes,
            shared,
            f"drafted by {drafters}" if drafters else "",
            f"LLM {' '.join(llm[0][:3])}" if llm else "",
        ),
        drafters=started.drafters,
    )


def labels_of(settings: Iterable[RowSettings]) -> dict[RowSettings, str]:
    """A unique name for each of `settings`: `short`, then the parts that distinguish settings with
    the same `short`, then a number if needed."""
    by_short: dict[str, list[RowSettings]] = {}
    for one in dict.fromkeys(settings):
        by_short.setdefault(one.short, []).append(one)
    labels: dict[RowSettings, str] = {}
    taken_labels: set[str] = set()
    for short, group in by_short.items():
        for one in group:
            unnumbered = _label(short, one, group)
            label, number = unnumbered, 2
            while label in taken_labels:
                label, number = f"{unnumbered} ({number})", number + 1
            taken_labels.add(label)
            labels[one] = label
    return labels


def _label(short: str, one: RowSettings, group: list[RowSettings]) -> str:
    differ = [len({other.parts[i] for other in group}) > 1 for i in range(len(one.parts))]
    first = one.parts[0] if differ[0] else short
    rest = [
        part
        for part, differing in zip(one.parts[1:], differ[1:], strict=True)
        if differing and part
    ]
    return " · ".join([first, *rest])


def _auto_words(started: RunStarted) -> str:
    """The tree-size limit that `auto` resolved to, if it depends on measured times; else empty."""
    try:
        speculation = SpeculationConfig.from_plain(started.asked.get("speculation", {}))
    except ConfigError:  # settings of another version
        return ""
    nodes = resolved_nodes([started]) if depends_on_timings(speculation) else None
    return "" if nodes is None else f"trees of at most {number_of(nodes, 'node')}"


def _settings_key(settings: Settings, request_fields: dict[str, Any]) -> list[Any]:
    """A comparable value; settings that this version does not know stay as they were recorded."""
    is_known = settings.name in (*PRESETS, OWN)
    return [settings.name, settings.differ if is_known else request_fields.get("speculation")]


def _limits(sampling: dict[str, Any]) -> list[str]:
    max_tokens = sampling.get("max_new_tokens")
    limits = [] if max_tokens is None else [number_of(round(max_tokens), "token")]
    limits += ["ignore_eos"] if sampling.get("ignore_eos") else []
    return limits + (["with stop texts"] if sampling.get("stop") else [])


def _normalized_value(value: Any) -> Any:
    """Integers as floats, since a temperature may have been recorded as 0 or 0.0."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_integer else value


def _model(model: Any) -> list[str]:
    return [model.name, model.dtype, model.device, model.fingerprint]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
