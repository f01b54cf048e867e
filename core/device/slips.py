"""What a pass is told and tells, each in one copy between the host and where the pass runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Landing", "Numbers", "Slip", "flat", "real"]

Numbers = npt.NDArray[Any]


class Slip:
    """Named whole numbers of fixed shapes: `host[name]` is written, `here[name]` read by the pass
    once it was sent. Real numbers go by their bits, see `reals`."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device) -> None:
        size = sum(prod(shape) for shape in shapes.values())
        self._cuda = device.type == "cuda"
        self._from = torch.zeros(size, dtype=torch.long, pin_memory=self._cuda)
        self._to = torch.zeros(size, dtype=torch.long, device=device) if self._cuda else self._from
        self._sent: Any = None
        self.host: dict[str, Numbers] = {}
        self.here: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape in shapes.items():
            end = start + prod(shape)
            self.host[name] = self._from[start:end].view(shape).numpy()
            self.here[name] = self._to[start:end].view(shape)
            start = end

    def reals(self, name: str) -> torch.Tensor:
        """What was written by its bits, float64."""
        return self.here[name].view(torch.float64)

    def ready(self) -> None:
        """Waits until what was written last is on its way no more: only then write again."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self) -> None:
        """Copies everything to where it is read."""
        if self._cuda:
            self._to.copy_(self._from, non_blocking=True)
            cuda: Any = torch.cuda
            self._sent = self._sent or cuda.Event()
            self._sent.record()


def flat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tensors of whole numbers and reals behind one another, (n,) int64; reals by their bits."""
    return torch.cat([_whole(part).flatten() for part in parts])


def _whole(part: torch.Tensor) -> torch.Tensor:
    if part.is_floating_point():
        return part.double().contiguous().view(torch.long)
    return part.long()


class Landing:
    """Where what a pass tells lands on the host, in the one copy that is waited for."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._here = torch.zeros(0, dtype=torch.long)

    def read(self, told: torch.Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Numbers]:
        """What was made `flat`, by name; int64, reals by their bits (`real`)."""
        if self._cuda:
            if len(self._here) != len(told):
                self._here = torch.zeros(len(told), dtype=torch.long, pin_memory=True)
            self._here.copy_(told, non_blocking=True)
            cuda: Any = torch.cuda
            cuda.current_stream(told.device).synchronize()
            told = self._here.clone()
        numbers, found, start = told.numpy(), {}, 0
        for name, shape in shapes.items():
            end = start + prod(shape)
            found[name] = numbers[start:end].reshape(shape)
            start = end
        return found


def real(numbers: Numbers) -> npt.NDArray[np.float64]:
    """Reals from their bits."""
    return np.ascontiguousarray(numbers).view(np.float64)
