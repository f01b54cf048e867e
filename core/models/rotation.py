"""Rotation: rotary position embeddings from a table that grows as texts do."""

from __future__ import annotations

import torch

__all__ = ["FIRST_POSITIONS", "Rotation", "rotated", "table"]

FIRST_POSITIONS = 1024


class Rotation:
    """`inverse` frequencies (head size / 2) in float32, everything times `scale`, as `dtype`."""

    def __init__(self, inverse: torch.Tensor, scale: float, dtype: torch.dtype) -> None:
        self._inverse, self._scale, self._dtype = inverse, scale, dtype
        self._cos, self._sin = self._table(FIRST_POSITIONS)

    def reach(self, position: int) -> None:
        """Makes sure that the table holds a position; a table that grew lies elsewhere."""
        if position >= len(self._cos):
            self._cos, self._sin = self._table(max(position + 1, 2 * len(self._cos)))

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines (n, 1, head size) of positions (n,)."""
        return self._cos[positions], self._sin[positions]

    def _table(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = table(self._inverse, self._scale, positions)
        return cos[:, None].to(self._dtype), sin[:, None].to(self._dtype)


def table(inverse: torch.Tensor, scale: float, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines (positions, head size) in float32; the sines' first half is negative, which
    is what the rotation of half a vector comes to when the vector is rolled by half its size."""
    angles = torch.outer(torch.arange(positions, device=inverse.device).float(), inverse)
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotated(heads: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Vectors (..., heads, head size), each turned by its position."""
    cos, sin = turn
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)
