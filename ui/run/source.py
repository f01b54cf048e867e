"""The events of a run, live or past.

A LiveSource passes each event to the store and to a buffer of the latest KEPT_EVENTS events. Older
events are read from the store. Without a store the buffer has all events."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from core.errors import SpecScopeError
from core.events import Event, RunCancelled, RunCompleted, RunFailed, RunStarted

__all__ = [
    "BaselineLog",
    "MemorySource",
    "LiveSource",
    "RunLike",
    "Source",
    "StoreLike",
    "StoredSource",
    "ends",
    "last_event",
]

KEPT_EVENTS = 2048
"""The events of about 500 rounds."""

log = logging.getLogger(__name__)


class RunLike(Protocol):
    """The part of core.engine.worker.Run that sources use."""

    @property
    def run_id(self) -> str: ...
    @property
    def place(self) -> int: ...
    def poll(self, timeout: float) -> list[Event]: ...
    def cancel(self) -> None: ...


class BaselineLog(Protocol):
    """The part of storage.RunStore that stores a baseline."""

    def keep_baseline(
        self,
        run_id: str,
        tokens_per_second: float,
        plain_run_id: str,
        note: str,
        blocks: tuple[tuple[float, float], ...] = (),
        same_text: bool = False,
    ) -> None: ...


class StoreLike(BaselineLog, Protocol):
    """The part of storage.RunStore that runs use."""

    def keep_regret(self, run_id: str, regret: Mapping[str, Any]) -> None: ...
    def record(self, event: Event, owner: str = "") -> None: ...
    def flush(self, timeout: float = 5.0) -> bool: ...
    def events(self, run_id: str) -> tuple[Event, ...]: ...
    def delete(self, run_id: str) -> None: ...


class Source(Protocol):
    """The events of one run by number: event n has `seq` n."""

    @property
    def run_id(self) -> str: ...
    @property
    def count(self) -> int:
        """The number of events so far."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether no further event will come."""
        ...

    @property
    def place(self) -> int:
        """The run's place in the queue, 0 if it does not wait."""
        ...

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        """The available events first <= seq < end."""
        ...

    def wait(self, count: int, timeout: float) -> None:
        """Returns when there are more than `count` events, the run is done, or the time is up."""
        ...

    def wait_done(self, timeout: float) -> None:
        """Returns when the run is done or the time is up."""
        ...

    def cancel(self) -> None:
        """Stops the run, unless it has ended or the tab only follows it."""
        ...


def ends(event: Event) -> bool:
    """Whether this is a run's last event."""
    return isinstance(event, (RunCompleted, RunCancelled, RunFailed))


def last_event(source: Source, count: int | None = None) -> Event | None:
    """The last of the first `count` events (default: of all events); None if there is no event yet,
    or if it cannot be read."""
    count = source.count if count is None else count
    return next(iter(source.events(count - 1, count)), None) if count > 0 else None


class LiveSource:
    """The events of a request that is queued, runs, or has run. Pass `take` to the worker as its
    tap, then pass the worker's run to `attach`."""

    def __init__(
        self,
        store: StoreLike | None,
        owner: str = "",
        begun: Callable[[str], None] | None = None,
    ) -> None:
        """`owner`: the key of the visitor who made the request. `begun` is called with the run's id
        when the run starts; `begun` must not block."""
        self._store, self.owner, self._begun = store, owner, begun
        self._run: RunLike | None = None
        self.run_id = self.prompt = ""
        self._buffer: deque[Event] = deque(maxlen=None if store is None else KEPT_EVENTS)
        # `count` and `is_done` are written under `_news`; they may be read without it.
        self.count = 0
        self.is_done = False
        self._news = threading.Condition()

    def attach(self, run: RunLike) -> None:
        """Sets the run whose events are taken. The run may have begun, or ended, already."""
        with self._news:
            self.run_id = run.run_id
            # A reference after the end would keep swapped-out models in memory.
            self._run = None if self.is_done else run

    def take(self, event: Event) -> None:
        """Records and keeps one event; called in the worker's thread."""
        # Recorded before it is counted: a page may read a counted event from the store.
        if self._store is not None:
            self._store.record(event, self.owner)
        # After the start is recorded: `_begun` may store a baseline in the run's row.
        if self._begun is not None and isinstance(event, RunStarted):
            self._begun(event.run_id)
        with self._news:
            self.run_id = event.run_id
            self._buffer.append(event)
            self.count += 1
            self.is_done = ends(event)
            self._news.notify_all()
            run = self._run
            if self.is_done:
                self._run = None
        if run is not None:
            # Empties the run's own queue of events, which nothing else reads.
            run.poll(0.0)

    @property
    def place(self) -> int:
        run = self._run
        return run.place if run else 0

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        with self._news:
            end = min(end, self.count)
            start = self.count - len(self._buffer)
            if first >= start:
                return tuple(self._buffer[i - start] for i in range(first, end))
        return _read_back(self._store, self.run_id, first, end) if self._store is not None else ()

    def wait(self, count: int, timeout: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self.count > count or self.is_done, timeout)

    def wait_done(self, timeout: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self.is_done, timeout)

    def cancel(self) -> None:
        run = self._run
        if run is not None:
            run.cancel()


class MemorySource:
    """A past run with all its events in memory."""

    def __init__(self, events: Sequence[Event], run_id: str) -> None:
        self._events = tuple(events)
        self.run_id = run_id
        self.place = 0
        self.is_done = True

    @property
    def count(self) -> int:
        return len(self._events)

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        return self._events[first:end]

    def wait(self, count: int, timeout: float) -> None:
        """Returns at once."""

    def wait_done(self, timeout: float) -> None:
        """Returns at once."""

    def cancel(self) -> None:
        """No effect."""


class StoredSource(MemorySource):
    """A past run, read from the store by the constructor."""

    def __init__(self, store: StoreLike, run_id: str) -> None:
        """Raises StoreError for an unknown run."""
        super().__init__(store.events(run_id), run_id)


def _read_back(store: StoreLike, run_id: str, first: int, end: int) -> tuple[Event, ...]:
    # The events may still be in the store's queue.
    store.flush()
    try:
        return store.events(run_id)[first:end]
    except SpecScopeError as error:
        log.warning("events %d to %d of %s cannot be read back: %s", first, end, run_id, error)
        return ()
