"""StudyRuns: a study's runs on the page's own worker, recorded like a visitor's."""

from __future__ import annotations

import logging

from core.config import Request
from core.errors import StoreError, UnknownRunError
from core.events import Event, ModelInfo
from ui.run.source import LiveSource
from ui.server.session import Hub

__all__ = ["StudyRuns"]

SHOWN_FINGERPRINT = 8

log = logging.getLogger(__name__)


class StudyRuns:
    """For lab.conductor.Conductor."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def models(self) -> tuple[str, ...]:
        """The loaded models, the LLM first, with number format, device and fingerprint."""
        return tuple(_model_line(info) for info in self._hub.model_host.infos)

    def check(self, request: Request) -> None:
        """Raises ConfigError where the loaded models could not run it; runs nothing."""
        self._hub.model_host.check(request)

    def start(self, request: Request, owner: str = "", in_log: bool = True) -> LiveSource:
        """Queue a run; one that is not `in_log` leaves nothing in the log."""
        if in_log:
            return self._hub.start(request, owner)
        source = LiveSource(_Nowhere(), owner)
        source.attach(self._hub.model_host.submit(request, source.take))
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
        """Waiting and running requests of all visitors; a pair being loaded is one more."""
        return self._hub.model_host.busy() + self._hub.model_host.exchange.loading

    def num_begun(self) -> int:
        """How many requests and loadings there were since the start."""
        return self._hub.model_host.num_begun


def _model_line(info: ModelInfo) -> str:
    parts = (info.dtype, info.device, info.fingerprint[:SHOWN_FINGERPRINT])
    return f"{info.name} ({', '.join(filter(None, parts))})"


class _Nowhere:
    """A log that keeps nothing."""

    def record(self, event: Event, owner: str = "") -> None:
        """Dropped."""

    def keep_baseline(self, *_: object) -> None:
        """Dropped."""

    def flush(self, timeout: float = 5.0) -> bool:
        return True

    def events(self, run_id: str) -> tuple[Event, ...]:
        return ()

    def delete(self, run_id: str) -> None:
        """Nothing is there."""
