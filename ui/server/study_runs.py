"""A study's runs on the page's own worker."""

from __future__ import annotations

import logging

from core.config import Request
from core.errors import StoreError, UnknownRunError
from core.events import ModelInfo
from ui.run.source import LiveSource
from ui.server.session import Hub

__all__ = ["StudyRuns"]

FINGERPRINT_CHARACTERS = 8

log = logging.getLogger(__name__)


class StudyRuns:
    """Implements `lab.runs.RunHost` for lab.conductor.Conductor."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def models(self) -> tuple[str, ...]:
        """The loaded models, the LLM first, with number format, device and fingerprint."""
        return tuple(_model_line(info) for info in self._hub.model_host.infos)

    def check(self, request: Request) -> None:
        """Raises ConfigError if the loaded models cannot run the request; runs nothing."""
        self._hub.model_host.check(request)

    def start(self, request: Request, owner: str = "", in_log: bool = True) -> LiveSource:
        """Queues a run, which is recorded if `in_log` is set."""
        return self._hub.start(request, owner, log=in_log)

    def forget(self, run: LiveSource) -> None:
        """Deletes a run from the log."""
        try:
            self._hub.store.delete(run.run_id)
        except UnknownRunError:
            return  # the run did not start, or was deleted
        except StoreError as error:
            log.warning("run %s, which is no cell's, stays in the log: %s", run.run_id, error)

    def busy(self) -> int:
        """The number of waiting and running requests of all visitors and studies, plus 1 while
        models are being loaded."""
        return self._hub.model_host.busy() + self._hub.model_host.swap.is_loading

    def num_begun(self) -> int:
        """The number of requests, and of loadings of models, since the server started."""
        return self._hub.model_host.num_begun


def _model_line(info: ModelInfo) -> str:
    parts = (info.dtype, info.device, info.fingerprint[:FINGERPRINT_CHARACTERS])
    return f"{info.name} ({', '.join(filter(None, parts))})"
