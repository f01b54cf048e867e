"""Stack: several models of one shape, with stacked weights and a common pass.

A small model's pass is mostly host overhead between matrix products; a stack has this overhead
once. Row r of member m is row r x members + m of the shared KV arena.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from core.errors import MODEL_FAULTS, SpecScopeError
from core.models.fastest import compiled_of, fastest
from core.models.forward import TensorForward
from core.models.graphed import tensors_of
from core.models.hf_model import HfModel, feed_rows
from core.models.kv_cache import KVArena
from core.models.layer_ops import row_major
from core.models.lean import LeanWeights, map_tensors, member_weights
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
"""Logits of each feed, or the error of the pass."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """One model's logits or error. `num_models` models shared the pass from `start` to `end`
    (seconds of time.perf_counter)."""

    logits: LogitsOrError
    start: float
    end: float
    num_models: int = 1


def batched_forward(by_model: Sequence[tuple[LanguageModel, Sequence[Feed]]]) -> list[PassResult]:
    """Runs each model over its feeds: all in one pass if the models form a stack that `fits` the
    feeds, else one pass per model."""
    stack = common_stack([model for model, _ in by_model])
    if stack is None or not stack.fits([feeds for _, feeds in by_model]):
        return [_single_pass(model, feeds) for model, feeds in by_model]
    start = time.perf_counter()
    # `forward` needs the members' order.
    indices = [stack.members.index(model) for model, _ in by_model]
    by_index = {index: feeds for index, (_, feeds) in zip(indices, by_model, strict=True)}
    results: Sequence[LogitsOrError]
    try:
        results = stack.forward([by_index[index] for index in range(len(by_model))])
    except MODEL_FAULTS as error:
        # The error does not tell which model failed.
        results = [error] * len(by_model)
    end = time.perf_counter()
    return [PassResult(results[index], start, end, len(by_model)) for index in indices]


def common_stack(models: Sequence[LanguageModel]) -> Stack | None:
    """The stack that has exactly these members, in any order, or None."""
    stack = models[0].stack if models and isinstance(models[0], HfModel) else None
    if not isinstance(stack, Stack) or len(models) != len(stack.members):
        return None
    # A stack's pass computes all members, so the models of a subset run one by one.
    return stack if {id(model) for model in models} == {id(m) for m in stack.members} else None


def _single_pass(model: LanguageModel, feeds: Sequence[Feed]) -> PassResult:
    start = time.perf_counter()
    try:
        logits: LogitsOrError = model.forward(feeds)
    except MODEL_FAULTS as error:
        logits = error
    return PassResult(logits, start, time.perf_counter())


@dataclass(frozen=True, slots=True)
class BatchedModels:
    """Models that share one native pass, in their stack's order. `runner`: their stack, or the only
    member."""

    members: tuple[HfModel, ...]
    runner: HfModel | Stack


def batched_models_of(model: LanguageModel) -> BatchedModels | None:
    """The models that share a pass with `model`, itself included; None if the pass is not native
    code or attention has a window."""
    # The native drafting kernel writes full masks only.
    if not isinstance(model, HfModel) or model.masks.window:
        return None
    stack = model.stack
    if isinstance(stack, Stack):
        return BatchedModels(stack.members, stack) if stack.is_compiled else None
    return BatchedModels((model,), model) if model.is_compiled else None


def stack_alike(models: Sequence[LanguageModel]) -> None:
    """Stacks each group of models that are stackable and not yet in a stack. Raises EngineError if
    a model to be stacked has open rows."""
    remaining = [model for model in models if isinstance(model, HfModel) and model.stack is None]
    while remaining:
        first, *others = remaining
        # Being stackable is an equivalence relation: comparing with the first model is enough.
        group = [first, *(model for model in others if are_stackable(first, model))]
        remaining = [model for model in others if model not in group]
        build_stack(group)


def has_shape_of(one: LanguageModel, other: LanguageModel) -> bool:
    """Whether `one` and `other` are the same model or members of one stack."""
    return one is other or (
        isinstance(one, HfModel)
        and isinstance(other, HfModel)
        and one.stack is not None
        and one.stack is other.stack
    )


def are_stackable(one: HfModel, other: HfModel) -> bool:
    """Whether both models can be members of one stack."""
    a, b = one.lean_weights, other.lean_weights
    if a is None or b is None or one.masks.window or one.masks != other.masks:
        return False
    # A stack uses the first model's `inverse` for all members: its values must be equal, too.
    return _shape(a) == _shape(b) and torch.equal(a.inverse, b.inverse)


def build_stack(models: Sequence[HfModel]) -> Stack | None:
    """Stacks the models; None if there are fewer than two or they are not stackable."""
    if len(models) < 2 or not all(are_stackable(models[0], model) for model in models):
        return None
    weights = map_tensors([m.lean_weights for m in models if m.lean_weights], _stack_tensors)
    # `row_major` may copy the head: the members take their views after that.
    return Stack(models, replace(weights, head=row_major(weights.head)))


class Stack:
    """`weights`: the weights of the `members`, in order along a leading dimension. The members
    share one KV arena."""

    def __init__(self, members: Sequence[HfModel], weights: LeanWeights) -> None:
        self.members = tuple(members)
        self.weights = weights
        first = members[0]
        self._forward = fastest(weights, first.masks)
        self.arena = KVArena(first.arena.shapes, first.dtype, first.device)
        compiled = compiled_of(self._forward)
        for i, member in enumerate(members):
            # Views of the stack's weights: the member's own weights are freed.
            own = member_weights(weights, i)
            forward = compiled.member(i, own) if compiled else fastest(own, member.masks)
            member.join(self, self.arena, (i, len(members)), (own, forward))

    @property
    def tensors(self) -> TensorForward | None:
        """The stack's TensorForward, or None."""
        return tensors_of(self._forward)

    @property
    def is_compiled(self) -> bool:
        """Whether the pass is native code."""
        return compiled_of(self._forward) is not None

    @torch.inference_mode()
    def drafts(self, draft_batch: DraftBatch, limits: DraftLimits, ready: Ready) -> DraftResult:
        """See `HfModel.drafts`."""
        compiled = compiled_of(self._forward)
        assert compiled is not None, "only a compiled pass drafts in native code"
        self._reserve(limits.slots)
        return compiled.drafts(draft_batch, limits, ready, self.arena)

    def fits(self, by_member: Sequence[Sequence[Feed]]) -> bool:
        """Whether one pass can run these feeds, given in the order of `members`: equally many for
        each member, and none that `LanguageModel.forward` refuses."""
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
        """One pass over feeds for which `fits` is true. Returns each member's logits (see
        `LanguageModel.forward`)."""
        member_rows = [m.add_nodes(feeds) for m, feeds in zip(self.members, by_member, strict=True)]
        # The order of rows in the arena: adjacent rows are read without a copy.
        order = [(b, m) for b in range(len(by_member[0])) for m in range(len(by_member))]
        feeds = [by_member[m][b] for b, m in order]
        rows = [member_rows[m][b] for b, m in order]
        places = [self.members[m].place(by_member[m][b].row) for b, m in order]
        batch = batch_of(feeds, rows, places, 0)
        self._reserve(batch.plan.extent)
        logits = self._forward.logits(batch, self.arena)
        by_model: list[list[torch.Tensor]] = [[] for _ in by_member]
        for i, (_, m) in enumerate(order):
            by_model[m].append(logits[i, feed_rows(feeds[i])].float())
        return by_model

    def _reserve(self, slots: int) -> None:
        # Rows alternate between members: the arena must hold the highest row of any member.
        self.arena.reserve(max(member.rows_held for member in self.members), slots)


# -- stacking weights --


def _shape(weights: LeanWeights) -> list[Any]:
    """Properties of the weights that must be equal in models of one stack."""
    # Strides too: `_stack_tensors` decides by the first model whether a matrix is transposed.
    parts = [getattr(weights, f.name) for f in fields(weights) if f.name != "layers"]
    parts += [getattr(layer, f.name) for layer in weights.layers for f in fields(layer)]
    return [
        (part.shape, part.stride(), part.dtype, part.device)
        if isinstance(part, torch.Tensor)
        else part
        for part in parts
    ]


def _stack_tensors(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Stacks along a new first dimension. Transposed views (matrices stored as outputs x inputs)
    stay transposed."""
    if parts[0].is_contiguous():
        return torch.stack(list(parts))
    return torch.stack([part.t() for part in parts]).transpose(1, 2)
