"""Operations of a transformer layer in few torch calls.

A small model's pass spends more time on calls than on arithmetic.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

__all__ = [
    "FIRST_POSITIONS",
    "Norm",
    "Projection",
    "Rotation",
    "attend",
    "cos_sin_table",
    "grouped_attention",
    "rotate",
    "row_major",
]

# Elements of the largest LM head that `row_major` copies: 16 MiB in float32.
LARGEST_COPY = 1 << 22


class Projection:
    """`matrix` (inputs, outputs), `bias` (outputs) or None."""

    def __init__(self, matrix: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.matrix, self._bias = matrix, bias

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, inputs) times the matrix plus the bias: (n, outputs)."""
        if self._bias is None:
            return torch.mm(x, self.matrix)
        return torch.addmm(self._bias, x, self.matrix)

    def residual(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x + `times(y)`."""
        total = torch.addmm(x, y, self.matrix)
        return total if self._bias is None else total.add_(self._bias)


def row_major(head: torch.Tensor) -> torch.Tensor:
    """An LM head (..., inputs, outputs). A small head on a CPU in float32 or float64 is put in
    row-major order: products with few tokens are then faster."""
    faster = head.device.type == "cpu" and head.dtype in (torch.float32, torch.float64)
    return head.contiguous() if faster and head.numel() <= LARGEST_COPY else head


class Norm:
    """x -> weight x / sqrt(mean(x^2) + eps) over the last dimension.

    float32 and float64 use the vector norm. Half precision uses `F.rms_norm`, which sums in
    float32.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps
        size = weight.shape[-1]
        self._by_vector_norm = weight.dtype in (torch.float32, torch.float64)
        self._scaled = weight * size**0.5
        # hypot(|x|, sqrt(size eps)) = sqrt(size) sqrt(mean(x^2) + eps); sqrt(size) is in `_scaled`.
        self._floor = torch.tensor((size * eps) ** 0.5, dtype=weight.dtype, device=weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self._by_vector_norm:
            return F.rms_norm(x, x.shape[-1:], None, self._eps) * self._weight
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.mul(x, self._scaled).div_(torch.hypot(length, self._floor))


FIRST_POSITIONS = 1024
"""Positions of a new rotary table."""


class Rotation:
    """Rotary embedding. `inverse`: frequencies (head size / 2,), float32; cosines and sines are
    multiplied by `scale` and stored as `dtype`."""

    def __init__(self, inverse: torch.Tensor, scale: float, dtype: torch.dtype) -> None:
        self._inverse, self._scale, self._dtype = inverse, scale, dtype
        self._cos, self._sin = self._table(FIRST_POSITIONS)

    def reach(self, position: int) -> None:
        """Grows the table, if needed, to hold a position; a grown table is a new tensor."""
        if position >= len(self._cos):
            self._cos, self._sin = self._table(max(position + 1, 2 * len(self._cos)))

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines (n, 1, head size) of positions (n,)."""
        return self._cos[positions], self._sin[positions]

    def _table(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = cos_sin_table(self._inverse, self._scale, positions)
        return cos[:, None].to(self._dtype), sin[:, None].to(self._dtype)


def cos_sin_table(
    inverse: torch.Tensor, scale: float, positions: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines (positions, head size) in float32. The first half of the sines is negated:
    a rotation is x cos + roll(x, head size / 2) sin."""
    # In float32 whatever the model's dtype: bfloat16 rounds positions above 256.
    angles = torch.outer(torch.arange(positions, device=inverse.device).float(), inverse)
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(heads: torch.Tensor, cos_sin: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary embedding of heads (..., heads, head size)."""
    cos, sin = cos_sin
    # (a, b) -> (a cos - b sin, b cos + a sin) for the two halves of a head.
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attention of q (rows, heads, width, head size) over keys and values (rows, KV heads, extent,
    head size), in the shape of q; `mask` (rows, 1, width, extent) is added to the scores."""
    is_grouped = q.shape[1] != keys.shape[1]
    if is_grouped and q.device.type == "cuda":
        return grouped_attention(q, keys, values, mask)
    return F.scaled_dot_product_attention(q, keys, values, mask, enable_gqa=is_grouped)


def grouped_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """`attend` for a GPU, where torch has no fused kernel for grouped queries with a mask. Query
    heads of one KV head become queries of that head."""
    rows, heads, width, size = q.shape
    kv_heads = keys.shape[1]
    # Query heads of one KV head are adjacent: (rows, KV heads, heads / KV heads x width, size).
    by_kv_head = q.reshape(rows, kv_heads, -1, size)
    if mask is not None:
        mask = mask.repeat(1, 1, heads // kv_heads, 1)
    return F.scaled_dot_product_attention(by_kv_head, keys, values, mask).reshape(q.shape)
