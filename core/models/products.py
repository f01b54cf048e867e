"""Product: a matrix that tokens are multiplied by, the fastest way that this machine has for so
many of them.

On a CPU oneDNN multiplies a few tokens by a large matrix that was laid out for it beforehand in
half the time that a plain product takes, and on several cores by a small one too. One token on one
core is multiplied faster plainly.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Product", "laid_wide", "pack"]

# Tokens that the layout is chosen for: a tree of the size that is worth verifying on a CPU.
TOKENS = 16
# Entries from which one core gains by it: (512, 1024) took 0.75 of the time for four tokens, while
# the bundled LLM's passes, with (256, 1408) the largest of a layer, took as long as before.
LARGE = 1 << 19
# Entries of a head that is worth 16 MB.
LARGEST_COPY = 1 << 22


class Product:
    """`matrix` (inputs, outputs), `bias` (outputs) or None, and the matrix as `pack` lays it out
    or None."""

    def __init__(
        self, matrix: torch.Tensor, bias: torch.Tensor | None, packed: Any | None = None
    ) -> None:
        self.matrix, self._bias, self._packed = matrix, bias, packed
        alone = torch.get_num_threads() == 1 and matrix.is_contiguous()
        self._least = 2 if alone else 1

    @property
    def packed_bytes(self) -> int:
        """What the layout takes beside the matrix."""
        return 0 if self._packed is None else self.matrix.nbytes

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, inputs) times the matrix plus the bias: (n, outputs)."""
        if self._packed is not None and len(x) >= self._least:
            found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._packed, self._bias, "none", [], ""
            )
            return found
        if self._bias is None:
            return torch.mm(x, self.matrix)
        return torch.addmm(self._bias, x, self.matrix)

    def added(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x + `times(y)`."""
        if self._packed is not None and len(x) >= self._least:
            return self.times(y).add_(x)
        total = torch.addmm(x, y, self.matrix)
        return total if self._bias is None else total.add_(self._bias)


def laid_wide(head: torch.Tensor) -> torch.Tensor:
    """A head (..., inputs, outputs) whose rows lie one after another; a copy where it is the
    embedding, read the other way round, unless that is large, or this is no CPU's whole precision.
    Up to three tokens are multiplied in half the time."""
    plain = head.device.type == "cpu" and head.dtype in (torch.float32, torch.float64)
    return head.contiguous() if plain and head.numel() <= LARGEST_COPY else head


def pack(matrix: torch.Tensor) -> Any | None:
    """The matrix (inputs, outputs) as oneDNN wants it for a few tokens; None where that gains
    nothing, or it is not at hand, or has nothing for this device or dtype."""
    if matrix.device.type != "cpu" or not torch._C._has_mkldnn:
        return None
    if matrix.numel() < LARGE and torch.get_num_threads() == 1:
        return None
    if matrix.dtype not in (torch.float32, torch.bfloat16):
        return None
    try:
        if matrix.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return None
        return torch.ops.mkldnn._reorder_linear_weight(matrix.t().contiguous(), TOKENS)
    except (AttributeError, RuntimeError):  # another torch may call it otherwise, or lack it
        return None
