"""The run that Live opens with. If SSMs are loaded and the initial preset drafts, the server
records this run when it starts. A page plays the run slowly; if MOST_AT_ONCE pages play it already,
a further page shows its end. The run is in no log. A visitor's run stops the recording; a later
visit starts the recording again, unless a run is waiting or running."""

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
    """The recording of the opening run. `players`: a semaphore that a page holds while it plays the
    recording."""

    def __init__(self) -> None:
        self._source: LiveSource | None = None
        self.players = threading.BoundedSemaphore(MOST_AT_ONCE)

    def record(self, start: Callable[[Request], LiveSource], request: Request) -> None:
        """Run `request` with `start`, which must not log the run."""
        self._source = start(request)

    def source(self) -> MemorySource | None:
        """The recorded run; None if it has not been recorded to its end."""
        events = self._events()
        if not events or not isinstance(events[-1], RunCompleted):
            return None
        # This id marks a run that is in no log.
        return MemorySource([replace(one, run_id=OPENING) for one in events], OPENING)

    @property
    def was_stopped(self) -> bool:
        """Whether the recording was cancelled, as a visitor's run does."""
        return isinstance((self._events() or (None,))[-1], RunCancelled)

    @property
    def is_awaited(self) -> bool:
        """Whether there will be a recording: it is under way, or will be started again."""
        return self._source is not None and (not self._source.is_done or self.was_stopped)

    def _events(self) -> tuple[Event, ...]:
        """The events of the recording once it has ended, else none."""
        source = self._source
        return source.events(0, source.count) if source is not None and source.is_done else ()
