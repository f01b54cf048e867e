"""Running runs that a tab follows without owning them: of this server, or of another process that
writes the same log.

Both are Sources. Closing a tab that follows such a run does not stop it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from core.errors import SpecScopeError, UnknownRunError
from core.events import Event
from ui.run.source import LiveSource, Source, StoredSource

__all__ = ["FollowedSource", "LogSource", "source_of", "stop", "under_way"]

LOOK_S = 1.0
# Reading a long run's log takes seconds: RESTS times as long passes before the next read. `settle`
# checks every running process, so it is called less often still.
RESTS = 4
SETTLE_S = 10.0
TICK_S = 0.05


class FollowedSource:
    """A run of this server. `logged`: the events that the log already had, which the buffer of
    `live` may drop."""

    def __init__(self, live: LiveSource, logged: Sequence[Event]) -> None:
        self._live, self._kept = live, tuple(logged)

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
        num_kept = len(self._kept)
        if first >= num_kept:
            return self._live.events(first, end)
        return self._kept[first:end] + (self._live.events(num_kept, end) if end > num_kept else ())

    def wait(self, count: int, timeout: float) -> None:
        self._live.wait(count, timeout)

    def wait_done(self, timeout: float) -> None:
        self._live.wait_done(timeout)

    def cancel(self) -> None:
        """No effect: the run belongs to another tab."""

    def stop(self) -> None:
        """Stops the run, for all tabs."""
        self._live.cancel()


class LogSource:
    """A run of another process, read from the log at most once a second.

    It also ends if that process dies, which `RunStore.settle` detects a while later.
    """

    def __init__(self, store: Any, run_id: str) -> None:
        """StoreError for an unknown run."""
        self._store, self.run_id, self.place = store, run_id, 0
        self._lock = threading.Lock()
        self._events: tuple[Event, ...] = ()
        self._is_done = False
        self._settle_at = time.monotonic() + SETTLE_S
        self._look_at = 0.0
        self._read_log()

    @property
    def count(self) -> int:
        self._look()
        return len(self._events)

    @property
    def is_done(self) -> bool:
        self._look()
        return self._is_done

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        return self._events[first:end]

    def wait(self, count: int, timeout: float) -> None:
        until = time.monotonic() + timeout
        while self.count <= count and not self.is_done and time.monotonic() < until:
            time.sleep(TICK_S)

    def wait_done(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        while not self.is_done and time.monotonic() < until:
            time.sleep(TICK_S)

    def cancel(self) -> None:
        """No effect: another process cannot be reached from here."""

    def _look(self) -> None:
        # If another thread is reading, the events so far are returned.
        if self._is_done or time.monotonic() < self._look_at or not self._lock.acquire(False):
            return
        try:
            self._read_log()
        except UnknownRunError:
            self._is_done = True  # deleted by the other process
        except SpecScopeError:
            self._look_at = time.monotonic() + LOOK_S  # the file is busy
        finally:
            self._lock.release()

    def _read_log(self) -> None:
        began = time.monotonic()
        if began >= self._settle_at:
            self._settle_at = began + SETTLE_S
            self._store.settle()
        # The status is read before the events, so that an ended run is read to its last event.
        over = self._store.run(self.run_id).status != "running"
        self._events = self._store.events(self.run_id)
        self._is_done = over
        now = time.monotonic()
        self._look_at = now + max(LOOK_S, RESTS * (now - began))


def source_of(context: Any, run: Any) -> Source:
    """The events of a run (a RunSummary): as they come while it is running, else all. StoreError if
    it was deleted."""
    store = context.store
    live = context.hub.live_run(run.run_id)
    if live is not None:
        return FollowedSource(live, store.events(run.run_id))
    if run.status == "running" and run.elsewhere:
        # Ends a run whose process is gone; LogSource itself would notice SETTLE_S later.
        store.settle()
        return LogSource(store, run.run_id)
    return StoredSource(store, run.run_id)


def under_way(context: Any, run: Any) -> str:
    """The server on which a run is running: `here`, `elsewhere`, or empty if it has ended."""
    if context.hub.live_run(run.run_id) is not None:
        return "here"
    return "elsewhere" if run.status == "running" and run.elsewhere else ""


def stop(source: Source) -> None:
    """Stops the run for all tabs, if it is running on this server."""
    if isinstance(source, FollowedSource):
        source.stop()
    else:
        source.cancel()
