"""A log of some golden runs, and the rows of its tables.

`python -m tests.golden.database` writes `database.json.gz` and the database itself anew.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from core.events import Event, event_from_plain
from storage import RunStore
from tests.golden.record import golden_lines

__all__ = ["DATABASE", "ROWS", "golden_events", "rows_of", "write_log"]

FOLDER = Path(__file__).parent
DATABASE, ROWS = FOLDER / "database.db.gz", FOLDER / "database.json.gz"
NAMES = (
    *("preset-best-T0.8", "combine-vote-T0", "iid-mss-T0.8", "top-k-T0"),
    *("pipeline-ahead-T0", "routing-cosine-T0", "draft-fused-T0.8", "stop-vote-T0"),
)
# These columns depend on the process or on the time.
LOCAL = ("host", "pid", "process_start", "seen_at", "applied_at")
# The tables of the search index hold SQLite's own bytes.
TABLES = "select name from sqlite_master where type = 'table' and name not like 'runs_fts_%'"


def golden_events() -> list[Event]:
    events = []
    for name in NAMES:
        for line in golden_lines(name):
            plain = json.loads(line)
            plain["run_id"] = f"{name}-{plain['run_id']}"
            events.append(event_from_plain(plain))
    return events


def write_log(path: Path) -> None:
    with RunStore(path) as store:
        for event in golden_events():
            store.record(event)
        assert store.flush(60)
        _add_facts(store)
        assert store.flush(60)


def _add_facts(store: RunStore) -> None:
    run, other = (f"{name}-run-0" for name in NAMES[:2])
    store.annotate(run, "a note")
    store.keep_baseline(run, 50.5, other, "measured before", ((50.0, 101.0),), same_text=True)
    store.keep_regret(run, {"best": 1.5, "rounds": [1, 2]})
    study = {"study_id": "s", "kind": "compare", "title": "two", "created_utc": "2026-01-01"}
    store.studies.save(study, 2, "a visitor")
    store.studies.keep("s", ("best", "w1", 0), {"run_id": run, "speed": 1.5})
    store.studies.set_state("s", "failed", "a reason")
    store.set_retention(100)


def rows_of(path: Path) -> dict[str, list[Any]]:
    """For each table, its column names, then its rows. LOCAL columns are 0."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        tables = sorted(name for (name,) in connection.execute(TABLES))
        results = {name: _rows(connection, name) for name in tables}
    connection.close()
    return json.loads(json.dumps(results))


def _rows(connection: sqlite3.Connection, table: str) -> list[Any]:
    cursor = connection.execute(f'select * from "{table}"')
    columns = [column[0] for column in cursor.description]
    rows = [
        [0 if name in LOCAL else _to_plain(value) for name, value in zip(columns, row, strict=True)]
        for row in cursor
    ]
    return [columns, *rows]


def _to_plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        write_log(path)
        with sqlite3.connect(path) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()
        DATABASE.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        text = json.dumps(rows_of(path), ensure_ascii=False)
        ROWS.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    write()
