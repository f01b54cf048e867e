"""The run that Live opens with: recorded once at the server's start, from its own models, and
played slowly to each visitor until a button is pressed. It is in no log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from core.config import Request
from core.events import Event, RunCompleted
from ui.run.source import LiveSource, MemorySource

__all__ = ["OPENING", "ROUNDS_A_SECOND", "Opening"]

OPENING = "opening"
"""Its run id."""
ROUNDS_A_SECOND = 1.0
# A page that plays the run occupies a thread of the server.
MOST_AT_ONCE = 16


class Opening:
    """The recording; none before `record`. `players`: of pages that play it at once."""

    def __init__(self) -> None:
        self._source: LiveSource | None = None
        self.players = threading.BoundedSemaphore(MOST_AT_ONCE)

    def record(self, start: Callable[[Request], LiveSource], request: Request) -> None:
        """Run the request with `start`, which logs nothing."""
        self._source = start(request)

    def source(self) -> MemorySource | None:
        """The recorded run; None if there is none, or not yet."""
        source = self._source
        if source is None or not source.done:
            return None
        # By this id the page knows that the run is in no log.
        events: list[Event] = [
            replace(one, run_id=OPENING) for one in source.events(0, source.count)
        ]
        return MemorySource(events, OPENING) if isinstance(events[-1], RunCompleted) else None
