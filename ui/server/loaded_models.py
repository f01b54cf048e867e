"""Loaded models with their worker, and the number of runs that use them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from core.config import Request
from core.engine.snapshot import Snapshot
from core.events import Event, RanksInfo
from ui.run.source import RunLike, ends
from ui.server.model_swap import ModelPair

__all__ = ["ServedModels", "WorkerLike"]

Tap = Callable[[Event], None]


class WorkerLike(Protocol):
    """The part of core.engine.worker.Worker that the page uses."""

    engine: Any

    def submit(self, request: Request, tap: Tap | None = None) -> RunLike: ...
    def check(self, request: Request) -> None: ...
    def chat_tokens(self, messages: tuple[Mapping[str, str], ...]) -> tuple[int, ...]: ...
    def waiting(self) -> int: ...
    def snapshot(self) -> Snapshot: ...
    def close(self) -> None: ...


class ServedModels:
    """A worker and the number of runs that use it."""

    def __init__(self, worker: WorkerLike, pair: ModelPair) -> None:
        models = worker.engine.models
        tokenizer = getattr(models, "tokenizer", None)
        self.worker, self.pair = worker, pair
        self.infos = tuple(models.infos)
        self.drafter_names = tuple(models.drafter_names)
        self.user_drafters = tuple(getattr(models, "user_drafters", ()))
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        self.ranks: RanksInfo | None = getattr(getattr(models, "llm", None), "ranks", None)
        self.can_stream = bool(getattr(worker.engine, "can_stream", True))
        self.runs = 0
        self._retired = False
        self._changed = threading.Condition()

    def enter(self) -> bool:
        """Counts one more run; after `retire` counts nothing and returns False."""
        with self._changed:
            self.runs += not self._retired
            return not self._retired

    def leave(self) -> None:
        """Counts one run less."""
        with self._changed:
            self.runs -= 1
            self._changed.notify_all()

    def retire(self) -> None:
        """Refuses further runs."""
        with self._changed:
            self._retired = True

    def wait_empty(self) -> None:
        """Returns once no run uses the models."""
        with self._changed:
            self._changed.wait_for(lambda: not self.runs)

    def submit(self, request: Request, tap: Tap | None) -> RunLike:
        """Queues a request; call `enter` first. Calls `leave` at the run's last event, or at once
        if `tap` or the worker's `submit` raises."""
        try:
            return self.worker.submit(request, self._counting_tap(tap))
        # After any error no last event comes, so `leave` is called here.
        except BaseException:
            self.leave()
            raise

    def _counting_tap(self, tap: Tap | None) -> Tap:
        def forward(event: Event) -> None:
            failed = True
            try:
                if tap is not None:
                    tap(event)
                failed = False
            finally:
                # A tap that raises is not called again, so it would miss the run's last event.
                if ends(event) or failed:
                    self.leave()

        return forward
