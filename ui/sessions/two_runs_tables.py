"""Two runs side by side as tables: figures, and settings that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.events import RunStats
from ui.run.listed import shorten
from ui.words.glossary import GLOSSARY

__all__ = ["figures_of", "settings_apart"]

MAX_CHARACTERS = 300
"""The most characters shown of a setting's value, or of each item of a list."""

FIGURES = (
    "tokens_per_second",
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "num_rounds",
    "num_new_tokens",
    "num_verified_nodes",
    "overlap_ratio",
    "ttft_ms",
    "draft_ms",
    "verify_ms",
    "total_ms",
)
TIMES = {"tokens_per_second", "overlap_ratio", "ttft_ms", "draft_ms", "verify_ms", "total_ms"}
"""The FIGURES that are times or computed from times."""


def figures_of(one: RunStats | None, two: RunStats | None) -> dict[str, Any]:
    """A row for each figure: both values and, unless the figure is in TIMES, the second value
    divided by the first (a dash if the first is 0). A ratio of two single times would say nothing
    about the settings."""
    first, second = one or RunStats(), two or RunStats()
    rows: dict[str, Any] = {}
    for i, name in enumerate(FIGURES):
        quantity = GLOSSARY[name]
        values = float(getattr(first, name)), float(getattr(second, name))
        rows[str(i)] = {
            "name": quantity.title,
            "one": quantity.text(values[0]),
            "two": quantity.text(values[1]),
            "ratio": "" if name in TIMES else _ratio(*values),
        }
    return rows


def _ratio(first: float, second: float) -> str:
    return f"{second / first:.2f}x" if first else "–"


def settings_apart(one: Any, two: Any, schedules: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """A row for each setting of two RunSummaries that was requested or resolved differently.
    `schedules`: each run's schedule, in words."""
    requests = _flat(one.asked), _flat(two.asked)
    resolved = _flat(one.config), _flat(two.config)
    rows = [(name, *(side.get(name) for side in requests)) for name in _names(*requests)]
    rows += [
        (f"{name} (as run)", *(side.get(name) for side in resolved))
        for name in _names(*resolved)
        # One row is enough for a setting that differs as requested; a drawn seed has its own row.
        if requests[0].get(name) == requests[1].get(name) and name != "seed"
    ]
    first, second = (words.removeprefix("schedule ") or "each" for words in schedules)
    rows.append(("schedule", first, second))
    rows += [("LLM", one.llm, two.llm), ("SSMs loaded", list(one.ssms), list(two.ssms))]
    if requests[0].get("seed") == requests[1].get("seed"):
        rows.append(("seed (as drawn)", one.seed, two.seed))
    differing = [(name, a, b) for name, a, b in rows if a != b]
    return {
        str(i): {"name": name, "one": _text(a), "two": _text(b)}
        for i, (name, a, b) in enumerate(differing)
    }


def _flat(request: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in request.items():
        flat.update(_flat(value) if isinstance(value, Mapping) else {name: value})
    return flat


def _names(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys((*one, *two)))


def _text(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(part) for part in value) or "none"
    return shorten(value if isinstance(value, str) else json.dumps(value), MAX_CHARACTERS)
