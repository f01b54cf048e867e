"""Batches models of one shape: their weights are stacked along a leading dimension and run in a
single forward pass (`Stack`); `batched_forward` falls back to one pass a model.

A small model's pass is mostly host time between its matrix products; stacked, it is paid once. Row
r of member m is row r x members + m of the shared KV arena.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from core.errors import MODEL_FAULTS, SpecScopeError
from core.models.fastest import compiled_of, fastest, run_drafts
from core.models.forward import Forward, TensorForward
from core.models.graphed import tensors_of
from core.models.hf_model import HfModel, feed_rows
from core.models.kv_cache import KVArena
from core.models.layer_ops import row_major
from core.models.lean import LeanWeights, map_tensors
from core.models.protocol import Feed, LanguageModel
from core.models.rows import batch_of

if TYPE_CHECKING:
    from core.models.native.forward import DraftResult, Ready
    from core.models.native.kernel_args import DraftBatch
    from core.models.native.workspace import DraftLimits

__all__ = [
    "BatchedModels",
    "PassResult",
    "LogitsOrError",
    "Stack",
    "batched_models_of",
    "batched_forward",
    "stack_alike",
    "build_stack",
    "common_stack",
    "has_shape_of",
]

LogitsOrError = list[torch.Tensor] | BaseException
"""Logits of each feed, or how the pass failed."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """One model's logits, and the span of its pass from `start` to `end` (time.perf_counter), which
    `num_models` models shared."""

    logits: LogitsOrError
    start: float
    end: float
    num_models: int = 1


def batched_forward(by_model: Sequence[tuple[LanguageModel, Sequence[Feed]]]) -> list[PassResult]:
    """A pass of each model over its feeds: one for all if they form a stack, else one each."""
    stack = common_stack([model for model, _ in by_model])
    if stack is None or not stack.fits([feeds for _, feeds in by_model]):
        return [_single_pass(model, feeds) for model, feeds in by_model]
    start = time.perf_counter()
    # `forward` needs the members' order; results are in the caller's.
    places = [stack.members.index(model) for model, _ in by_model]
    by_place = {place: feeds for place, (_, feeds) in zip(places, by_model, strict=True)}
    results: Sequence[LogitsOrError]
    try:
        results = stack.forward([by_place[place] for place in range(len(by_model))])
    except MODEL_FAULTS as error:
        # The pass fails for all; passes one by one show which model failed.
        results = [error] * len(by_model)
    end = time.perf_counter()
    return [PassResult(results[place], start, end, len(by_model)) for place in places]


def common_stack(models: Sequence[LanguageModel]) -> Stack | None:
    """The stack that has exactly these members, in any order; None if there is none."""
    stack = models[0].stack if models and isinstance(models[0], HfModel) else None
    if not isinstance(stack, Stack) or len(models) != len(stack.members):
        return None
    # A pass over some of the members would multiply the others' weights too.
    return stack if {id(model) for model in models} == {id(one) for one in stack.members} else None


def _single_pass(model: LanguageModel, feeds: Sequence[Feed]) -> PassResult:
    start = time.perf_counter()
    try:
        logits: LogitsOrError = model.forward(feeds)
    except MODEL_FAULTS as error:
        logits = error
    return PassResult(logits, start, time.perf_counter())


class PassRunner(Protocol):
    """A model or a stack, with a native drafting pass."""

    def drafts(self, draft_batch: DraftBatch, limits: DraftLimits, ready: Ready) -> DraftResult: ...


@dataclass(frozen=True, slots=True)
class BatchedModels:
    """Models whose native pass is one, `members` in the order of their weights; `runner` is their
    stack, or the only member."""

    members: tuple[HfModel, ...]
    runner: PassRunner

    def drafts(self, draft_batch: DraftBatch, limits: DraftLimits, ready: Ready) -> DraftResult:
        """See `CompiledForward.drafts`; a request's member is an index into `members`."""
        return self.runner.drafts(draft_batch, limits, ready)


def batched_models_of(model: LanguageModel) -> BatchedModels | None:
    """The models that share a pass with this one, itself included; None if the pass is not native
    code or attention has a window."""
    # The native drafting kernel writes full masks only.
    if not isinstance(model, HfModel) or model.masks.window:
        return None
    stack = model.stack
    if isinstance(stack, Stack):
        return BatchedModels(stack.members, stack) if stack.is_compiled else None
    return BatchedModels((model,), model) if model.is_compiled else None


def stack_alike(models: Sequence[LanguageModel]) -> None:
    """Stacks each group of models of one shape; none of them may have open rows."""
    left = [model for model in models if isinstance(model, HfModel) and model.stack is None]
    while left:
        first, *others = left
        # Being stackable is an equivalence, so each group is compared with its first model alone.
        alike = [first, *(one for one in others if are_stackable(first, one))]
        left = [one for one in others if one not in alike]
        build_stack(alike)


