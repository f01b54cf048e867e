"""Events to rows and back.

Text that UTF-8 cannot encode, and text that begins with ESCAPE, is stored as ESCAPE and JSON. In a
REAL column, NaN is stored as NULL.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from core.events import (
    EndEvent,
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
    event_from_plain,
)
from storage.process import Process
from storage.tables import RUN_MODELS, RUNS, Row

__all__ = [
    "END_STATUSES",
    "Fields",
    "decode_end",
    "decode_process",
    "decode_start",
    "decode_stats",
    "encode_end",
    "encode_models",
    "encode_start",
    "encode_stats",
    "from_json",
    "decode_number",
    "decode_text",
    "encode_text",
    "to_json",
]

END_STATUSES = {RunCompleted: "completed", RunCancelled: "cancelled", RunFailed: "failed"}
ENDS: dict[str, type[EndEvent]] = {name: kind for kind, name in END_STATUSES.items()}
ESCAPE = "\x00json:"


class Fields(Protocol):
    """A row that was read: values by column name, as in sqlite3.Row."""

    def __getitem__(self, column: str, /) -> Any: ...


# -- values --


def encode_text(text: str) -> str:
    """`text` in a form that SQLite can store."""
    if text.isascii() and not text.startswith(ESCAPE):
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return ESCAPE + json.dumps(text)
    return ESCAPE + json.dumps(text) if text.startswith(ESCAPE) else text


def decode_text(stored: str) -> str:
    """The inverse of `encode_text`."""
    if stored.startswith(ESCAPE):
        text: str = json.loads(stored[len(ESCAPE) :])
        return text
    return stored


def decode_number(stored: float | None) -> float:
    """A REAL column's value; NULL means NaN."""
    return math.nan if stored is None else stored


def to_json(value: Any) -> str:
    """Compact ASCII JSON: lone surrogates survive."""
    return json.dumps(value, separators=(",", ":"))


def from_json(stored: str) -> Any:
    """The inverse of `to_json`; tuples come back as lists."""
    return json.loads(stored)


# -- the start of a run --


def encode_start(
    event: RunStarted, owner: str, process: Process, model_id: Callable[[str], int]
) -> Row:
    """The row of table `runs`."""
    llm = next((info.name for info in event.models if info.role == "llm"), None)
    values = {
        "llm": None if llm is None else model_id(llm),
        "run_id": encode_text(event.run_id),
        "status": "running",
        "owner": encode_text(owner),
        "start_seq": event.seq,
        "start_at_ms": event.at_ms,
        "host": encode_text(process.host),
        "pid": process.pid,
        "process_start": process.start,
    }
    for name in ("created_utc", "prompt", "dtype", "device"):
        values[name] = encode_text(getattr(event, name))
    for name in ("seed", "queue_ms"):
        values[name] = getattr(event, name)
    for name in _START_JSON:
        values[f"{name}_json"] = to_json(getattr(event, name))
    if event.offload is not None:
        values["offload_json"] = to_json(dataclasses.asdict(event.offload))
    if event.ranks is not None:
        values["ranks_json"] = to_json(dataclasses.asdict(event.ranks))
    return RUNS.row(values)


_START_JSON = (
    "config",
    "asked",
    "versions",
    "warnings",
    "drafters",
    "prompt_token_ids",
    "prompt_texts",
)


def encode_models(event: RunStarted, run: int, model_id: Callable[[str], int]) -> list[Row]:
    """The rows of table `run_models`, in the event's order."""
    rows = []
    for ordinal, info in enumerate(event.models):
        values = {name: _encode_if_text(value) for name, value in dataclasses.asdict(info).items()}
        del values["name"]
        keys = {"run": run, "ordinal": ordinal, "model": model_id(info.name)}
        rows.append(RUN_MODELS.row({**values, **keys}))
    return rows


def _encode_if_text(value: Any) -> Any:
    return encode_text(value) if isinstance(value, str) else value


def decode_start(
    run: Fields, models: Iterable[Fields], model_name: Callable[[int], str]
) -> RunStarted:
    """The inverse of `encode_start` and `encode_models`."""
    plain: dict[str, Any] = {
        "event": "RunStarted",
        "run_id": decode_text(run["run_id"]),
        "seq": run["start_seq"],
        "at_ms": decode_number(run["start_at_ms"]),
        "seed": run["seed"],
        "queue_ms": decode_number(run["queue_ms"]),
        "models": [_model(row, model_name(row["model"])) for row in models],
    }
    for name in ("created_utc", "prompt", "dtype", "device"):
        plain[name] = decode_text(run[name])
    for name in _START_JSON:
        plain[name] = from_json(run[f"{name}_json"])
    plain["offload"] = from_json(run["offload_json"] or "null")
    plain["ranks"] = from_json(run["ranks_json"] or "null")
    event = event_from_plain(plain)
    assert isinstance(event, RunStarted)
    return event


def _model(row: Fields, name: str) -> dict[str, Any]:
    # The columns from `role` on are the fields of ModelInfo after `name`.
    columns = RUN_MODELS.columns[RUN_MODELS.columns.index("role") :]
    values = {column: row[column] for column in columns}
    return {
        "name": name,
        **{key: decode_text(v) if isinstance(v, str) else v for key, v in values.items()},
    }


# -- the end of a run --


def encode_end(event: EndEvent) -> dict[str, Any]:
    """Columns of table `runs` from a run's last event."""
    return {
        "status": END_STATUSES[type(event)],
        "end_seq": event.seq,
        "end_at_ms": event.at_ms,
        "finish_reason": encode_text(getattr(event, "finish_reason", "")),
        "text_tail": encode_text(event.text_tail),
        "error": encode_text(getattr(event, "error", "")),
        "error_message": encode_text(getattr(event, "message", "")),
        "stats_json": encode_stats(event.stats),
    }


def decode_end(run: Fields) -> EndEvent | None:
    """The inverse of `encode_end`; None for a `running` or `interrupted` run."""
    kind = ENDS.get(run["status"])
    if kind is None:
        return None
    plain = {
        "run_id": decode_text(run["run_id"]),
        "seq": run["end_seq"],
        "at_ms": decode_number(run["end_at_ms"]),
        "text_tail": decode_text(run["text_tail"]),
        "stats": decode_stats(run["stats_json"]),
    }
    if kind is RunCompleted:
        plain["finish_reason"] = decode_text(run["finish_reason"])
    if kind is RunFailed:
        plain["error"] = decode_text(run["error"])
        plain["message"] = decode_text(run["error_message"])
    return kind(**plain)


def encode_stats(stats: RunStats) -> str:
    """RunStats as JSON."""
    return to_json(dataclasses.asdict(stats))


def decode_process(row: Fields) -> Process:
    """The process that records a run or measures a study."""
    return Process(decode_text(row["host"]), row["pid"], row["process_start"])


def decode_stats(stored: str) -> RunStats:
    """The inverse of `encode_stats`."""
    values: dict[str, Any] = from_json(stored)
    for name in ("acceptance_histogram", "acceptance_rate_per_position"):
        values[name] = tuple(values[name])
    return RunStats(**values)


def contiguous(events: Sequence[Event]) -> Iterator[Event]:
    """The events before the first missing event; `seq` counts from 0."""
    for expected, event in enumerate(events):
        if event.seq != expected:
            return
        yield event
