"""Stand: one worker with its models, and how many runs still need it. Knows no exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from core.config import Request
from core.events import Event
from ui.run.source import RunLike, ends
from ui.server.model_swap import ModelPair

__all__ = ["ServedModels", "WorkerLike"]

Tap = Callable[[Event], None]


class WorkerLike(Protocol):
    """What is needed of core.engine.worker.Worker."""

    engine: Any

    def submit(self, request: Request, tap: Tap | None = None) -> RunLike: ...
    def check(self, request: Request) -> None: ...
    def waiting(self) -> int: ...
    def close(self) -> None: ...


class ServedModels:
    """Whoever submits enters first; once it retires nobody enters any more."""

    def __init__(self, worker: WorkerLike, pair: ModelPair) -> None:
        models = worker.engine.models
        tokenizer = getattr(models, "tokenizer", None)
        self.worker, self.pair = worker, pair
        self.infos = tuple(models.infos)
        self.drafter_names = tuple(models.drafter_names)
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        self.runs = 0
        self._retired = False
        self._news = threading.Condition()

    def enter(self) -> bool:
        """Count one run more; False where it has retired."""
        with self._news:
            self.runs += not self._retired
            return not self._retired

    def leave(self) -> None:
        """A run has ended, or never began."""
        with self._news:
            self.runs -= 1
            self._news.notify_all()

    def retire(self) -> None:
        """Let nobody enter any more."""
        with self._news:
            self._retired = True

    def wait_empty(self) -> None:
        """Return when the last run has ended."""
        with self._news:
            self._news.wait_for(lambda: not self.runs)

    def submit(self, request: Request, tap: Tap | None) -> RunLike:
        """Queue the request of somebody who has entered; leaves with the run's last event."""
        try:
            return self.worker.submit(request, self._counted(tap))
        except BaseException:
            self.leave()
            raise

    def _counted(self, tap: Tap | None) -> Tap:
        def count(event: Event) -> None:
            heard = False
            try:
                if tap is not None:
                    tap(event)
                heard = True
            finally:
                # A tap that fails is not called again: its run has nobody who waits for it.
                if ends(event) or not heard:
                    self.leave()

        return count
