"""Batches models of one shape: their weights are stacked along a leading dimension and run in a
single forward pass (`Stack`); `forward_together` falls back to one pass a model.

A small model's pass is mostly host time between its matrix products; stacked, it is paid once. Row
r of member m is row r x members + m of the shared KV arena.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from core.errors import DRAFTER_FAULTS, SpecScopeError
from core.models.fastest import compiled_of, drafted, fastest
from core.models.forward import Forward, TensorForward
from core.models.graphed import tensors_of
from core.models.hf_model import HfModel, feed_rows
from core.models.kv_cache import KVArena
from core.models.layer_ops import laid_wide
from core.models.lean import LeanWeights, joined
from core.models.protocol import Feed, LanguageModel
from core.models.rows import batch_of

__all__ = [
    "Company",
    "Made",
    "Passed",
    "Stack",
    "company_of",
    "forward_together",
    "stack_alike",
    "stack_of",
    "stacked",
]

Passed = list[torch.Tensor] | BaseException
"""Logits of each feed, or how the pass failed."""


@dataclass(frozen=True, slots=True)
class Made:
    """A model's pass, from `start` to `end` (time.perf_counter), made for `mates` models at
    once."""

    logits: Passed
    start: float
    end: float
    mates: int = 1


def forward_together(asked: Sequence[tuple[LanguageModel, Sequence[Feed]]]) -> list[Made]:
    """A pass of each model over its feeds; a model is asked once."""
    stack = stacked([model for model, _ in asked])
    if stack is None or not stack.fits([feeds for _, feeds in asked]):
        return [_alone(model, feeds) for model, feeds in asked]
    start = time.perf_counter()
    places = [stack.members.index(model) for model, _ in asked]
    by_place = {place: feeds for place, (_, feeds) in zip(places, asked, strict=True)}
    found: Sequence[Passed]
    try:
        found = stack.forward([by_place[place] for place in range(len(asked))])
    except DRAFTER_FAULTS as error:
        found = [error] * len(asked)
    end = time.perf_counter()
    return [Made(found[place], start, end, len(asked)) for place in places]


def stacked(models: Sequence[LanguageModel]) -> Stack | None:
    """The stack whose members these are, all of them and in whatever order; None where there is
    none."""
    stack = models[0].stack if models and isinstance(models[0], HfModel) else None
    if not isinstance(stack, Stack) or len(models) != len(stack.members):
        return None
    return stack if {id(model) for model in models} == {id(one) for one in stack.members} else None


def _alone(model: LanguageModel, feeds: Sequence[Feed]) -> Made:
    start = time.perf_counter()
    try:
        logits: Passed = model.forward(feeds)
    except DRAFTER_FAULTS as error:
        logits = error
    return Made(logits, start, time.perf_counter())


if TYPE_CHECKING:
    from core.models.native.forward import Drafted, Ready
    from core.models.native.kernel_args import Told
    from core.models.native.workspace import Room


class Host(Protocol):
    """The model or stack that makes the passes."""

    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted: ...


@dataclass(frozen=True, slots=True)
class Company:
    """`members` in the order in which their weights lie."""

    members: tuple[HfModel, ...]
    host: Host

    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted:
        """See `CompiledForward.drafts`; members are numbered as here."""
        return self.host.drafts(told, room, ready)


def company_of(model: LanguageModel) -> Company | None:
    """The company that a model is in, alone perhaps; None where its pass is not compiled, or does
    not see all of a text."""
    if not isinstance(model, HfModel) or model.masks.window:
        return None
    stack = model.stack
    if isinstance(stack, Stack):
        return Company(stack.members, stack) if stack.compiled else None
    return Company((model,), model) if model.compiled else None


if TYPE_CHECKING:
    from core.models.native.forward import Drafted, Ready
    from core.models.native.kernel_args import Told
    from core.models.native.workspace import Room


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
        self.weights = weights
        first = members[0]
        self._forward = fastest(weights, first.masks)
        self.arena = KVArena(first.arena.shapes, first.dtype, first.device)
        for place, member in enumerate(members):
            own = _member(weights, place)
            alone = _member_forward(self._forward, place, own) or fastest(own, member.masks)
            member.join(self, self.arena, (place, len(members)), (own, alone))

    @property
    def tensors(self) -> TensorForward | None:
        """The pass over tensors alone."""
        return tensors_of(self._forward)

    @property
    def compiled(self) -> bool:
        """Whether the pass is machine code."""
        return compiled_of(self._forward) is not None

    @torch.inference_mode()
    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted:
        """See `HfModel.drafts`."""
        held = max(member.rows_held for member in self.members)
        return drafted(self._forward, (told, room, ready), (self.arena, held))

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


def _member_forward(forward: Forward, place: int, own: LeanWeights) -> Forward | None:
    """The pass of one member, where that is a part of the pass of all."""
    part = getattr(forward, "member", None)
    found: Forward | None = part(place, own) if part else None
    return found


def _member(weights: LeanWeights, place: int) -> LeanWeights:
    return joined([weights], lambda parts: parts[0][place])
