"""Clock: when the steps of work that nobody waits for began and ended."""

from __future__ import annotations

import time
from typing import Any

import torch

__all__ = ["Clock"]


class Clock:
    """`mark` between steps, `times` once the last of them is known to be done."""

    def __init__(self, device: torch.device) -> None:
        self._cuda: Any = torch.cuda if device.type == "cuda" else None
        self._marks: list[float] = []
        self._events: list[Any] = []

    def mark(self) -> None:
        """A step ends here, and the next begins."""
        self._marks.append(time.perf_counter())
        if self._cuda is not None:
            self._events.append(self._cuda.Event(enable_timing=True))
            self._events[-1].record()

    def times(self) -> list[float]:
        """Of each mark, in seconds of time.perf_counter. On CUDA the device says how long steps
        took; the first is taken to begin when it was asked for, with nothing before it."""
        if self._cuda is None:
            return self._marks
        first = self._events[0]
        return [self._marks[0] + first.elapsed_time(event) / 1000 for event in self._events]
