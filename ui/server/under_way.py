"""Runs under way that a tab follows, on this server or in another process with the same log."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from core.errors import SpecScopeError, UnknownRunError
from core.events import Event
from ui.run.source import LiveSource, Source, StoredSource

__all__ = ["FollowedSource", "LogSource", "source_of", "stop", "under_way"]

# The pause after a read of a run's log is at least PAUSE_FACTOR times the duration of the read.
# SETTLE_S is long, since `settle` checks the process of every running run.
READ_INTERVAL_S = 1.0
PAUSE_FACTOR = 4
SETTLE_S = 10.0
WAIT_STEP_S = 0.05


class FollowedSource:
    """A run of this server. `live`: the run; `logged`: its first events, read from the log."""

    def __init__(self, live: LiveSource, logged: Sequence[Event]) -> None:
        self._live, self._logged = live, tuple(logged)

    @property
    def run_id(self) -> str:
        return self._live.run_id

    @property
    def count(self) -> int:
        return self._live.count

    @property
    def is_done(self) -> bool:
        return self._live.is_done

    @property
    def place(self) -> int:
        return self._live.place

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        num_logged = len(self._logged)
        if first >= num_logged:
            return self._live.events(first, end)
        rest = self._live.events(num_logged, end) if end > num_logged else ()
        return self._logged[first:end] + rest

    def wait(self, count: int, timeout: float) -> None:
        self._live.wait(count, timeout)

    def wait_done(self, timeout: float) -> None:
        self._live.wait_done(timeout)

    def cancel(self) -> None:
        """No effect; `stop` stops the run."""

    def stop(self) -> None:
        """Stops the run, for all tabs."""
        self._live.cancel()


class LogSource:
    """A run of another process, read from the log."""

    def __init__(self, store: Any, run_id: str) -> None:
        """Raises StoreError, in particular UnknownRunError if the run was deleted."""
        self._store, self.run_id, self.place = store, run_id, 0
        self._lock = threading.Lock()
        self._events: tuple[Event, ...] = ()
        self._is_done = False
        self._next_settle = time.monotonic() + SETTLE_S
        self._next_read = 0.0
        self._read_log()

    @property
    def count(self) -> int:
        self._read_if_due()
        return len(self._events)

    @property
    def is_done(self) -> bool:
        self._read_if_due()
        return self._is_done

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        return self._events[first:end]

    def wait(self, count: int, timeout: float) -> None:
        until = time.monotonic() + timeout
        while self.count <= count and not self.is_done and time.monotonic() < until:
            time.sleep(WAIT_STEP_S)

    def wait_done(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        while not self.is_done and time.monotonic() < until:
            time.sleep(WAIT_STEP_S)

    def cancel(self) -> None:
        """No effect: another process cannot be reached from here."""

    def _read_if_due(self) -> None:
        # While another thread reads, callers get the events so far.
        if self._is_done or time.monotonic() < self._next_read or not self._lock.acquire(False):
            return
        try:
            self._read_log()
        except UnknownRunError:
            self._is_done = True  # deleted
        except SpecScopeError:
            self._next_read = time.monotonic() + READ_INTERVAL_S  # for example, the file is busy
        finally:
            self._lock.release()

    def _read_log(self) -> None:
        began = time.monotonic()
        if began >= self._next_settle:
            self._next_settle = began + SETTLE_S
            self._store.settle()
        # The status is read before the events, so that an ended run is read to its last event.
        has_ended = self._store.run(self.run_id).status != "running"
        self._events = self._store.events(self.run_id)
        self._is_done = has_ended
        now = time.monotonic()
        self._next_read = now + max(READ_INTERVAL_S, PAUSE_FACTOR * (now - began))


def source_of(context: Any, run: Any) -> Source:
    """The Source of a run (a RunSummary). Raises StoreError if the run was deleted."""
    store = context.store
    live = context.hub.live_run(run.run_id)
    if live is not None:
        return FollowedSource(live, store.events(run.run_id))
    if run.status == "running" and run.elsewhere:
        # Marks the run as interrupted if its process is gone.
        store.settle()
        return LogSource(store, run.run_id)
    return StoredSource(store, run.run_id)


def under_way(context: Any, run: Any) -> str:
    """Where a run (a RunSummary) is running: `here` (on this server), `elsewhere` or empty."""
    if context.hub.live_run(run.run_id) is not None:
        return "here"
    return "elsewhere" if run.status == "running" and run.elsewhere else ""


def stop(source: Source) -> None:
    """Stops the run for all tabs, if it is running on this server."""
    if isinstance(source, FollowedSource):
        source.stop()
    else:
        source.cancel()
