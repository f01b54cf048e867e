"""StudyRuns: a study's runs on the page's own worker, recorded like a visitor's."""

from __future__ import annotations

import logging
from collections.abc import Callable

from core.config import Request
from core.errors import StoreError, UnknownRunError
from core.events import Event
from ui.session import Hub
from ui.source import LiveSource

__all__ = ["StudyRuns"]

log = logging.getLogger(__name__)


class StudyRuns:
    """For lab.conductor.Conductor. `models` names those that stand, the LLM first."""

    def __init__(self, hub: Hub, models: Callable[[], tuple[str, ...]]) -> None:
        self._hub, self.models = hub, models

    def start(self, request: Request, owner: str = "", kept: bool = True) -> LiveSource:
        """Queue a run; one that is not `kept` leaves nothing in the log."""
        if kept:
            return self._hub.start(request, owner)
        source = LiveSource(_Nowhere(), owner)
        source.attach(self._hub.worker.submit(request, source.take))
        return source

    def forget(self, run: LiveSource) -> None:
        """Take a run out of the log again: a cell that was broken off and is measured anew."""
        try:
            self._hub.store.delete(run.run_id)
        except UnknownRunError:
            return  # it never came out of the queue, or a visitor was first
        except StoreError as error:
            log.warning("run %s, which is no cell's, stays in the log: %s", run.run_id, error)

    def busy(self) -> int:
        """Requests that wait or run, everybody's."""
        return self._hub.worker.waiting() + self._hub.worker.running()


class _Nowhere:
    """A log that keeps nothing."""

    def record(self, event: Event, owner: str = "") -> None:
        """Dropped."""

    def flush(self, timeout: float = 5.0) -> bool:
        return True

    def events(self, run_id: str) -> tuple[Event, ...]:
        return ()

    def delete(self, run_id: str) -> None:
        """Nothing is there."""
