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
        self._marks: list[Any] = []

    def mark(self) -> None:
        """A step ends here, and the next begins."""
        if self._cuda is None:
            self._marks.append(time.perf_counter())
            return
        event = self._cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def times(self) -> list[float]:
        """Of each mark, in seconds of time.perf_counter. On CUDA the last mark was just now, and
        the others as long before as the device says."""
        if self._cuda is None:
            return self._marks
        now, last = time.perf_counter(), self._marks[-1]
        return [now - mark.elapsed_time(last) / 1000 for mark in self._marks]
