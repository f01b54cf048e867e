"""Hosts the loaded models and swaps them while the server runs.

A new pair (an LLM and its SSMs) is loaded while the old pair serves. New runs use the new pair once
it is loaded; the old pair is closed when its last run ends. If loading fails, nothing changes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.config import Request
from core.config.mechanisms import MODEL_FREE
from core.errors import EXPECTED_ERRORS, ConfigError, EngineClosedError, SpecScopeError
from core.events import Event, ModelInfo, RanksInfo
from core.models.loading.progress import StageLines
from ui.run.source import RunLike
from ui.server.loaded_models import ServedModels, WorkerLike
from ui.server.model_swap import CANCELLED, ModelPair, ModelSwap, Say

__all__ = ["Load", "ModelHost"]

NO_LOADER = "models cannot be exchanged on this page: it was opened without a loader"

Load = Callable[[ModelPair, Say], WorkerLike]
"""Makes a worker from a pair, and reports progress to the second argument. Stops if a report
raises."""


class _Cancelled(SpecScopeError):
    """Raised to cancel a loading."""


class ModelHost:
    """Holds the loaded models. Without `load` the models cannot be swapped."""

    def __init__(
        self, worker: WorkerLike, load: Load | None = None, pair: ModelPair | None = None
    ) -> None:
        self._load = load
        self._served = ServedModels(worker, pair or ModelPair())
        self._leaving: list[ServedModels] = []
        self._past_drafters: frozenset[str] = frozenset()
        self._swap = ModelSwap()
        self._version = 0
        self._num_begun = 0
        # `_chosen_schedule` is restored when the last temporary schedule ends.
        self._num_in_use = {"schedule": 0, "slowing": 0}
        self._chosen_schedule = self.schedule
        # Reentrant by default: methods that hold the lock call `_set_swap`, which takes it again.
        self._changed = threading.Condition()
        self._closed = False

    @classmethod
    def open(cls, load: Load, pair: ModelPair) -> ModelHost:
        """A host with its first pair loaded; raises what `load` raises."""
        return cls(load(pair, StageLines(sys.stderr)), load, pair)

    @property
    def can_load(self) -> bool:
        """Whether the models can be swapped."""
        return self._load is not None

    # -- the loaded models --

    @property
    def worker(self) -> WorkerLike:
        """The worker for new runs. Prefer `submit`, which is safe during a swap."""
        return self._served.worker

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """The loaded models, the LLM first."""
        return self._served.infos

    @property
    def ranks(self) -> RanksInfo | None:
        """How the LLM is divided among processes; None if it is in one process."""
        return self._served.ranks

    @property
    def drafter_names(self) -> tuple[str, ...]:
        return self._served.drafter_names

    @property
    def user_drafters(self) -> tuple[str, ...]:
        return self._served.user_drafters

    @property
    def chat(self) -> bool:
        """Whether the LLM has a chat template."""
        return self._served.chat

    @property
    def pair(self) -> ModelPair:
        """The models as they were requested."""
        return self._served.pair

    @property
    def version(self) -> int:
        """The number of completed swaps."""
        return self._version

    @property
    def num_begun(self) -> int:
        """The number of requests queued and loadings begun so far."""
        return self._num_begun

    @property
    def schedule(self) -> str:
        """The name of the schedule. A swap does not change it."""
        return str(self._served.worker.engine.schedule)

    @schedule.setter
    def schedule(self, name: str) -> None:
        with self._changed:
            for served in (self._served, *self._leaving):
                served.worker.engine.schedule = name
            self._chosen_schedule = name

    @contextmanager
    def temporary_schedule(self, name: str) -> Iterator[None]:
        """Sets a schedule until the last of overlapping temporary schedules ends. Raises
        ConfigError for an unknown name."""

        def restore(engine: Any) -> None:
            engine.schedule = self._chosen_schedule

        with self._until_last_ends("schedule", restore):
            with self._changed:
                self._served.worker.engine.schedule = name
            yield

    @property
    def can_stream(self) -> bool:
        """Whether `Engine.stream_mbps` may be set."""
        return self._served.can_stream

    @contextmanager
    def temporary_slowing(self, stream_mbps: float, wire_ms: float) -> Iterator[None]:
        """Sets `Engine.stream_mbps` and `Engine.wire_ms`, each unless 0, until the last of
        overlapping slowings ends."""

        def restore(engine: Any) -> None:
            engine.stream_mbps = engine.wire_ms = 0.0

        with self._until_last_ends("slowing", restore):
            with self._changed:
                engine = self._served.worker.engine
                if stream_mbps:
                    engine.stream_mbps = stream_mbps
                if wire_ms:
                    engine.wire_ms = wire_ms
            yield

    @contextmanager
    def _until_last_ends(self, kind: str, restore: Callable[[Any], None]) -> Iterator[None]:
        """Calls `restore` with every engine when the last of overlapping uses of this kind ends."""
        with self._changed:
            self._num_in_use[kind] += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_in_use[kind] -= 1
                if not self._num_in_use[kind]:
                    for served in (self._served, *self._leaving):
                        restore(served.worker.engine)

    def names(self) -> tuple[str, ...]:
        """The models' names, the LLM's first."""
        return tuple(info.name for info in self._served.infos)

    def submit(self, request: Request, tap: Callable[[Event], None] | None = None) -> RunLike:
        """Queues a request on the loaded models, which stay loaded until the request has ended.
        Raises what the worker raises, ConfigError for a drafter of models that were swapped out,
        and EngineClosedError after `close`."""
        # No lock is needed: `_replace` sets the new models before it retires the old models. The
        # current models are retired by `close` alone.
        while not (served := self._served).enter():
            if self._closed:
                raise EngineClosedError("worker is closed: no request is taken any more")
        run = served.submit(self._checked_request(request, served), tap)
        with self._changed:
            self._num_begun += 1
        return run

    def check(self, request: Request) -> None:
        """Raises what the worker would raise for this request; runs nothing."""
        self._served.worker.check(request)

    def _checked_request(self, request: Request, served: ServedModels) -> Request:
        allowed = ("all", "first", *MODEL_FREE, *served.user_drafters, *served.drafter_names)
        gone = [name for name in request.speculation.drafters if name not in allowed]
        if any(name in self._past_drafters for name in gone):
            # `enter` has counted this request, which is not submitted.
            served.leave()
            raise ConfigError.of(
                "drafters",
                request.speculation.drafters,
                "the models were exchanged since this page was opened: reload it, and it offers "
                f"{', '.join(allowed)}",
            )
        return request

    # -- another pair --

    @property
    def swap(self) -> ModelSwap:
        """The state of the latest swap; a new object after each change."""
        return self._swap

    def runs_on_old_models(self) -> int:
        """The number of runs that still use models that were swapped out."""
        return sum(served.runs for served in self._leaving)

    def busy(self) -> int:
        """The number of runs that are waiting or running, on old models too."""
        return self._served.runs + self.runs_on_old_models()

    def begin(self, pair: ModelPair) -> None:
        """Loads another pair in a thread while the present pair serves. An error of loading is
        stored in `swap`. Raises ConfigError without a loader or while another pair is being loaded,
        EngineClosedError after `close`."""
        if self._load is None:
            raise ConfigError(NO_LOADER)
        with self._changed:
            if self._closed:
                raise EngineClosedError("worker is closed: no models are loaded any more")
            if self._swap.is_loading:
                raise ConfigError(
                    "another pair is being loaded: wait until it is loaded, or cancel that first"
                )
            self._set_swap(ModelSwap.of(pair))
            self._num_begun += 1
        threading.Thread(target=self._run, args=(pair,), name="swap", daemon=True).start()

    def cancel(self) -> None:
        """Cancels a loading; no effect if nothing is being loaded."""
        with self._changed:
            if self._swap.is_loading:
                self._set_swap(self._swap.with_cancel_requested())

    def wait(self, swap: ModelSwap, timeout: float) -> None:
        """Returns once `self.swap` is another object than `swap`, at the latest after `timeout`
        seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._swap is not swap, timeout)

    def close(self) -> None:
        """Cancels a loading, stops every run and closes the workers. Idempotent."""
        self.cancel()
        with self._changed:
            self._closed = True
            # The list is complete: after `_closed`, `begin` and `_replace` add no further models.
            all_served = [*self._leaving, self._served]
        for served in all_served:
            served.retire()
            served.worker.close()

    # -- the thread of a swap --

    def _run(self, pair: ModelPair) -> None:
        old, reason = None, ""
        try:
            assert self._load is not None
            old = self._replace(ServedModels(self._load(pair, self._say), pair))
        except _Cancelled:
            reason = CANCELLED
        except EXPECTED_ERRORS as error:
            # The text alone is kept: the error's traceback would keep the half-loaded models in
            # memory.
            reason = str(error) or type(error).__name__
        finally:
            reason = reason or _internal_error(sys.exception())
            with self._changed:
                self._set_swap(self._swap.end_with(reason, time.monotonic()))
            _free_memory()
        if old is not None:
            self._close_old(old)
            # The last reference to the old models would keep them in memory.
            del old
            _free_memory()

    def _say(self, stage: str) -> None:
        with self._changed:
            # A cancelled loading ends at a report, or in `_replace`.
            if self._swap.cancel_requested or self._closed:
                raise _Cancelled(CANCELLED)
            self._set_swap(self._swap.at(stage, time.monotonic()))

    def _replace(self, new: ServedModels) -> ServedModels:
        """Makes the new models current and returns the old models."""
        with self._changed:
            cancelled = self._swap.cancel_requested or self._closed
            if not cancelled:
                old, self._served = self._served, new
                new.worker.engine.schedule = old.worker.engine.schedule
                # The names of earlier SSMs stay refused, unless they are loaded again.
                self._past_drafters = (self._past_drafters | {*old.drafter_names}) - {
                    *new.drafter_names
                }
                self._leaving.append(old)
                self._version += 1
                old.retire()
        # Outside the lock: closing may take long.
        if cancelled:
            new.worker.close()
            raise _Cancelled(CANCELLED)
        return old

    def _close_old(self, old: ServedModels) -> None:
        old.wait_empty()
        old.worker.close()
        with self._changed:
            self._leaving.remove(old)

    def _set_swap(self, swap: ModelSwap) -> None:
        with self._changed:
            self._swap = swap
            self._changed.notify_all()


def _internal_error(error: BaseException | None) -> str:
    return f"internal error ({type(error).__name__}): {error}" if error else ""


def _free_memory() -> None:
    from core.models.machine import release_memory

    release_memory()
