"""Product: a matrix that tokens are multiplied by, with its bias, in the fewest calls."""

from __future__ import annotations

import torch

__all__ = ["Product", "laid_wide"]

# Entries of a head that is worth 16 MB.
LARGEST_COPY = 1 << 22


class Product:
    """`matrix` (inputs, outputs), `bias` (outputs) or None."""

    def __init__(self, matrix: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.matrix, self._bias = matrix, bias

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, inputs) times the matrix plus the bias: (n, outputs)."""
        if self._bias is None:
            return torch.mm(x, self.matrix)
        return torch.addmm(self._bias, x, self.matrix)

    def added(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x + `times(y)`."""
        total = torch.addmm(x, y, self.matrix)
        return total if self._bias is None else total.add_(self._bias)


def laid_wide(head: torch.Tensor) -> torch.Tensor:
    """A head (..., inputs, outputs) whose rows lie one after another; a copy where it is the
    embedding, read the other way round, unless that is large, or this is no CPU's whole precision.
    Up to three tokens are multiplied in half the time."""
    plain = head.device.type == "cpu" and head.dtype in (torch.float32, torch.float64)
    return head.contiguous() if plain and head.numel() <= LARGEST_COPY else head
