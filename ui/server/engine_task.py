"""Runs a function in the engine's thread between two rounds, where it may use the engine's models.

A request for one token is queued, and the function is called at the request's RunStarted."""

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
    """Queues `work`, which is called with the engine. Raises what `ModelHost.submit` raises."""

    def __init__(self, host: ModelHost, work: Callable[[Any], T], prompt_ids: tuple[int, ...]):
        self._engine, self._work = host.worker.engine, work
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        plain = replace(SpeculationConfig.preset("autoregressive"), record_top_k=0)
        one_token = SamplingParams(max_new_tokens=1)
        # A request needs at least one prompt token.
        request = Request("aside", one_token, plain, prompt_token_ids=prompt_ids[-1:])
        self._run = host.submit(request, self._take)

    def _take(self, event: Event) -> None:
        try:
            if isinstance(event, RunStarted):
                # If models were swapped between `host.worker` and `submit`, the request runs on
                # other models.
                if event.models != tuple(self._engine.models.infos):
                    raise ConfigError("the models were exchanged meanwhile: ask again")
                self._result = self._work(self._engine)
        # `result` raises the error: after an error `_take` would not be called again, and would
        # miss the request's end.
        except MODEL_FAULTS as error:
            self._error = error
        finally:
            if ends(event):
                self._done.set()

    @property
    def place(self) -> int:
        """The request's place in the queue, 0 once it runs."""
        return self._run.place

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds; returns whether the request has ended."""
        return self._done.wait(timeout)

    def cancel(self) -> None:
        """Cancels the request. A call of `work` that has begun is finished."""
        self._run.cancel()

    @property
    def result(self) -> T:
        """What `work` returned; valid once the request has ended. Raises what `work` raised,
        and ConfigError if the models were swapped or `work` was not called."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ConfigError("it was stopped before its turn came")
        return self._result
