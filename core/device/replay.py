"""Replay: work over tensors that stay where they are, captured as a CUDA graph once it recurs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

__all__ = ["Pool", "Replay"]

T = TypeVar("T")


class Pool:
    """What the replays of one place share: whether they capture, and the memory of their graphs.
    They are never replayed at once."""

    def __init__(self, *, capture: bool) -> None:
        self.captures = capture
        self.memory: Any = None


class Replay(Generic[T]):
    """`work` runs exactly once a call, so it may change what it reads.

    The first call runs it as it is, which warms it up; the second captures it where the pool does;
    from then on it is replayed, and what it gives are the same tensors each time. What cannot be
    captured goes on running as it is: slower, not wrong.
    """

    def __init__(self, work: Callable[[], T], pool: Pool) -> None:
        self._work, self._pool = work, pool
        self._warm = False
        self._captured: tuple[Any, T] | None = None

    @property
    def captured(self) -> bool:
        """Whether it is replayed: then what it gives is overwritten by the next call."""
        return self._captured is not None

    def __call__(self) -> T:
        if self._captured is None and self._warm and self._pool.captures:
            try:
                self._captured = self._capture()
            except RuntimeError:  # this device or driver captures no such work
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
        # Another thread may draft meanwhile: what it asks of the device is no part of this.
        with cuda.graph(graph, pool=self._pool.memory, capture_error_mode="thread_local"):
            found = self._work()
        self._pool.memory = self._pool.memory or graph.pool()
        return graph, found
