"""What drafts between whose passes there is machine code alone are told, and what room they take.

Knows which drafts can be made so; see `core.drafters.native_drafting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from core.config.budget import shape_nodes
from core.drafters.base import DraftRequest
from core.drafters.ssm import SsmDrafter
from core.drafters.state import SsmState
from core.length.base import Limits
from core.models.batch import BatchedModels
from core.trees.noise import SeededNoise

if TYPE_CHECKING:
    from core.models.native.kernel_args import DraftBatch
    from core.models.native.workspace import DraftLimits

__all__ = ["Noises", "Place", "limits_of", "room_for", "suits", "told_of"]

KINDS = ("topk", "coupled")
MOST_ROWS = 512
"""Of logits, of all drafts of a call: they are held at once."""


@dataclass(frozen=True, slots=True)
class Place:
    """One SSM's draft for one sequence. `member`: the SSM's place in its company; `limits`: what
    the length policy says of it as numbers, None where it cannot."""

    ssm: SsmDrafter
    company: BatchedModels
    member: int
    ask: DraftRequest
    state: SsmState
    limits: Limits | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The ask's, as deep as the length policy lets it grow."""
        assert self.limits is not None, "it suits"
        return self.ask.shape[: self.limits.longest]

    @property
    def read(self) -> int:
        """Tokens of the text that the model has read."""
        return self.company.members[self.member].length(self.state.row)

    @property
    def row(self) -> int:
        """Where in the arena it works."""
        return self.company.members[self.member].place(self.state.row)

    @property
    def coupled(self) -> bool:
        return self.ask.kind == "coupled"

    @property
    def heat(self) -> float:
        """The calibration's temperature."""
        return self.state.calibration.temperature


def suits(places: Many[Place]) -> bool:
    """Whether these drafts can be made so."""
    rows = sum(1 + shape_nodes(place.ask.shape[:-1]) for place in places)
    return rows <= MOST_ROWS and all(_tellable(place) for place in places)


def _tellable(place: Place) -> bool:
    ask, sampling = place.ask, place.ask.sequence.sampling
    if ask.kind not in KINDS or place.limits is None or not place.shape:
        return False
    if not place.coupled:
        return True
    # Noise that is no hash may mind being asked for more than is drafted.
    whole = sampling.top_k == 0 and sampling.top_p == 1.0
    return whole and isinstance(ask.sequence.noise, SeededNoise)


def limits_of(ask: DraftRequest) -> Limits | None:
    """The length policy's."""
    return Limits() if ask.stop is None else ask.stop.limits(ask.name)


def room_for(places: Many[Place]) -> DraftLimits:
    """What the drafts take at most."""
    from core.models.native.workspace import DraftLimits

    lacking = sum(len(place.ask.sequence.tokens) - place.read for place in places)
    levels = [_level_sizes(place.shape) for place in places]
    widest = max(map(sum, zip_longest(*levels, fillvalue=0)))
    fed = [sum(sizes[:-1]) for sizes in levels]
    slots = max(len(p.ask.sequence.tokens) + own for p, own in zip(places, fed, strict=True))
    most = max(sum(sizes) for sizes in levels)
    return DraftLimits(max(lacking, widest), len(places) + sum(fed), most, slots)


def _level_sizes(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[: level + 1]) for level in range(len(shape))]


def told_of(places: Many[Place], noise: Noises) -> DraftBatch:
    """What machine code is told of the drafts; of coupled ones `noise` knows which it needs."""
    from core.models.native.kernel_args import DraftBatch

    count, levels = len(places), max(len(place.shape) for place in places)
    text: list[int] = []
    ends: list[int] = []
    seats, ends_at = np.empty((count, 6), np.int64), np.zeros(count + 1, np.int64)
    widths = np.zeros((count, levels), np.int64)
    least, step_scores = np.full(count, -math.inf), np.zeros((count, levels))
    warmth, heat = np.ones(count, np.float32), np.empty(count, np.float32)
    noise_at = np.full((count, levels), -1, np.int64)
    for i, place in enumerate(places):
        shape, limits = place.shape, place.limits
        assert limits is not None, "it suits"
        tokens, read = place.ask.sequence.tokens, place.read
        vocabulary = place.company.members[place.member].vocab_size
        known = min(vocabulary, place.ssm.vocab_size)
        seats[i] = place.member, place.row, len(tokens), read, len(text), known
        text += [min(token_id, vocabulary - 1) for token_id in tokens[read:]]
        ends += sorted(place.ask.sequence.eos_ids)
        ends_at[i + 1] = len(ends)
        widths[i, : len(shape)] = np.minimum(shape, known)
        heat[i] = place.heat
        least[i] = limits.least
        scores = (limits.scores or ())[: len(shape)]
        step_scores[i, : len(scores)] = scores
        if place.coupled:
            warmth[i] = place.ask.sequence.sampling.temperature
            noise_at[i, : len(shape)] = [noise.of(place, level) for level in range(len(shape))]
    return DraftBatch(
        seats, np.array(text, np.int64), widths, np.array(ends, np.int64), ends_at,
        noise.room(), noise_at, warmth, heat, least, step_scores,
    )  # fmt: skip


class Noises:
    """The noise of the positions that children may have, made when they are chosen: a draft may end
    before."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], int] = {}
        self._levels: dict[int, list[tuple[DraftRequest, int]]] = {}
        self._size = 0
        self._whole = np.zeros(0)

    def of(self, place: Place, level: int) -> int:
        """Where that of a draft's level will begin."""
        ask = place.ask
        position = ask.root_position + 1 + level
        key = (ask.sequence.run_id, position)
        if key not in self._at:
            self._at[key] = self._size
            self._levels.setdefault(level, []).append((ask, self._size))
            self._size += place.ssm.vocab_size
        return self._at[key]

    def room(self) -> np.ndarray:
        """For all of it; nothing is there yet."""
        self._whole = np.empty(self._size)
        return self._whole

    def ready(self, level: int) -> None:
        """That of a level is there."""
        for ask, at in self._levels.get(level, ()):
            own = ask.sequence.noise.gumbel(ask.root_position + 1 + level).numpy()
            self._whole[at : at + len(own)] = own
