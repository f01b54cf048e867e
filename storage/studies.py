"""Studies in the log's file: their definition, their state, and the results so far.

Each call of StudyLog opens its own connection.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import StoreError, UnknownStudyError
from storage.codec import decode_process, decode_text, encode_text, from_json, to_json
from storage.database import OPEN_TIMEOUT_S, connect, explain, read_connection
from storage.process import Process

__all__ = ["STUDY_STATES", "CellKey", "StudyLog", "StudyRow", "mark_studies_interrupted"]

STUDY_STATES = ("running", "stopped", "completed", "failed", "interrupted")
CellKey = tuple[str, str, int]
"""Contestant, item, repeat."""

COLUMNS = """study_id, kind, title, state, reason, created_utc, owner, total,
    host, pid, process_start, seen_at,
    (SELECT count(*) FROM study_cells WHERE study_cells.study = studies.id) AS done"""

RUNNING = "SELECT id, host, pid, process_start, seen_at FROM studies WHERE state = 'running'"


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A study in a list. `done`: how many of the `total` cells have results; `elsewhere`: another
    process measures the study."""

    study_id: str
    kind: str
    title: str
    state: str
    reason: str
    created_utc: str
    owner: str
    done: int
    total: int
    elsewhere: bool = False


class StudyLog:
    """The studies of one database file, which a RunStore must have opened."""

    def __init__(self, path: Path, process: Process) -> None:
        self._path, self._process = path, process

    # -- writing --

    def save(self, study: dict[str, Any], total: int, owner: str = "") -> None:
        """Stores a new study with the state `stopped`. `total`: the number of its cells."""
        values = {
            "study_id": encode_text(study["study_id"]),
            "kind": study["kind"],
            "title": encode_text(study["title"]),
            "created_utc": study["created_utc"],
            "owner": encode_text(owner),
            "state": "stopped",
            "total": total,
            "study_json": to_json(study),
            **self._owner_values(),
        }
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        with self._transaction() as connection:
            connection.execute(
                f"INSERT INTO studies ({names}) VALUES ({marks})", tuple(values.values())
            )

    def set_state(self, study_id: str, state: str, reason: str = "") -> None:
        """Sets a study's state and records this process. Raises StoreError for a state that is not
        in STUDY_STATES, and UnknownStudyError."""
        values = {"state": state, "reason": encode_text(reason), **self._owner_values()}
        if state not in STUDY_STATES:
            raise StoreError.must_be("state", state, f"one of {', '.join(STUDY_STATES)}")
        with self._transaction() as connection:
            query = f"UPDATE studies SET {_sets(values)} WHERE study_id = ?"
            arguments = (*values.values(), encode_text(study_id))
            if not connection.execute(query, arguments).rowcount:
                raise _unknown(study_id)

    def claim(self, study_id: str) -> bool:
        """Sets a study's state to `running` and records this process. Returns False, without a
        change, while another live process measures this or any other study of the log. Raises
        UnknownStudyError."""
        with self._transaction() as connection:
            key = _key(connection, study_id)
            if any(self._elsewhere(row) for row in connection.execute(RUNNING)):
                return False
            values = {"state": "running", "reason": "", **self._owner_values()}
            connection.execute(
                f"UPDATE studies SET {_sets(values)} WHERE id = ?", (*values.values(), key)
            )
            return True

    def beat(self, study_id: str) -> None:
        """Records a heartbeat of this process. No effect if the study was deleted or is not
        `running`."""
        with self._transaction() as connection:
            query = "UPDATE studies SET seen_at = ? WHERE study_id = ? AND state = 'running'"
            connection.execute(query, (time.time(), encode_text(study_id)))

    def keep(self, study_id: str, cell: CellKey, result: dict[str, Any]) -> None:
        """Stores a cell's result, unless the cell has a result. Raises UnknownStudyError."""
        run_id = encode_text(str(result.get("run_id", "")))
        with self._transaction() as connection:
            study = _key(connection, study_id)
            connection.execute(
                # Two servers may have measured the cell.
                "INSERT OR IGNORE INTO study_cells"
                " (study, contestant, item, repeat, run_id, result_json) VALUES (?, ?, ?, ?, ?, ?)",
                (study, *_cell_columns(cell), run_id, to_json(result)),
            )

    def delete(self, study_id: str) -> None:
        """Deletes a study and its cells; the runs stay. Raises UnknownStudyError."""
        with self._transaction() as connection:
            query = "DELETE FROM studies WHERE study_id = ?"
            if not connection.execute(query, (encode_text(study_id),)).rowcount:
                raise _unknown(study_id)

    # -- reading --

    def studies(
        self, kind: str = "", owner: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[StudyRow, ...]:
        """Studies, newest first. `kind`: empty for all; `owner`: None for all."""
        where, values = "1", []
        if kind:
            where, values = "kind = ?", [kind]
        if owner is not None:
            where, values = f"{where} AND owner = ?", [*values, encode_text(owner)]
        query = (
            f"SELECT {COLUMNS} FROM studies WHERE {where}"
            " ORDER BY created_utc DESC, id DESC LIMIT ? OFFSET ?"
        )
        with read_connection(self._path) as connection:
            rows = connection.execute(query, (*values, limit, offset)).fetchall()
        return tuple(self._row(row) for row in rows)

    def study(self, study_id: str) -> tuple[StudyRow, dict[str, Any]]:
        """One study: its row in lists, and its definition. Raises UnknownStudyError."""
        query = f"SELECT {COLUMNS}, study_json FROM studies WHERE study_id = ?"
        with read_connection(self._path) as connection:
            row = connection.execute(query, (encode_text(study_id),)).fetchone()
        if row is None:
            raise _unknown(study_id)
        return self._row(row), from_json(row["study_json"])

    def of_run(self, run_id: str) -> str:
        """The id of a run's study; empty if the run belongs to no study."""
        cell = self.cell_of(run_id)
        return "" if cell is None else cell[0]

    def cell_of(self, run_id: str) -> tuple[str, CellKey] | None:
        """Study and cell of a run; None if the run belongs to no study."""
        query = (
            # A result without a run has an empty `run_id`.
            "SELECT study_id, contestant, item, repeat FROM study_cells"
            " JOIN studies ON study_cells.study = studies.id WHERE run_id = ? AND run_id <> ''"
        )
        with read_connection(self._path) as connection:
            row = connection.execute(query, (encode_text(run_id),)).fetchone()
        if row is None:
            return None
        return decode_text(row["study_id"]), _cell_key(row)

    def cells(self, study_id: str) -> tuple[CellKey, ...]:
        """The cells with results, in the order in which they were stored. Raises
        UnknownStudyError."""
        query = "SELECT contestant, item, repeat FROM study_cells WHERE study = ? ORDER BY id"
        with read_connection(self._path) as connection:
            rows = connection.execute(query, (_key(connection, study_id),)).fetchall()
        return tuple(map(_cell_key, rows))

    def result(self, study_id: str, cell: CellKey) -> dict[str, Any] | None:
        """One cell's result; None for a cell without a result. Raises UnknownStudyError."""
        query = (
            "SELECT result_json FROM study_cells"
            " WHERE study = ? AND contestant = ? AND item = ? AND repeat = ?"
        )
        with read_connection(self._path) as connection:
            key = _key(connection, study_id)
            row = connection.execute(query, (key, *_cell_columns(cell))).fetchone()
        result: dict[str, Any] | None = None if row is None else from_json(row["result_json"])
        return result

    def results(self, study_id: str) -> dict[CellKey, dict[str, Any]]:
        """The results of all measured cells. Raises UnknownStudyError."""
        query = (
            "SELECT contestant, item, repeat, result_json FROM study_cells WHERE study = ?"
            " ORDER BY id"
        )
        with read_connection(self._path) as connection:
            rows = connection.execute(query, (_key(connection, study_id),)).fetchall()
        return {_cell_key(row): from_json(row["result_json"]) for row in rows}

    # -- both --

    def _elsewhere(self, row: sqlite3.Row) -> bool:
        return decode_process(row) != self._process and not _is_orphaned(row)

    def _owner_values(self) -> dict[str, Any]:
        return {
            "host": encode_text(self._process.host),
            "pid": self._process.pid,
            "process_start": self._process.start,
            "seen_at": time.time(),
        }

    def _row(self, row: sqlite3.Row) -> StudyRow:
        running = row["state"] == "running"
        return StudyRow(
            study_id=decode_text(row["study_id"]),
            kind=row["kind"],
            title=decode_text(row["title"]),
            state=row["state"],
            reason=decode_text(row["reason"]),
            created_utc=row["created_utc"],
            owner=decode_text(row["owner"]),
            done=row["done"],
            total=row["total"],
            elsewhere=running and self._elsewhere(row),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(connect(self._path, timeout=OPEN_TIMEOUT_S)) as connection:
                # Takes the write lock at once: otherwise a write after a read could fail without
                # waiting.
                connection.execute("BEGIN IMMEDIATE")
                with connection:  # commits at the end, rolls back after an error
                    yield connection
        except sqlite3.Error as error:
            raise StoreError(explain(error, self._path)) from error


def mark_studies_interrupted(connection: sqlite3.Connection) -> None:
    """Sets the state `interrupted` of running studies whose process has ended."""
    for row in connection.execute(RUNNING).fetchall():
        if _is_orphaned(row):
            connection.execute(
                # Another process may have resumed the study since its row was read.
                "UPDATE studies SET state = 'interrupted'"
                " WHERE id = ? AND state = 'running'"
                " AND host = ? AND pid = ? AND process_start = ?",
                (row["id"], row["host"], row["pid"], row["process_start"]),
            )


def _is_orphaned(row: sqlite3.Row) -> bool:
    return decode_process(row).is_gone(row["seen_at"])


def _cell_key(row: sqlite3.Row) -> CellKey:
    return decode_text(row["contestant"]), decode_text(row["item"]), row["repeat"]


def _cell_columns(cell: CellKey) -> CellKey:
    contestant, item, repeat = cell
    return encode_text(contestant), encode_text(item), repeat


def _sets(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = ?" for name in values)


def _key(connection: sqlite3.Connection, study_id: str) -> int:
    query = "SELECT id FROM studies WHERE study_id = ?"
    row = connection.execute(query, (encode_text(study_id),)).fetchone()
    if row is None:
        raise _unknown(study_id)
    return int(row["id"])


def _unknown(study_id: str) -> UnknownStudyError:
    return UnknownStudyError.of("study_id", study_id, "no such study")
