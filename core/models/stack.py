"""Stack: small models of one shape whose weights lie on one another, so that a pass of each is one
pass of all.

A small model's pass is mostly the time between its products; of several at once it is paid once.
Rows of the members lie beside one another in one arena: row r of member m is row r x members + m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F

from core.errors import SpecScopeError
from core.models.forward import additive
from core.models.hf_model import HfModel, feed_rows
from core.models.kv_cache import KVArena
from core.models.language_model import Feed, LanguageModel
from core.models.lean import LeanForward, LeanLayer, LeanWeights, joined
from core.models.norms import Norm
from core.models.products import laid_wide
from core.models.rows import Batch, batch_of

__all__ = ["Stack", "stack_alike", "stack_of"]


def stack_alike(models: Sequence[LanguageModel]) -> None:
    """Lays those of the models on one another that are alike; nobody may use them meanwhile."""
    left = [model for model in models if isinstance(model, HfModel) and model.stack is None]
    while left:
        first, *others = left
        alike = [first, *(one for one in others if alike_models(first, one))]
        left = [one for one in others if one not in alike]
        stack_of(alike)


def alike_models(one: HfModel, other: HfModel) -> bool:
    """Whether the two can lie on one another."""
    ours, theirs = one.lean_weights, other.lean_weights
    if ours is None or theirs is None or one.masks.window or one.masks != other.masks:
        return False
    return _alike(ours, theirs)


def stack_of(models: Sequence[HfModel]) -> Stack | None:
    """Lays the models on one another, where they are alike in all but their weights; None where
    they are not. Each goes on working alone too."""
    if len(models) < 2 or not all(alike_models(models[0], one) for one in models):
        return None
    weights = joined([one.lean_weights for one in models if one.lean_weights], _laid)
    # Here, so that each member's own head is a part of it.
    return Stack(models, replace(weights, head=laid_wide(weights.head)))


class Stack:
    """`members` in a fixed order; `weights` are theirs with a first dimension more."""

    def __init__(self, members: Sequence[HfModel], weights: LeanWeights) -> None:
        self.members = tuple(members)
        self._forward = _StackedForward(weights, members[0])
        first = members[0]
        self.arena = KVArena(first.arena.shapes, first.dtype, first.device)
        for place, member in enumerate(members):
            member.join(self, self.arena, (place, len(members)), _member(weights, place))

    def fits(self, asked: Sequence[Sequence[Feed]]) -> bool:
        """Whether these feeds, of each member in order, can be one pass: as many of each, with room
        for all of them."""
        if len({len(feeds) for feeds in asked}) != 1:
            return False
        try:
            for member, feeds in zip(self.members, asked, strict=True):
                member.check(feeds)
        except SpecScopeError:
            return False
        return True

    @torch.inference_mode()
    def forward(self, asked: Sequence[Sequence[Feed]]) -> list[list[torch.Tensor]]:
        """One pass; see LanguageModel.forward, whose logits these are for each member."""
        entered = [m.enter(feeds) for m, feeds in zip(self.members, asked, strict=True)]
        # Members of one row are neighbours in the arena.
        order = [(b, m) for b in range(len(asked[0])) for m in range(len(asked))]
        feeds = [asked[m][b] for b, m in order]
        rows = [entered[m][b] for b, m in order]
        places = [self.members[m].place(asked[m][b].row) for b, m in order]
        batch = batch_of(feeds, rows, places, 0)
        held = max(member.rows_held for member in self.members)
        self.arena.reserve(held, batch.plan.extent)
        logits = self._forward.logits(batch, self.arena)
        found: list[list[torch.Tensor]] = [[] for _ in asked]
        for i, (_, m) in enumerate(order):
            found[m].append(logits[i, feed_rows(feeds[i])].float())
        return found


@dataclass(frozen=True, slots=True)
class _Norms:
    """Of one layer: before its attention, of its heads if it has those, and after."""

    before: Norm
    q: Norm | None
    k: Norm | None
    after: Norm


def _norms(layer: LeanLayer, eps: float) -> _Norms:
    return _Norms(
        before=Norm(layer.input_norm[:, None], eps),
        q=None if layer.q_norm is None else Norm(layer.q_norm[:, None, None], eps),
        k=None if layer.k_norm is None else Norm(layer.k_norm[:, None, None], eps),
        after=Norm(layer.post_norm[:, None], eps),
    )


class _StackedForward:
    """The lean pass with a first dimension more: the models."""

    def __init__(self, weights: LeanWeights, like: HfModel) -> None:
        self._weights = weights
        self._members = len(weights.embedding)
        self._turns = LeanForward(_member(weights, 0), like.masks)
        self._norms = [_norms(layer, weights.eps) for layer in weights.layers]
        self._norm = Norm(weights.norm[:, None], weights.eps)

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        """(rows, width, V) in the model's dtype, rows in the batch's order."""
        w, members = self._weights, self._members
        rows, width = batch.tokens.shape
        turn = self._turns.turn(batch.positions)
        cos, sin = (self._by_member(part.view(rows, width, 1, -1)) for part in turn)
        mask = None if batch.full.all() else additive(batch.full, w.norm.dtype, w.norm.device)
        tokens = self._by_member(torch.from_numpy(batch.tokens).to(w.norm.device))
        vocabulary, hidden = w.embedding.shape[1:]
        first = torch.arange(members, device=tokens.device)[:, None] * vocabulary
        x = w.embedding.reshape(-1, hidden)[tokens + first]
        for i, (layer, norms) in enumerate(zip(w.layers, self._norms, strict=True)):
            q, k, v = self._heads(layer, norms, x, (cos, sin))
            keys, values = arena.write(i, batch.plan, self._by_row(k, rows), self._by_row(v, rows))
            seen = F.scaled_dot_product_attention(
                self._by_row(q, rows), keys, values, mask, enable_gqa=w.heads != w.kv_heads
            )
            seen = self._by_member(seen.transpose(1, 2)).reshape(members, x.shape[1], -1)
            x = _added(x, seen, layer.out, layer.out_bias)
            h = _times(norms.after(x), layer.gate_up, layer.gate_up_bias)
            gate, up = h.chunk(2, -1)
            x = _added(x, F.silu(gate).mul_(up), layer.down, layer.down_bias)
        logits = torch.bmm(self._norm(x), w.head)
        return (
            logits.view(members, -1, width, vocabulary)
            .transpose(0, 1)
            .reshape(rows, width, vocabulary)
        )

    def _heads(
        self,
        layer: LeanLayer,
        norms: _Norms,
        x: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, (members, tokens, heads, head size), rotated by position."""
        w = self._weights
        qkv = _times(norms.before(x), layer.qkv, layer.qkv_bias)
        qkv = qkv.view(*x.shape[:2], -1, w.head_size)
        both, last = qkv[:, :, : w.heads + w.kv_heads], qkv[:, :, w.heads + w.kv_heads :]
        if norms.q is not None and norms.k is not None:
            q, k = norms.q(both[:, :, : w.heads]), norms.k(both[:, :, w.heads :])
            both = torch.cat((q, k), 2)
        cos, sin = turn
        both = torch.addcmul(both * cos, both.roll(w.head_size // 2, -1), sin)
        return both[:, :, : w.heads], both[:, :, w.heads :], last

    def _by_member(self, part: torch.Tensor) -> torch.Tensor:
        """(rows, width, ...) to (members, tokens, ...)."""
        _, width, *rest = part.shape
        apart = part.reshape(-1, self._members, width, *rest)
        return apart.transpose(0, 1).reshape(self._members, -1, *rest)

    def _by_row(self, part: torch.Tensor, rows: int) -> torch.Tensor:
        """(members, tokens, heads, size) to (rows, heads, width, size)."""
        members, tokens, heads, size = part.shape
        apart = part.reshape(members, rows // members, -1, heads, size)
        return apart.permute(1, 0, 3, 2, 4).reshape(rows, heads, -1, size)


def _times(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.bmm(x, matrix) if bias is None else torch.baddbmm(bias[:, None], x, matrix)


def _added(
    x: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    total = torch.baddbmm(x, y, matrix)
    return total if bias is None else total.add_(bias[:, None])


# -- weights on one another --


def _alike(one: LeanWeights, other: LeanWeights) -> bool:
    plain = ("rope_scale", "eps", "heads", "kv_heads", "head_size")
    return (
        all(getattr(one, name) == getattr(other, name) for name in plain)
        and torch.equal(one.inverse, other.inverse)
        and _shape(one) == _shape(other)
    )


def _shape(weights: LeanWeights) -> list[Any]:
    tensors = [weights.embedding, weights.norm, weights.head]
    parts = [getattr(layer, f.name) for layer in weights.layers for f in fields(layer)]
    return [
        (part.shape, part.stride(), part.dtype, part.device)
        if isinstance(part, torch.Tensor)
        else part
        for part in (*tensors, *parts)
    ]


def _laid(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """On one another, each lying in memory as it did."""
    if parts[0].is_contiguous():
        return torch.stack(list(parts))
    return torch.stack([part.t() for part in parts]).transpose(1, 2)


def _member(weights: LeanWeights, place: int) -> LeanWeights:
    return joined([weights], lambda parts: parts[0][place])
