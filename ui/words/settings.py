"""A run's settings in few words: its preset, or its differences from the defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from core.config import PRESETS, SpeculationConfig
from core.config.mechanisms import MODEL_FREE
from core.errors import ConfigError
from ui.run.probabilities import warper_words
from ui.run.scheduling import schedule_words
from ui.run.view import View

__all__ = [
    "TEMPERATURE_MEANS",
    "field_label",
    "OWN",
    "PAGE_NODES",
    "Settings",
    "page_preset",
    "point_words",
    "settings_line",
    "settings_of",
]

TEMPERATURE_MEANS = (
    "The higher the temperature, the more often an unlikely token is drawn, which drafts seldom "
    "hit: fewer are accepted. Far above 2 all tokens are about equally likely to LLM and drafters "
    "alike, and more are accepted again."
)
OWN = "own settings"
UNLISTED = ("drafters", "record_top_k")
"""Fields that `Settings.differ` leaves out. Drafters are shown elsewhere; `record_top_k` does not
change the text."""
PAGE_NODES = 24
"""The node budget of `specinfer` on the page. With `auto` the trees would depend on measured
times."""


def field_label(name: str) -> str:
    """A field's name as the label of its control: `Max tree nodes`."""
    return name.replace("_", " ").capitalize()


def point_words(name: str) -> str:
    """A grid point's name in words: `speculation_length=2` is `speculation length 2`."""
    return re.sub(r"(\w+)=", lambda field: field[1].replace("_", " ") + " ", name)


def page_preset(name: str, temperature: float) -> SpeculationConfig:
    """A preset as the page runs it."""
    config = SpeculationConfig.preset(name, temperature)
    return replace(config, max_tree_nodes=PAGE_NODES) if name == "specinfer" else config


@dataclass(frozen=True, slots=True)
class Settings:
    """`name`: the preset's name, OWN, or words for settings of another version. `differ`: for OWN,
    the fields that differ from the defaults, as `field=value`; for `specinfer` with PAGE_NODES, the
    node budget; otherwise empty. `sampling`: the temperature, then the other sampling parameters
    that change the probabilities."""

    name: str
    differ: tuple[str, ...]
    sampling: tuple[str, ...]

    def brief(self, most: int) -> str:
        """The name, at most `most` differences, and how many more there are."""
        more = len(self.differ) - most
        parts = [*self.differ[:most], *([f"{more} more"] if more > 0 else [])]
        return f"{self.name}: {', '.join(parts)}" if parts else self.name


def settings_of(request_fields: Mapping[str, Any], ssms: Sequence[str]) -> Settings:
    """The settings of a request. `ssms`: the loaded SSMs."""
    sampling = request_fields.get("sampling", {})
    words = _sampling(sampling)
    try:
        config = SpeculationConfig.from_plain(request_fields["speculation"])
        temperature = float(sampling.get("temperature", 0.0))
    except (ConfigError, KeyError):
        return Settings("settings of another version", (), words)
    comparable = _comparable(config, ssms)
    for name, differ, preset in _comparable_presets(temperature, tuple(ssms)):
        if comparable == preset:
            return Settings(name, differ, words)
    defaults = SpeculationConfig().to_plain()
    differ = tuple(
        f"{field}={_value(value)}"
        for field, value in config.to_plain().items()
        if field not in UNLISTED and value != defaults[field]
    )
    return Settings(OWN, differ, words)


@lru_cache
def _comparable_presets(
    temperature: float, ssms: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...]:
    """For each preset, and for `specinfer` with PAGE_NODES: the name, `Settings.differ`, and the
    fields for comparison. Cached, since every frame of a run needs them."""
    presets = [(name, (), SpeculationConfig.preset(name, temperature)) for name in PRESETS]
    on_page = ("specinfer", (f"{PAGE_NODES} nodes",), page_preset("specinfer", temperature))
    return tuple(
        (name, differ, _comparable(config, ssms)) for name, differ, config in (*presets, on_page)
    )


def settings_line(view: View) -> str:
    """The displayed run's settings in a sentence; empty if there is no run."""
    if view.started is None:
        return ""
    ssms = [model.name for model in view.started.models if model.role == "ssm"]
    # As requested: `auto` is not replaced by the value that it resolved to.
    settings = settings_of(view.started.asked, ssms)
    drafters = f"; drafters {', '.join(view.drafters)}" if view.drafters else ""
    words = schedule_words(view.rounds)
    schedule = f"; {words}" if words else ""
    return f"Made with {settings.brief(99)}; {', '.join(settings.sampling)}{drafters}{schedule}."


def _comparable(config: SpeculationConfig, ssms: Sequence[str]) -> dict[str, Any]:
    """A configuration's fields for comparison: drafters are given by name, `record_top_k` is 0."""
    plain = config.to_plain()
    plain["record_top_k"] = 0  # it does not change the text
    groups = {"all": list(ssms), "first": list(ssms[:1])}
    named = [name for drafter in config.drafters for name in groups.get(drafter, [drafter])]
    plain["drafters"] = [name for name in (*ssms, *MODEL_FREE) if name in named]
    plain["drafters"] += [name for name in named if name not in plain["drafters"]]
    return plain


def _sampling(sampling: Mapping[str, Any]) -> tuple[str, ...]:
    words = [f"temperature {sampling.get('temperature', 0):g}", *warper_words(sampling)]
    if sampling.get("repetition_penalty", 1) != 1:
        words.append(f"repetition penalty {sampling['repetition_penalty']:g}")
    return tuple(words)


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(f"{part:g}" for part in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
