"""RunStore: the log of all runs in one SQLite file, and the only door to it.

Writing goes through one thread's queue; each read opens a short-lived connection of its own, from
whatever thread. Knows no widget and no engine. Several processes may use one file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from core.errors import StoreError, UnknownRunError
from core.events import Event
from storage.codec import text_in
from storage.database import OPEN_TIMEOUT_S, connect, explain, locate, open_database, reading
from storage.history import mark_interrupted, read_events
from storage.process import Process
from storage.queries import RunPage, RunQuery, RunSummary, select_run, select_runs
from storage.sink import Sink
from storage.studies import StudyLog, mark_studies_interrupted
from storage.writer import LogStatus, LogWriter

__all__ = ["RunStore"]

# About 2,000 rounds; with trees of 30 nodes that is some 200 MB.
MAX_WAITING_EVENTS = 8_000
FLUSH_TIMEOUT_S = 5.0
CATCH_UP_TIMEOUT_S = 1.0


class RunStore:
    """The run log at `path`, else where SPECSCOPE_DB says, else in the user's data directory.

    Opening makes or migrates the file and gives runs whose process is gone the status
    `interrupted`. Raises StoreError. `max_waiting` bounds the events kept in memory while the disk
    cannot be written to.
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
        self._writer = LogWriter(Sink(self.path, process), max_waiting)

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- writing --

    def record(self, event: Event, owner: str = "") -> None:
        """Take an event in; never waits for the disk, never raises.

        `owner`, the visitor's key, is kept with the run when its RunStarted is recorded.
        """
        self._writer.put(event, owner)

    def flush(self, timeout: float = FLUSH_TIMEOUT_S) -> bool:
        """Write at once what is waiting; False if that was not possible within `timeout` (s)."""
        return self._writer.flush(timeout)

    def status(self) -> LogStatus:
        """Whether the log is paused and why, and how many events wait or were dropped."""
        return self._writer.status()

    def delete(self, run_id: str) -> None:
        """Remove a run and all that belongs to it. Raises StoreError, UnknownRunError.

        What a run still going on records later is ignored.
        """
        self._catch_up()
        try:
            with closing(connect(self.path, timeout=OPEN_TIMEOUT_S)) as connection:
                # Overwritten, not only unlinked: a deleted text should not stay in the file.
                connection.execute("PRAGMA secure_delete = ON")
                query = "DELETE FROM runs WHERE run_id = ?"
                found = connection.execute(query, (text_in(run_id),)).rowcount
                # The index keeps the words of a deleted row until its segments are merged, the
                # write-ahead log until it is copied back and cut off.
                connection.execute("INSERT INTO runs_fts(runs_fts) VALUES ('optimize')")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise StoreError(explain(error, self.path)) from error
        if not found:
            raise self._unknown(run_id)

    def close(self) -> None:
        """Write what is waiting, as far as that is possible, and end the writing thread."""
        self._writer.close(FLUSH_TIMEOUT_S)

    # -- reading --

    def runs(self, query: RunQuery) -> RunPage:
        """The runs that `query` asks for, one page of them. Raises StoreError."""
        self._catch_up()
        with reading(self.path) as connection:
            return select_runs(connection, query)

    def run(self, run_id: str) -> RunSummary:
        """One run without its rounds. Raises StoreError, UnknownRunError."""
        self._catch_up()
        with reading(self.path) as connection:
            found = select_run(connection, run_id)
        if found is None:
            raise self._unknown(run_id)
        return found

    def events(self, run_id: str) -> tuple[Event, ...]:
        """The events that were recorded, equal to what they were. Raises StoreError.

        Of a run that goes on or was interrupted, those of its whole rounds; of one that the log
        could not keep entirely, those before the first that is missing.
        """
        self._catch_up()
        with reading(self.path) as connection:
            found = read_events(connection, run_id)
        if not found:
            raise self._unknown(run_id)
        return found

    def _catch_up(self) -> None:
        """A reader sees what was recorded before, unless the log is paused."""
        if not self.status().paused:
            self.flush(CATCH_UP_TIMEOUT_S)

    def _unknown(self, run_id: str) -> UnknownRunError:
        return UnknownRunError(f"run_id is {run_id!r}: no such run")
