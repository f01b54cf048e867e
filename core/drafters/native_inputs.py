"""Packs draft requests into flat arrays for the native drafting kernel, and sizes the kernel's
workspace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from core.config.budget import shape_nodes
from core.drafters.base import DraftRequest
from core.drafters.ssm import SsmDrafter
from core.drafters.ssm_state import SsmState
from core.models.stacking import BatchedModels
from core.speculation_length.base import StopLimits
from core.trees.noise import SeededNoise

if TYPE_CHECKING:
    from core.models.native.kernel_args import DraftBatch
    from core.models.native.workspace import DraftLimits

__all__ = [
    "COMPILED_KINDS",
    "NoiseBuffer",
    "DraftSlot",
    "stop_limits",
    "workspace_for",
    "can_batch",
    "pack",
]

COMPILED_KINDS = ("topk", "coupled")
"""Draft kinds that one call can draft for all requests, on a CPU or on a GPU."""
MOST_ROWS = 512
"""The most rows of logits of one call: the rows of all its drafts are in memory at once."""


@dataclass(frozen=True, slots=True)
class DraftSlot:
    """One SSM's draft for one sequence. `member`: the SSM's index in the batched `models`;
    `limits`: see `stop_limits`."""

    ssm: SsmDrafter
    models: BatchedModels
    member: int
    request: DraftRequest
    state: SsmState
    limits: StopLimits | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The request's shape, cut to the depth that the length policy allows."""
        assert self.limits is not None, "checked by can_batch"
        return self.request.shape[: self.limits.longest]

    @property
    def num_read(self) -> int:
        """Number of tokens of the text that the model has read."""
        return self.models.members[self.member].length(self.state.row)

    @property
    def row(self) -> int:
        """The row's index in the KVArena."""
        return self.models.members[self.member].place(self.state.row)

    @property
    def is_coupled(self) -> bool:
        return self.request.kind == "coupled"

    @property
    def calibration_temperature(self) -> float:
        """A score is softmax(utilities / this temperature); see `core.drafters.calibration`."""
        return self.state.calibration.temperature


def can_batch(slots: Sequence[DraftSlot]) -> bool:
    """Whether one call of the native kernel can serve these drafts."""
    # The deepest level is not fed: it needs no logits.
    rows = sum(1 + shape_nodes(slot.request.shape[:-1]) for slot in slots)
    return rows <= MOST_ROWS and all(_is_packable(slot) for slot in slots)


def _is_packable(slot: DraftSlot) -> bool:
    request, sampling = slot.request, slot.request.sequence.sampling
    if request.kind not in COMPILED_KINDS or slot.limits is None or not slot.shape:
        return False
    if sampling.penalizes:  # the kernel has only the unread tokens
        return False
    if not slot.is_coupled:
        return True
    # The kernel applies the temperature but neither top-k, top-p nor min-p. Noise is also read at
    # positions that stay undrafted, which only SeededNoise allows.
    return not sampling.warps and isinstance(request.sequence.noise, SeededNoise)


def stop_limits(request: DraftRequest) -> StopLimits | None:
    """The request's stop rule as numbers: unlimited without a rule; None for a rule that has no
    numbers."""
    return StopLimits() if request.stop is None else request.stop.limits(request.name)


def workspace_for(slots: Sequence[DraftSlot]) -> DraftLimits:
    """The largest workspace that the drafts can need."""
    from core.models.native.workspace import DraftLimits

    # A pass is either the catch-up, over all unread tokens, or one level of all drafts.
    lacking = sum(len(slot.request.sequence.tokens) - slot.num_read for slot in slots)
    # Nodes of each level: k1, k1 * k2, ...
    levels = [list(accumulate(slot.shape, mul)) for slot in slots]
    widest = max(map(sum, zip_longest(*levels, fillvalue=0)))
    # Nodes that get KV slots and rows of logits: all but the deepest level.
    input_sizes = [sum(sizes[:-1]) for sizes in levels]
    ends = (len(p.request.sequence.tokens) + own for p, own in zip(slots, input_sizes, strict=True))
    most = max(sum(sizes) for sizes in levels)
    # Tokens of a pass, rows of logits, nodes of a draft, KV slots of a row.
    return DraftLimits(max(lacking, widest), len(slots) + sum(input_sizes), most, max(ends))