def has_shape_of(one: LanguageModel, other: LanguageModel) -> bool:
    """Whether the two are one model or members of one stack: their passes take equally long."""
    return one is other or (
        isinstance(one, HfModel)
        and isinstance(other, HfModel)
        and one.stack is not None
        and one.stack is other.stack
    )


def are_stackable(one: HfModel, other: HfModel) -> bool:
    """Whether the two can be members of one stack."""
    ours, theirs = one.lean_weights, other.lean_weights
    if ours is None or theirs is None or one.masks.window or one.masks != other.masks:
        return False
    return _same_shape(ours, theirs)


def build_stack(models: Sequence[HfModel]) -> Stack | None:
    """Stacks two or more models that differ only in the values of their weights; None for others.
    Each can still run by itself."""
    if len(models) < 2 or not all(are_stackable(models[0], one) for one in models):
        return None
    weights = map_tensors([one.lean_weights for one in models if one.lean_weights], _stack_tensors)
    # `row_major` may copy, so before the members get views of the stacked head.
    return Stack(models, replace(weights, head=row_major(weights.head)))


class Stack:
    """`weights`: those of the `members`, in order, with a leading dimension. The members' rows move
    into one KV arena."""

    def __init__(self, members: Sequence[HfModel], weights: LeanWeights) -> None:
        self.members = tuple(members)
        self.weights = weights
        first = members[0]
        self._forward = fastest(weights, first.masks)
        self.arena = KVArena(first.arena.shapes, first.dtype, first.device)
        for place, member in enumerate(members):
            own = _member(weights, place)
            alone = _member_forward(self._forward, place, own) or fastest(own, member.masks)
            # From here on the member's own weights are views of the stack's.
            member.join(self, self.arena, (place, len(members)), (own, alone))

    @property
    def tensors(self) -> TensorForward | None:
        """The pass over tensors alone."""
        return tensors_of(self._forward)

    @property
    def is_compiled(self) -> bool:
        """Whether the pass is native code."""
        return compiled_of(self._forward) is not None

    @torch.inference_mode()
    def drafts(self, draft_batch: DraftBatch, limits: DraftLimits, ready: Ready) -> DraftResult:
        """See `HfModel.drafts`."""
        # Rows alternate between members: the arena must include the highest row of any of them.
        held = max(member.rows_held for member in self.members)
        return run_drafts(self._forward, (draft_batch, limits, ready), (self.arena, held))

    def fits(self, by_member: Sequence[Sequence[Feed]]) -> bool:
        """Whether one pass can run these feeds of each member, in order: equally many of each, none
        past its context."""
        # The batch is rectangular: row b of every member, for each b.
        if len({len(feeds) for feeds in by_member}) != 1:
            return False
        try:
            for member, feeds in zip(self.members, by_member, strict=True):
                member.check(feeds)
        except SpecScopeError:
            return False
        return True

    @torch.inference_mode()
    def forward(self, by_member: Sequence[Sequence[Feed]]) -> list[list[torch.Tensor]]:
        """One pass over feeds for which `fits` is true; the logits of each member, see
        `LanguageModel.forward`."""
        entered = [m.enter(feeds) for m, feeds in zip(self.members, by_member, strict=True)]
        # In the arena the members' rows alternate, so a batch in this order reads adjacent rows.
        order = [(b, m) for b in range(len(by_member[0])) for m in range(len(by_member))]
        feeds = [by_member[m][b] for b, m in order]
        rows = [entered[m][b] for b, m in order]
        places = [self.members[m].place(by_member[m][b].row) for b, m in order]
        batch = batch_of(feeds, rows, places, 0)
        held = max(member.rows_held for member in self.members)
        self.arena.reserve(held, batch.plan.extent)
        logits = self._forward.logits(batch, self.arena)
        by_model: list[list[torch.Tensor]] = [[] for _ in by_member]
        for i, (_, m) in enumerate(order):
            by_model[m].append(logits[i, feed_rows(feeds[i])].float())
        return by_model


# -- stacking weights --


def _same_shape(one: LeanWeights, other: LeanWeights) -> bool:
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


def _stack_tensors(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Stacks along a new first dimension. Transposed views (matrices stored as outputs by inputs)
    stay transposed."""
    if parts[0].is_contiguous():
        return torch.stack(list(parts))
    return torch.stack([part.t() for part in parts]).transpose(1, 2)


def _member_forward(forward: Forward, place: int, own: LeanWeights) -> Forward | None:
    """One member's pass over views of the stack's weights; None if the pass has no such part."""
    part = getattr(forward, "member", None)
    member_forward: Forward | None = part(place, own) if part else None
    return member_forward


def _member(weights: LeanWeights, place: int) -> LeanWeights:
    return map_tensors([weights], lambda parts: parts[0][place])
