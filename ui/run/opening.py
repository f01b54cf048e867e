"""The recorded run that the Live tab shows first. It is in no log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from core.config import Request
from core.events import Event, RunCancelled, RunCompleted
from ui.run.source import LiveSource, MemorySource

__all__ = ["OPENING", "ROUNDS_A_SECOND", "Opening"]

OPENING = "opening"
"""The run id of the opening run."""
ROUNDS_A_SECOND = 1.0
# A page occupies a thread of the server while it plays the run.
MOST_AT_ONCE = 16


class Opening:
    """The recording of the opening run. A page holds the semaphore `players` while it plays the
    recording."""

    def __init__(self) -> None:
        self._source: LiveSource | None = None
        self.players = threading.BoundedSemaphore(MOST_AT_ONCE)

    def record(self, start: Callable[[Request], LiveSource], request: Request) -> None:
        """Runs `request` with `start`, which must not log the run."""
        self._source = start(request)

    def source(self) -> MemorySource | None:
        """The recorded run; None before its end, and if it did not complete."""
        events = self._events()
        if not events or not isinstance(events[-1], RunCompleted):
            return None
        return MemorySource([replace(one, run_id=OPENING) for one in events], OPENING)

    @property
    def was_stopped(self) -> bool:
        """Whether the recording was cancelled."""
        return isinstance((self._events() or (None,))[-1], RunCancelled)

    @property
    def is_awaited(self) -> bool:
        """Whether the recording is under way, or was cancelled and can be started again."""
        return self._source is not None and (not self._source.is_done or self.was_stopped)

    def _events(self) -> tuple[Event, ...]:
        source = self._source
        return source.events(0, source.count) if source is not None and source.is_done else ()
