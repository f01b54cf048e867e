"""Where a run's events come from: live from the worker, or out of the store.

A LiveSource is the worker's tap on its run: in the engine's thread every event is handed to the
store's queue and put into the visitor's buffer, before any page can draw it. The tab's generator
only looks at the buffer. So a run is recorded whole whatever the tab does (slow motion, a hidden
tab, a closed one), and no thread is needed for it. Memory stays bounded: the buffer keeps the
latest events, older ones are read back from the store.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from core.errors import SpecScopeError
from core.events import Event, RunCancelled, RunCompleted, RunFailed, RunStarted

__all__ = [
    "HeldSource",
    "LiveSource",
    "RunLike",
    "Source",
    "StoreLike",
    "StoredSource",
    "ends",
]

KEPT_EVENTS = 2048
"""About 500 rounds: a lecture's longest run is stepped through without reading the store."""

log = logging.getLogger(__name__)


class RunLike(Protocol):
    """What is needed of core.engine.worker.Run."""

    @property
    def run_id(self) -> str: ...
    @property
    def place(self) -> int: ...
    def poll(self, timeout: float) -> list[Event]: ...
    def cancel(self) -> None: ...


class StoreLike(Protocol):
    """What is needed of storage.RunStore here."""

    def record(self, event: Event, owner: str = "") -> None: ...
    def keep_baseline(
        self, run_id: str, tokens_per_second: float, plain_run_id: str, note: str
    ) -> None: ...
    def flush(self, timeout: float = 5.0) -> bool: ...
    def events(self, run_id: str) -> tuple[Event, ...]: ...
    def delete(self, run_id: str) -> None: ...


class Source(Protocol):
    """The events of one run by number: event n has `seq` n."""

    @property
    def run_id(self) -> str: ...
    @property
    def count(self) -> int:
        """How many events there are so far."""
        ...

    @property
    def done(self) -> bool:
        """No further event will come."""
        ...

    @property
    def place(self) -> int:
        """Place in the queue, 0 once it runs."""
        ...

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        """Events first <= seq < end; fewer where they are lost."""
        ...

    def wait(self, count: int, timeout: float) -> None:
        """Return when there are more than `count` events, or the run is done, or time is up."""
        ...

    def wait_done(self, timeout: float) -> None:
        """Return when the run is done, or time is up."""
        ...

    def cancel(self) -> None:
        """Stop the engine's work on it; nothing happens to a run that has ended."""
        ...


def ends(event: Event) -> bool:
    """Whether a run has no event after this one."""
    return isinstance(event, (RunCompleted, RunCancelled, RunFailed))


class LiveSource:
    """A run in progress. Give `take` to the worker as its tap, then the run to `run`."""

    def __init__(
        self, store: StoreLike, owner: str = "", begun: Callable[[str], None] | None = None
    ) -> None:
        """`begun` is called with the run's id once its start is recorded; it must not block."""
        self._store, self._owner, self._begun = store, owner, begun
        self._run: RunLike | None = None
        self._run_id = ""
        self.prompt = ""
        self._kept: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._count = 0
        self._done = False
        self._news = threading.Condition()

    def attach(self, run: RunLike) -> None:
        """The run whose events come in; it may have begun already."""
        with self._news:
            self._run_id = run.run_id
            # A source of a past run must not keep its models alive: they may have been exchanged.
            self._run = None if self._done else run

    def take(self, event: Event) -> None:
        """For the worker's thread: record and keep one event. Never blocks on disk."""
        # Recorded before it is counted: what a page has drawn is in the store's queue already.
        self._store.record(event, self._owner)
        if self._begun is not None and isinstance(event, RunStarted):
            self._begun(event.run_id)
        with self._news:
            self._run_id = event.run_id
            self._kept.append(event)
            self._count += 1
            self._done = ends(event)
            self._news.notify_all()
            run = self._run
            if self._done:
                self._run = None
        if run is not None:
            # The tap has seen what waits in the run's mailbox; no other reader will empty it.
            run.poll(0.0)

    @property
    def run_id(self) -> str:
        return self._run_id

    @property
    def owner(self) -> str:
        """The key of the visitor whose run it is."""
        return self._owner

    @property
    def count(self) -> int:
        return self._count

    @property
    def done(self) -> bool:
        return self._done

    @property
    def place(self) -> int:
        run = self._run
        return run.place if run else 0

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        with self._news:
            end = min(end, self._count)
            start = self._count - len(self._kept)
            if first >= start:
                return tuple(self._kept[i - start] for i in range(first, end))
        return _read_back(self._store, self.run_id, first, end)

    def wait(self, count: int, timeout: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._count > count or self._done, timeout)

    def wait_done(self, timeout: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._done, timeout)

    def cancel(self) -> None:
        run = self._run
        if run is not None:
            run.cancel()


class HeldSource:
    """A past run whose events are at hand, all that there are."""

    def __init__(self, events: Sequence[Event], run_id: str) -> None:
        self._events = tuple(events)
        self.run_id = run_id
        self.place = 0
        self.done = True

    @property
    def count(self) -> int:
        return len(self._events)

    def events(self, first: int, end: int) -> tuple[Event, ...]:
        return self._events[first:end]

    def wait(self, count: int, timeout: float) -> None:
        """Nothing more will come."""

    def wait_done(self, timeout: float) -> None:
        """It is."""

    def cancel(self) -> None:
        """Nothing to stop."""


class StoredSource(HeldSource):
    """A past run out of the store, read once when it is opened."""

    def __init__(self, store: StoreLike, run_id: str) -> None:
        """StoreError where the run is unknown."""
        super().__init__(store.events(run_id), run_id)


def _read_back(store: StoreLike, run_id: str, first: int, end: int) -> tuple[Event, ...]:
    """Events that left the buffer; none where the log could not keep them."""
    # The event may still wait in the store's queue.
    store.flush()
    try:
        return store.events(run_id)[first:end]
    except SpecScopeError as error:
        log.warning("events %d to %d of %s cannot be read back: %s", first, end, run_id, error)
        return ()
