"""CachedGraph: a function of fixed shapes on a GPU, captured once as a CUDA graph and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

__all__ = ["MAX_GRAPHS", "CachedGraph", "GraphPool"]

# The most graphs in a caller's cache. A full cache is cleared: the keys contain text lengths, and a
# growing text never returns to a shorter length.
MAX_GRAPHS = 48

T = TypeVar("T")


class GraphPool:
    """Memory shared by graphs that never run at the same time. `captures`: whether new graphs may
    be captured."""

    def __init__(self, *, capture: bool) -> None:
        self.captures = capture
        # Never dropped: the pool's memory is released with its last graph, and a capture into
        # released memory fails.
        self._first: Any = None

    def capture(self, work: Callable[[], T]) -> tuple[Any, T]:
        """A graph of `work` and the tensors that each replay overwrites."""
        cuda: Any = torch.cuda
        graph = cuda.CUDAGraph()
        memory = None if self._first is None else self._first.pool()
        # Thread-local: another thread may be drafting on the device.
        with cuda.graph(graph, pool=memory, capture_error_mode="thread_local"):
            output = work()
        self._first = self._first or graph
        return graph, output

    def disable(self, error: RuntimeError) -> None:
        """Ends capturing; warns with the error's first line."""
        self.captures = False
        reason = (str(error).splitlines() or [repr(error)])[0]
        warnings.warn(f"CUDA graphs are off, rounds are slower: {reason}", stacklevel=3)


class CachedGraph(Generic[T]):
    """`work`, captured as a CUDA graph. Each call runs `work` on the device exactly once: `work`
    may change its own inputs.

    The first call is an eager warm-up. All replays return the same tensors: a replay overwrites the
    results of the replay before.
    """

    def __init__(self, work: Callable[[], T], pool: GraphPool) -> None:
        self._work, self._pool = work, pool
        self._warm = False
        self._captured: tuple[Any, T] | None = None

    @property
    def is_captured(self) -> bool:
        """Whether calls are replays."""
        return self._captured is not None

    def __call__(self) -> T:
        if self._captured is None and self._warm and self._pool.captures:
            try:
                self._captured = self._pool.capture(self._work)
            except torch.cuda.OutOfMemoryError:
                pass  # tried again at the next call, when there may be memory
            except RuntimeError as error:  # the device or driver cannot capture it
                self._pool.disable(error)
        self._warm = True
        if self._captured is None:
            return self._work()
        graph, output = self._captured
        graph.replay()
        return output
