"""CachedGraph: work over tensors at fixed addresses, captured as a CUDA graph once it recurs.
DeviceClock: when the steps of asynchronous work began and ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

__all__ = ["CachedGraph", "DeviceClock", "GraphPool"]

T = TypeVar("T")


class GraphPool:
    """Shared by graphs that never run at the same time: their memory, and whether to capture."""

    def __init__(self, *, capture: bool) -> None:
        self.captures = capture
        self.memory: Any = None


class CachedGraph(Generic[T]):
    """Each call runs `work` exactly once, so it may change its own inputs.

    The first call runs it eagerly, as a warm-up. The second captures it, if the pool captures; from
    then on it is replayed and returns the same tensors every time. Work that cannot be captured
    stays eager: slower, not wrong.
    """

    def __init__(self, work: Callable[[], T], pool: GraphPool) -> None:
        self._work, self._pool = work, pool
        self._warm = False
        self._captured: tuple[Any, T] | None = None

    @property
    def captured(self) -> bool:
        """Whether calls are replays: then the next one overwrites the returned tensors."""
        return self._captured is not None

    def __call__(self) -> T:
        if self._captured is None and self._warm and self._pool.captures:
            try:
                self._captured = self._capture()
            except RuntimeError:  # this device or driver cannot capture it
                self._pool.captures = False
        self._warm = True
        if self._captured is None:
            return self._work()
        graph, found = self._captured
        graph.replay()
        return found

    def _capture(self) -> tuple[Any, T]:
        cuda: Any = torch.cuda
        graph = cuda.CUDAGraph()
        # Thread-local, because another thread may be drafting on the device meanwhile.
        with cuda.graph(graph, pool=self._pool.memory, capture_error_mode="thread_local"):
            found = self._work()
        self._pool.memory = self._pool.memory or graph.pool()
        return graph, found


class DeviceClock:
    """`mark` between steps, `times` once the last step is known to be done."""

    def __init__(self, device: torch.device) -> None:
        self._cuda: Any = torch.cuda if device.type == "cuda" else None
        self._marks: list[float] = []
        self._events: list[Any] = []

    def mark(self) -> None:
        """Ends a step and begins the next."""
        self._marks.append(time.perf_counter())
        if self._cuda is not None:
            self._events.append(self._cuda.Event(enable_timing=True))
            self._events[-1].record()

    def times(self) -> list[float]:
        """The time of each mark, in seconds of time.perf_counter. On CUDA the durations are the
        device's; the first step is assumed to start when it was enqueued."""
        if self._cuda is None:
            return self._marks
        first = self._events[0]
        return [self._marks[0] + first.elapsed_time(event) / 1000 for event in self._events]
