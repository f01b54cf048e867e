"""Runs work in the engine's thread between two rounds, so that it can use models that runs use too.

A worker has no such call, so a request of one token is queued like any other, and the work runs at
its first event. The request is not recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import MODEL_FAULTS, ConfigError
from core.events import Event, RunStarted
from ui.run.source import ends
from ui.server.model_host import ModelHost

__all__ = ["EngineTask"]

T = TypeVar("T")


class EngineTask(Generic[T]):
    """Queues `work`, which gets the engine. Raises what `ModelHost.submit` raises."""

    def __init__(self, host: ModelHost, work: Callable[[Any], T], prompt_ids: tuple[int, ...]):
        self._engine, self._work = host.worker.engine, work
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        plain = replace(SpeculationConfig.preset("autoregressive"), record_top_k=0)
        one = SamplingParams(max_new_tokens=1)
        # One prompt token, the least that a request may have.
        request = Request("aside", one, plain, prompt_token_ids=prompt_ids[-1:])
        self._run = host.submit(request, self._take)

    def _take(self, event: Event) -> None:
        """The tap; runs in the engine's thread."""
        try:
            if isinstance(event, RunStarted):
                # A swap may have come between `host.worker` and `submit`: the request then runs on
                # other models.
                if event.models != tuple(self._engine.models.infos):
                    raise ConfigError("the models were exchanged meanwhile: ask again")
                self._result = self._work(self._engine)
        # Kept for `result`: a tap that raises is not called again, so the end would never be seen.
        except MODEL_FAULTS as error:
            self._error = error
        finally:
            if ends(event):
                self._done.set()

    @property
    def place(self) -> int:
        """The place in the queue, 0 once it runs."""
        return self._run.place

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the end; returns whether it has ended."""
        return self._done.wait(timeout)

    def cancel(self) -> None:
        """Leaves the queue; work that has begun is finished first."""
        self._run.cancel()

    @property
    def result(self) -> T:
        """The result, after the end; raises the error of the work."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ConfigError("it was stopped before its turn came")
        return self._result
