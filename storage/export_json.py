"""Writes a run's events as one JSON object, and plain values as JSON that every parser accepts."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from core.events import EndEvent, Event, RunCompleted, RunFailed, RunStarted
from core.events.outcome import Outcome
from core.metrics import stats_of
from storage.codec import END_STATUSES
from storage.thinned import THINNED

__all__ = ["INTERRUPTED", "events_json", "is_thinned", "safe_json", "summary_of"]

FORMAT = "specscope-events-1"
INTERRUPTED = "interrupted"
# Values of these types need no conversion.
PLAIN_TYPES = frozenset((str, int, bool))
# JSON allows these characters unescaped; inside a script element of a page they are not safe.
IN_HTML = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"))


def events_json(
    events: Sequence[Event], status: str = INTERRUPTED, regret: Mapping[str, Any] | None = None
) -> str:
    """One object: `format`, `run_id`, `thinned`, `summary` and `events`. `regret`: a routed run's
    regret, for the summary.

    ASCII only; lone surrogates are escaped, NaN and infinities are null. The text is safe inside an
    HTML script element.
    """
    return _script_safe_json(
        {
            "format": FORMAT,
            "run_id": events[0].run_id if events else "",
            "thinned": is_thinned(events),
            "summary": _to_plain(
                summary_of(events, status) | ({"regret": dict(regret)} if regret else {})
            ),
            "events": [{"event": type(event).__name__, **_to_plain(event)} for event in events],
        }
    )


def is_thinned(events: Sequence[Event]) -> bool:
    """Whether the run was thinned to its accepted paths."""
    first = events[0] if events else None
    return isinstance(first, RunStarted) and THINNED in first.warnings


def summary_of(events: Sequence[Event], status: str = INTERRUPTED) -> dict[str, Any]:
    """A run's request and its result. `status`: the run's status if no event ends the run."""
    if not events:
        return {}
    first, last = events[0], events[-1]
    outcome = Outcome()
    for event in events:
        outcome.observe(event)
    summary: dict[str, Any] = {"status": END_STATUSES.get(type(last), status)}
    if isinstance(first, RunStarted):
        models = [model.name for model in first.models if model.role == "llm"]
        summary |= {"prompt": first.prompt, "llm": models[0] if models else ""}
        summary |= {"created_utc": first.created_utc, "warnings": list(first.warnings)}
    if isinstance(last, RunCompleted):
        summary["finish_reason"] = last.finish_reason
    if isinstance(last, RunFailed):
        summary["error"] = f"{last.error}: {last.message}"
    return {
        **summary,
        "text": outcome.text,
        "token_ids": outcome.token_ids,
        "stats": dataclasses.asdict(last.stats if isinstance(last, EndEvent) else stats_of(events)),
    }


def safe_json(value: Any) -> str:
    """`value` as JSON that every parser accepts."""
    return _script_safe_json(_to_plain(value))


def _script_safe_json(plain: Any) -> str:
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    for character, escape in IN_HTML:
        text = text.replace(character, escape)
    return text


def _to_plain(value: Any) -> Any:
    """`value` with dataclasses as dicts, and NaN and infinities as None."""
    if isinstance(value, (str, int)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        if kinds <= PLAIN_TYPES or (kinds == {float} and all(map(math.isfinite, value))):
            return value
        return [_to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    return {
        name: _to_plain(getattr(value, name)) for name in _fields(cast("Hashable", type(value)))
    }


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in dataclasses.fields(kind))
