"""Staging buffers: all inputs of a pass in one copy to the device, all results in one copy back.

Every value is an int64 in a buffer of fixed shape; a real number is stored as the bits of a
float64.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = [
    "DeviceClock",
    "DeviceToHost",
    "HostToDevice",
    "IntArray",
    "as_reals",
    "pack",
]

IntArray = npt.NDArray[Any]


class HostToDevice:
    """Named int64 inputs: write `host[name]`, then `send`; the pass reads `device[name]`."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device) -> None:
        size = sum(prod(shape) for shape in shapes.values())
        self._cuda = device.type == "cuda"
        # Pinned: the copy does not block the host. On a CPU both sides are one tensor.
        self._from = torch.zeros(size, dtype=torch.long, pin_memory=self._cuda)
        self._to = torch.zeros(size, dtype=torch.long, device=device) if self._cuda else self._from
        self._sent: Any = None
        self.host: dict[str, IntArray] = {}
        self.device: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape in shapes.items():
            end = start + prod(shape)
            self.host[name] = self._from[start:end].view(shape).numpy()
            self.device[name] = self._to[start:end].view(shape)
            start = end

    def reals(self, name: str) -> torch.Tensor:
        """The input `name` on the device, with its bits read as float64."""
        return self.device[name].view(torch.float64)

    def wait(self) -> None:
        """Waits for the last copy to finish; only then may `host` be written again."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self) -> None:
        """Starts the copy to the device."""
        if self._cuda:
            self._to.copy_(self._from, non_blocking=True)
            cuda: Any = torch.cuda
            self._sent = self._sent or cuda.Event()
            self._sent.record()


def pack(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Integer and real tensors concatenated as int64 (n,), to be read by `DeviceToHost`."""
    return torch.cat([_as_int64(part).flatten() for part in parts])


def _as_int64(part: torch.Tensor) -> torch.Tensor:
    if part.is_floating_point():
        # float32 is exact in float64, whose 64 bits fit an int64.
        return part.double().contiguous().view(torch.long)
    return part.long()


class DeviceToHost:
    """Reads packed results in one copy."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._buffer = torch.zeros(0, dtype=torch.long)

    def read(
        self, packed: torch.Tensor, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, IntArray]:
        """The packed parts by name. See `as_reals` for real numbers."""
        if self._cuda:
            if len(self._buffer) != len(packed):
                self._buffer = torch.zeros(len(packed), dtype=torch.long, pin_memory=True)
            self._buffer.copy_(packed, non_blocking=True)
            cuda: Any = torch.cuda
            cuda.current_stream(packed.device).synchronize()
            packed = self._buffer.clone()  # the next read overwrites the buffer
        numbers, arrays, start = packed.numpy(), {}, 0
        for name, shape in shapes.items():
            end = start + prod(shape)
            arrays[name] = numbers[start:end].reshape(shape)
            start = end
        return arrays


def as_reals(numbers: IntArray) -> npt.NDArray[np.float64]:
    """Real numbers from their bits."""
    return np.ascontiguousarray(numbers).view(np.float64)


class DeviceClock:
    """Times the steps of a device. Call `mark` before the first step and after each step; call
    `times` once the last step is known to be done."""

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
        """The time of each mark, in seconds of time.perf_counter."""
        if self._cuda is None:
            return self._marks
        # The first step is assumed to start when it was enqueued.
        first = self._events[0]
        return [self._marks[0] + first.elapsed_time(event) / 1000 for event in self._events]
