"""The connection of the log's writing thread: writes units (storage.units) in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from core.events import EndEvent
from storage.codec import (
    decode_text,
    encode_end,
    encode_models,
    encode_start,
    encode_text,
    to_json,
)
from storage.database import connect
from storage.figures import figures_of, write_drafters
from storage.process import Process
from storage.round_encoder import encode_round
from storage.tables import ROUND_TABLES, RUN_MODELS, RUNS, Row, TableColumns, merge_rows
from storage.units import (
    BaselineRecord,
    End,
    Hole,
    Measurement,
    RegretRecord,
    RoundRecord,
    RunStart,
    Unit,
)

__all__ = ["Sink", "run_output", "update_run"]

# How long a transaction waits for another program's lock.
LOCK_TIMEOUT_S = 1.0

# Before SQLite 3.32 a statement may have at most 999 values, and the widest table, `rounds`, has 49
# columns.
ROWS_A_STATEMENT = 16

# Errors in the values themselves: trying again would not help.
BAD_VALUES = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    AttributeError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
)


class Sink:
    """Writes units for one process. Used by one thread."""

    def __init__(self, path: Path, process: Process) -> None:
        self.path, self.process = path, process
        self._connection: sqlite3.Connection | None = None
        self._runs: dict[str, int] = {}  # keys of open runs
        self._models: dict[str, int] = {}

    def write(self, units: Sequence[Unit]) -> list[tuple[Unit, bool]]:
        """Writes units in one transaction; returns the refused units. A refused unit's flag is
        False if the unit's run is known to be missing from the log, else True.

        Raises sqlite3.Error, for example if the disk is full; then nothing was written.
        """
        try:
            refused = self._transact(self._connect(), units)
        except sqlite3.Error:
            # After a lock or a full disk the transaction is rolled back. The next call reopens the
            # file.
            self.close()
            raise
        # Only now: after a failed transaction, the next attempt needs the keys.
        for unit in units:
            if isinstance(unit, End):
                self._runs.pop(unit.run_id, None)
        return refused

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self.path, timeout=LOCK_TIMEOUT_S)
            self._models = {}
        return self._connection

    def _transact(
        self, connection: sqlite3.Connection, units: Sequence[Unit]
    ) -> list[tuple[Unit, bool]]:
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                self._write(connection, units)
            return []
        except BAD_VALUES:
            self._models = {}  # some keys may belong to rows that were just rolled back
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                # A bad unit must not undo the others.
                return self._write_singly(connection, units)

    def _write_singly(
        self, connection: sqlite3.Connection, units: Sequence[Unit]
    ) -> list[tuple[Unit, bool]]:
        failures = []
        for unit in units:
            connection.execute("SAVEPOINT unit")
            try:
                self._write(connection, [unit])
            except BAD_VALUES:
                connection.execute("ROLLBACK TO unit")
                self._models = {}
                failures.append((unit, self._mark_hole(connection, unit)))
            connection.execute("RELEASE unit")
        return failures

    def _write(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> None:
        for unit in units:
            # Starts first: rounds of the same transaction need the keys of their runs.
            if isinstance(unit, RunStart):
                self._start(connection, unit)
        rows = merge_rows(
            encode_round(self._runs[unit.run_id], unit.events, self._model_id)
            for unit in units
            if isinstance(unit, RoundRecord)
        )
        # Table by table: fewer statements, and parents before children.
        for table in ROUND_TABLES:
            insert_rows(connection, table, rows[table.name])
        for unit in units:
            if isinstance(unit, End):
                self._end(connection, unit.event)
                record_loss(connection, self._runs[unit.run_id], unit.num_lost)
            elif isinstance(unit, Hole):
                record_loss(connection, self._runs[unit.run_id], unit.num_lost)
            elif isinstance(unit, BaselineRecord):
                store_baseline(connection, unit)
            elif isinstance(unit, RegretRecord):
                store_regret(connection, unit)

    def _start(self, connection: sqlite3.Connection, unit: RunStart) -> None:
        # If the insertion fails, rounds must not go to an earlier run with the same id.
        self._runs.pop(unit.run_id, None)
        row = encode_start(unit.event, unit.owner, self.process, self._model_id)
        run = connection.execute(RUNS.insert(), row).lastrowid
        assert run is not None
        models = encode_models(unit.event, run, self._model_id)
        insert_rows(connection, RUN_MODELS, models)
        write_drafters(connection, run, map(self._model_id, unit.event.drafters))
        self._runs[unit.run_id] = run

    def _end(self, connection: sqlite3.Connection, event: EndEvent) -> None:
        run = self._runs[event.run_id]
        output = run_output(connection, run, event.text_tail)
        figures = figures_of(event.stats)
        update_run(connection, run, {**encode_end(event), **figures, "output": encode_text(output)})

    def _model_id(self, name: str) -> int:
        if name not in self._models:
            connection, text = self._connect(), encode_text(name)
            connection.execute("INSERT OR IGNORE INTO models (name) VALUES (?)", (text,))
            row = connection.execute("SELECT id FROM models WHERE name = ?", (text,)).fetchone()
            self._models[name] = row["id"]
        return self._models[name]

    def _mark_hole(self, connection: sqlite3.Connection, unit: Unit) -> bool:
        """Records that the unit is missing; False if its run is known to be missing."""
        # A refused start has no row to mark, and a measurement is no event.
        if isinstance(unit, RunStart | Measurement):
            return True
        run = self._runs.get(unit.run_id, -1)
        if isinstance(unit, End):  # the run has ended, but its outcome is not recorded
            update_run(connection, run, {"status": "interrupted"})
        return record_loss(connection, run, unit.num_events)


def insert_rows(connection: sqlite3.Connection, table: TableColumns, rows: Sequence[Row]) -> None:
    """Inserts rows in blocks."""
    # Each statement releases the GIL and then waits for the GIL: blocks need fewer waits than rows.
    in_blocks = len(rows) - len(rows) % ROWS_A_STATEMENT
    blocks = (rows[i : i + ROWS_A_STATEMENT] for i in range(0, in_blocks, ROWS_A_STATEMENT))
    flat = [list(chain.from_iterable(block)) for block in blocks]
    connection.executemany(table.insert(ROWS_A_STATEMENT), flat)
    connection.executemany(table.insert(), rows[in_blocks:])


def record_loss(connection: sqlite3.Connection, run: int, num_lost: int) -> bool:
    """Records that at least `num_lost` events of a run are missing; False if there is no such
    run."""
    query = "UPDATE runs SET num_lost_events = max(num_lost_events, ?) WHERE id = ?"
    return connection.execute(query, (num_lost, run)).rowcount == 1


def store_baseline(connection: sqlite3.Connection, unit: BaselineRecord) -> None:
    """Stores a run's baseline, which replaces an earlier baseline; no effect on a deleted run."""
    plain = unit.baseline
    connection.execute(
        "UPDATE runs SET baseline_tokens_per_second = ?, baseline_blocks_json = ?,"
        " baseline_same_text = ?, baseline_run_id = ?, baseline_note = ? WHERE run_id = ?",
        (
            plain.tokens_per_second,
            to_json(plain.blocks),
            int(plain.same_text),
            *map(encode_text, (plain.run_id, plain.note, unit.run_id)),
        ),
    )


def store_regret(connection: sqlite3.Connection, unit: RegretRecord) -> None:
    """Stores a run's regret, which replaces an earlier regret; no effect on a deleted run."""
    values = (to_json(unit.regret), encode_text(unit.run_id))
    connection.execute("UPDATE runs SET regret_json = ? WHERE run_id = ?", values)


def update_run(connection: sqlite3.Connection, run: int, values: dict[str, Any]) -> None:
    """Updates columns of the run with the key `run`."""
    columns = ", ".join(f"{column} = :{column}" for column in values)
    connection.execute(f"UPDATE runs SET {columns} WHERE id = :id", {**values, "id": run})


def run_output(connection: sqlite3.Connection, run: int, text_tail: str = "") -> str:
    """The text of a run's rounds in the log, followed by `text_tail`."""
    query = "SELECT text_delta FROM tokens WHERE run = ? ORDER BY round, ordinal"
    with closing(connection.execute(query, (run,))) as rows:
        return "".join([*(decode_text(row["text_delta"]) for row in rows), text_tail])
