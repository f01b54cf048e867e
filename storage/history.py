"""Reads runs back as events, and marks interrupted runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from core.events import Event
from core.metrics import stats_of
from storage.codec import (
    Fields,
    contiguous,
    decode_end,
    decode_start,
    decode_text,
    encode_stats,
    encode_text,
)
from storage.figures import figures_of
from storage.process import Process
from storage.round_decoder import decode_rounds
from storage.sink import run_output, update_run
from storage.tables import ROUND_TABLES, RUN_MODELS
from storage.thinned import THINNED, restore_thinned

__all__ = ["mark_interrupted", "read_events"]

# `last_heartbeat`, in seconds since 1970: the run's start plus the time to its last complete round.
RUNNING = """SELECT id, run_id, host, pid, process_start,
    strftime('%s', created_utc) + coalesce(
        (SELECT max(completed_at_ms) FROM rounds WHERE run = runs.id) - start_at_ms, 0
    ) / 1000 AS last_heartbeat
FROM runs WHERE status = 'running'"""


def read_events(connection: sqlite3.Connection, run_id: str) -> tuple[Event, ...]:
    """A run's events up to the first missing event; () for an unknown run. For a thinned run, an
    added warning says what is missing."""
    query = "SELECT * FROM runs WHERE run_id = ?"
    run = connection.execute(query, (encode_text(run_id),)).fetchone()
    if run is None:
        return ()
    names = dict(connection.execute("SELECT id, name FROM models").fetchall())
    names = {key: decode_text(name) for key, name in names.items()}
    key = (run["id"],)
    models = connection.execute(RUN_MODELS.select, key)
    rows: Mapping[str, Iterable[Fields]] = {
        table.name: connection.execute(table.select, key) for table in ROUND_TABLES
    }
    start = decode_start(run, models, names.__getitem__)
    if run["thinned"]:
        start = replace(start, warnings=(*start.warnings, THINNED))
        rows = restore_thinned(rows)
    events: list[Event] = [start, *decode_rounds(run_id, rows, names.__getitem__)]
    end = decode_end(run)
    if end is not None:
        events.append(end)
    return tuple(contiguous(events))


def mark_interrupted(connection: sqlite3.Connection) -> None:
    """Sets the status `interrupted`, the text and the figures of runs that are recorded as running
    although their process has ended."""
    for run in connection.execute(RUNNING).fetchall():
        owner = Process(decode_text(run["host"]), run["pid"], run["process_start"])
        if not owner.is_gone(run["last_heartbeat"]):
            continue
        with connection:
            # Checked under the write lock: another process may have ended the run meanwhile.
            connection.execute("BEGIN IMMEDIATE")
            events = read_events(connection, decode_text(run["run_id"]))
            if events and _still_running(connection, run["id"]):
                update_run(
                    connection, run["id"], _interruption_values(connection, run["id"], events)
                )


def _still_running(connection: sqlite3.Connection, run: int) -> bool:
    query = "SELECT 1 FROM runs WHERE id = ? AND status = 'running'"
    return connection.execute(query, (run,)).fetchone() is not None


def _interruption_values(
    connection: sqlite3.Connection, run: int, events: tuple[Event, ...]
) -> dict[str, Any]:
    stats = stats_of(events)
    return {
        "status": "interrupted",
        "output": encode_text(run_output(connection, run)),
        "stats_json": encode_stats(stats),
        **figures_of(stats),
    }
