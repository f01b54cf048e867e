"""StackedForward: `core.models.lean.LeanForward` for several models (members) at once. The first
dimension of each weight is the member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.models.forward import Masks, Write, over_batch
from core.models.kv_cache import KVArena, LayerShape
from core.models.layer_ops import Norm, Rotation, attend, rotate
from core.models.lean import LeanLayer, LeanWeights
from core.models.rows import Batch

__all__ = ["StackedForward"]


@dataclass(frozen=True, slots=True)
class _Norms:
    """The norms of one layer: before attention, of query and key heads (or None), and before the
    MLP."""

    attention: Norm
    q: Norm | None
    k: Norm | None
    mlp: Norm


def _norms(layer: LeanLayer, eps: float) -> _Norms:
    # Weights (members, 1, hidden) broadcast over (members, tokens, hidden), and (members, 1, 1,
    # head size) over (members, tokens, heads, head size).
    return _Norms(
        attention=Norm(layer.input_norm[:, None], eps),
        q=None if layer.q_norm is None else Norm(layer.q_norm[:, None, None], eps),
        k=None if layer.k_norm is None else Norm(layer.k_norm[:, None, None], eps),
        mlp=Norm(layer.post_norm[:, None], eps),
    )


class StackedForward:
    """See `core.models.forward.TensorForward`. Row r of the batch belongs to member r
    modulo the number of members."""

    def __init__(self, weights: LeanWeights) -> None:
        self._weights = weights
        self._members = len(weights.embedding)
        self._norms = [_norms(layer, weights.eps) for layer in weights.layers]
        self._norm = Norm(weights.norm[:, None], weights.eps)
        self.device, self.dtype = weights.norm.device, weights.norm.dtype
        shape = LayerShape(weights.kv_heads, weights.head_size, weights.head_size)
        self.shapes: Sequence[LayerShape] = [shape] * len(weights.layers)
        self._rotation = Rotation(weights.inverse, weights.rope_scale, self.dtype)
        # (members, 1): each member's token 0 in the concatenated embeddings of all members.
        self._first = torch.arange(self._members, device=self.device)[:, None]
        self._first *= weights.embedding.shape[1]

    @property
    def weight_bytes(self) -> int:
        return self._weights.bytes

    def reach(self, position: int) -> None:
        self._rotation.reach(position)

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        return over_batch(self, batch, arena)

    def over(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        masks: Masks,
        write: Write,
        *,
        last_only: bool = False,
    ) -> torch.Tensor:
        w, members = self._weights, self._members
        rows, width = tokens.shape
        hidden = w.embedding.shape[2]
        cos, sin = (
            self._by_member(part.view(rows, width, 1, -1))
            for part in self._rotation.at(positions.reshape(-1))
        )
        # (members, tokens of a member, hidden).
        x = w.embedding.view(-1, hidden)[self._by_member(tokens) + self._first]
        for i, (layer, norms) in enumerate(zip(w.layers, self._norms, strict=True)):
            # Attention is by row: rows have separate KV slots.
            q, k, v = (self._by_row(p, rows) for p in self._heads(layer, norms, x, (cos, sin)))
            keys, values = write(i, k, v)
            # Models with a sliding window are not stacked (`stacking.are_stackable`).
            attention = attend(q, keys, values, masks[0])
            attention = self._by_member(attention.transpose(1, 2)).reshape(members, x.shape[1], -1)
            x = _residual(x, attention, layer.out, layer.out_bias)
            h = _matmul(norms.mlp(x), layer.gate_up, layer.gate_up_bias)
            gate, up = h.chunk(2, -1)
            x = _residual(x, F.silu(gate).mul_(up), layer.down, layer.down_bias)
        if last_only:
            x = x.view(members, -1, width, hidden)[:, :, -1]
        # (members, tokens, V), then back to the order of rows.
        logits = torch.bmm(self._norm(x), w.head)
        vocab_size = logits.shape[-1]
        by_member = logits.view(members, rows // members, -1, vocab_size)
        return by_member.transpose(0, 1).reshape(rows, -1, vocab_size)

    def _heads(
        self,
        layer: LeanLayer,
        norms: _Norms,
        x: torch.Tensor,
        cos_sin: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries and keys, rotated by position, and values: (members, tokens, heads, head
        size)."""
        w = self._weights
        qkv = _matmul(norms.attention(x), layer.qkv, layer.qkv_bias)
        qkv = qkv.view(*x.shape[:2], -1, w.head_size)
        qk, v = qkv[:, :, : w.heads + w.kv_heads], qkv[:, :, w.heads + w.kv_heads :]
        if norms.q is not None and norms.k is not None:
            qk = torch.cat((norms.q(qk[:, :, : w.heads]), norms.k(qk[:, :, w.heads :])), 2)
        qk = rotate(qk, cos_sin)
        return qk[:, :, : w.heads], qk[:, :, w.heads :], v

    def _by_member(self, part: torch.Tensor) -> torch.Tensor:
        """(rows, width, ...) to (members, tokens, ...)."""
        _, width, *rest = part.shape
        by_row = part.reshape(-1, self._members, width, *rest)
        return by_row.transpose(0, 1).reshape(self._members, -1, *rest)

    def _by_row(self, part: torch.Tensor, rows: int) -> torch.Tensor:
        """(members, tokens, heads, size) to (rows, heads, width, size)."""
        members, tokens, heads, size = part.shape
        by_member = part.reshape(members, rows // members, -1, heads, size)
        return by_member.permute(1, 0, 3, 2, 4).reshape(rows, heads, -1, size)


def _matmul(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.bmm(x, matrix) if bias is None else torch.baddbmm(bias[:, None], x, matrix)


def _residual(
    x: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    total = torch.baddbmm(x, y, matrix)
    return total if bias is None else total.add_(bias[:, None])