def pack(slots: Sequence[DraftSlot], noise: NoiseBuffer) -> DraftBatch:
    """The kernel's arguments: one row per draft, levels padded to the deepest draft."""
    from core.models.native.kernel_args import DraftBatch

    count, levels = len(slots), max(len(slot.shape) for slot in slots)
    text: list[int] = []
    ends: list[int] = []
    positions, ends_at = np.empty((count, 6), np.int64), np.zeros(count + 1, np.int64)
    widths = np.zeros((count, levels), np.int64)
    least, step_scores = np.full(count, -math.inf), np.zeros((count, levels))
    temperature, calibration_temperature = np.ones(count, np.float32), np.empty(count, np.float32)
    noise_at = np.full((count, levels), -1, np.int64)
    for i, slot in enumerate(slots):
        shape, limits = slot.shape, slot.limits
        assert limits is not None, "checked by can_batch"
        tokens, read = slot.request.sequence.tokens, slot.num_read
        model = slot.models.members[slot.member]
        # Ids that the SSM or the LLM lacks must not be proposed.
        num_tokens = min(model.vocab_size, slot.ssm.vocab_size)
        # member, arena row, text length, tokens read, offset of unread tokens, vocabulary
        positions[i] = slot.member, slot.row, len(tokens), read, len(text), num_tokens
        # As in `Feeder._clip_ids`: an id that the SSM lacks is replaced by the SSM's last id.
        last_id = model.num_embeddings - 1
        text += [min(token_id, last_id) for token_id in tokens[read:]]
        ends += sorted(slot.request.sequence.eos_ids)
        # Draft i's end-of-text tokens are ends[ends_at[i] : ends_at[i + 1]].
        ends_at[i + 1] = len(ends)
        # Width 0 in the padding: a shorter draft ends there.
        widths[i, : len(shape)] = np.minimum(shape, num_tokens)
        calibration_temperature[i] = slot.calibration_temperature
        least[i] = limits.least
        scores = (limits.scores or ())[: len(shape)]
        # Levels without a least score keep 0, which every draft reaches.
        step_scores[i, : len(scores)] = scores
        if slot.is_coupled:
            temperature[i] = slot.request.sequence.sampling.temperature
            noise_at[i, : len(shape)] = [noise.offset(slot, level) for level in range(len(shape))]
    return DraftBatch(
        positions, np.array(text, np.int64), widths, np.array(ends, np.int64), ends_at,
        noise.allocate(), noise_at, temperature, calibration_temperature, least, step_scores,
    )  # fmt: skip


class NoiseBuffer:
    """The Gumbel noise of all positions that children may have, in one array. The noise is computed
    level by level: a draft may end early."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], int] = {}
        self._levels: dict[int, list[tuple[DraftRequest, int]]] = {}
        self._size = 0
        self._array = np.zeros(0)

    def offset(self, slot: DraftSlot, level: int) -> int:
        """Offset of the noise for one level of a draft. A run's drafts share the noise of a
        position."""
        request = slot.request
        position = request.root_position + 1 + level
        key = (request.sequence.run_id, position)
        if key not in self._at:
            self._at[key] = self._size
            self._levels.setdefault(level, []).append((request, self._size))
            # (V,) float64 for each position.
            self._size += slot.ssm.vocab_size
        return self._at[key]

    def allocate(self) -> np.ndarray:
        """The whole array, uninitialized."""
        self._array = np.empty(self._size)
        return self._array

    def fill_level(self, level: int) -> None:
        """Computes the noise of a level, before the kernel chooses the level's nodes."""
        for request, at in self._levels.get(level, ()):
            own = request.sequence.noise.gumbel(request.root_position + 1 + level).numpy()
            self._array[at : at + len(own)] = own
