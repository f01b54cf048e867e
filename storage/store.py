"""RunStore: the log of runs in one SQLite file.

One thread writes the events. Each read opens its own connection, in any thread. Several processes
may use one file.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from core.config.checks import integer
from core.errors import ConfigError, StoreError, UnknownRunError
from core.events import Event
from storage.codec import encode_text
from storage.database import (
    OPEN_TIMEOUT_S,
    connect,
    explain,
    locate,
    open_database,
    read_connection,
)
from storage.datasette import datasette_command
from storage.history import mark_interrupted, read_events
from storage.process import Process
from storage.queries import PlainSpeed, RunChoices, RunPage, RunQuery, RunSummary
from storage.selection import select_choices, select_run, select_runs
from storage.sink import Sink
from storage.studies import StudyLog, mark_studies_interrupted
from storage.thinning import (
    MOST_KEPT,
    read_retention,
    release_pages,
    thin_some,
    upkeep,
    write_retention,
)
from storage.units import BaselineRecord, RegretRecord
from storage.writer import LogStatus, LogWriter

__all__ = ["RunStore"]

# The most events that wait in memory: about 2,000 rounds.
MAX_WAITING_EVENTS = 8_000
FLUSH_TIMEOUT_S = 5.0
CATCH_UP_TIMEOUT_S = 1.0
REST_S = 0.01  # between two transactions of `thin`: another writer can take the lock
MAX_NOTE = 4_000


class RunStore:
    """The run log at `path`, else at the path in SPECSCOPE_DB, else in the user's data directory.

    Opening creates or migrates the file. Runs and studies that are recorded as running although
    their process has ended become `interrupted`. Raises StoreError. `max_waiting` bounds the events
    kept in memory while the disk cannot be written to.
    """

    def __init__(
        self, path: Path | str | None = None, *, max_waiting: int = MAX_WAITING_EVENTS
    ) -> None:
        self.path = locate(path)
        open_database(self.path)
        try:
            with closing(connect(self.path, timeout=OPEN_TIMEOUT_S)) as connection:
                mark_interrupted(connection)
                mark_studies_interrupted(connection)
        except sqlite3.Error as error:
            raise StoreError(explain(error, self.path)) from error
        process = Process.current()
        self.studies = StudyLog(self.path, process)
        sink = Sink(self.path, process)
        self._writer = LogWriter(sink, max_waiting, partial(upkeep, self.path))

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- writing --

    def record(self, event: Event, owner: str = "") -> None:
        """Queues an event; does not wait for the disk. `owner`: the visitor's key, stored with the
        run's RunStarted."""
        self._writer.enqueue(event, owner)

    def keep_baseline(
        self,
        run_id: str,
        tokens_per_second: float,
        plain_run_id: str,
        note: str,
        blocks: tuple[tuple[float, float], ...] = (),
        same_text: bool = False,
    ) -> None:
        """Queues a speed of plain decoding for a recorded run. `plain_run_id`: the run that
        measured this speed. `note`, `blocks`, `same_text`: as in PlainSpeed."""
        plain = PlainSpeed(tokens_per_second, plain_run_id, note, blocks, same_text)
        self._writer.enqueue(BaselineRecord(run_id, plain), "")

    def keep_regret(self, run_id: str, regret: Mapping[str, Any]) -> None:
        """Queues a recorded run's regret, given as JSON types."""
        self._writer.enqueue(RegretRecord(run_id, regret), "")

    def flush(self, timeout: float = FLUSH_TIMEOUT_S) -> bool:
        """Writes queued events now, except events of rounds in progress; False if this takes longer
        than `timeout` seconds."""
        return self._writer.flush(timeout)

    def status(self) -> LogStatus:
        """The log's current state."""
        return self._writer.status()

    def delete(self, run_id: str) -> None:
        """Removes a run and its events; later events of the run are ignored. Raises StoreError,
        UnknownRunError."""
        self._catch_up()
        with self._write_connection() as connection:
            query = "DELETE FROM runs WHERE run_id = ?"
            num_deleted = connection.execute(query, (encode_text(run_id),)).rowcount
            # The words of a deleted row stay in the index until its segments are merged, and in the
            # write-ahead log until it is truncated.
            connection.execute("INSERT INTO runs_fts(runs_fts) VALUES ('optimize')")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._writer.tidy()
        if not num_deleted:
            raise self._unknown(run_id)

    def annotate(self, run_id: str, note: str) -> None:
        """Sets a run's note; an empty note removes it.

        Raises ConfigError, StoreError, UnknownRunError.
        """
        if not isinstance(note, str) or len(note) > MAX_NOTE:
            raise ConfigError.must_be("note", note, f"a text of at most {MAX_NOTE} characters")
        self._catch_up()
        with self._write_connection() as connection:
            query = "UPDATE runs SET note = ? WHERE run_id = ?"
            num_changed = connection.execute(
                query, (encode_text(note), encode_text(run_id))
            ).rowcount
        if not num_changed:
            raise self._unknown(run_id)

    def set_retention(self, keep: int | None) -> None:
        """Sets how many of the newest runs keep their complete trees; None: all. Older runs are
        thinned in the background. Raises ConfigError, StoreError."""
        if keep is not None:
            integer("keep", keep, 0, MOST_KEPT)
        with self._write_connection() as connection:
            write_retention(connection, keep)
        self._writer.tidy()

    def thin(self, keep: int) -> int:
        """Thins all but the newest `keep` runs; returns how many it thinned.

        A thinned run keeps its accepted paths, figures, text, tokens and times. Runs without a
        recorded end, and runs with lost events, are skipped. Raises ConfigError, StoreError.
        """
        integer("keep", keep, 0, MOST_KEPT)
        self._catch_up()
        total = 0
        with self._write_connection() as connection:
            while (finished := thin_some(connection, keep)) is not None:
                total += finished
                time.sleep(REST_S)
            while release_pages(connection):
                time.sleep(REST_S)
        return total

    def compact(self) -> None:
        """Rewrites the file without its free space. Raises StoreError.

        A file of an early SpecScope shrinks by itself only after this call. The call needs disk
        space for a copy of the file, and blocks other writes.
        """
        self._catch_up()
        with self._write_connection() as connection:
            # The mode of an existing file changes only with the next VACUUM.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def settle(self) -> None:
        """Marks running runs as `interrupted` if their process has ended, as opening does. Raises
        StoreError."""
        with self._write_connection() as connection:
            mark_interrupted(connection)

    def close(self) -> None:
        """Writes queued events if possible, and ends the writing thread."""
        self._writer.close(FLUSH_TIMEOUT_S)

    # -- reading --

    def datasette(self) -> str:
        """The command that opens this log in Datasette."""
        return datasette_command(self.path)

    def runs(self, query: RunQuery) -> RunPage:
        """One page of the runs that match `query`. Raises StoreError."""
        self._catch_up()
        with read_connection(self.path) as connection:
            return select_runs(connection, query)

    def run(self, run_id: str) -> RunSummary:
        """One run without its rounds. Raises StoreError, UnknownRunError."""
        self._catch_up()
        with read_connection(self.path) as connection:
            summary = select_run(connection, run_id)
        if summary is None:
            raise self._unknown(run_id)
        return summary

    def choices(self) -> RunChoices:
        """The names of the LLMs and drafters of the runs in the log. Raises StoreError."""
        self._catch_up()
        with read_connection(self.path) as connection:
            return select_choices(connection)

    def events(self, run_id: str) -> tuple[Event, ...]:
        """A run's events up to the first lost event; for a run without a recorded end, its start
        and its complete rounds. Raises StoreError, UnknownRunError."""
        self._catch_up()
        with read_connection(self.path) as connection:
            events = read_events(connection, run_id)
        if not events:
            raise self._unknown(run_id)
        return events

    def retention(self) -> int | None:
        """How many runs keep their complete trees; None for all. Raises StoreError."""
        with read_connection(self.path) as connection:
            return read_retention(connection)

    @contextmanager
    def _write_connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for writing, separate from the writing thread's. Raises StoreError."""
        try:
            with closing(connect(self.path, timeout=OPEN_TIMEOUT_S)) as connection:
                # SQLite then overwrites deleted text, which could otherwise stay in the file.
                connection.execute("PRAGMA secure_delete = ON")
                yield connection
        except sqlite3.Error as error:
            raise StoreError(explain(error, self.path)) from error

    def _catch_up(self) -> None:
        # While the log is paused, each read could wait for the whole timeout.
        if not self.status().paused:
            self.flush(CATCH_UP_TIMEOUT_S)

    def _unknown(self, run_id: str) -> UnknownRunError:
        return UnknownRunError.of("run_id", run_id, "no such run")
