"""Drafts of SSMs whose passes are compiled, with no more than machine code between two passes: from
the text that they lack to the last level.

What comes of it is what `Levels` makes by growths, to the bit but for ties, of which the lowest id
is first here, and for tokens whose score is next to 0: machine code says which tokens, all scores
are made behind it at one look. Expansions of the most probable tokens, coupled or not, whose length
policy says its limits as numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from core.budget import shape_nodes
from core.drafters.base import Ask, Draft
from core.drafters.calibration import scores_of
from core.drafters.pending import Pending
from core.drafters.ssm import SsmDrafter
from core.drafters.state import SsmState
from core.errors import EngineError
from core.length.base import Limits
from core.models.company import Company
from core.noise import SeededNoise
from core.sampling import processed
from core.sequence import Timed
from core.tree import ROOT

if TYPE_CHECKING:
    from core.models.compiled.described import Told
    from core.models.compiled.forward import Drafted, Room

__all__ = ["Place", "compiled_drafts", "suits"]

KINDS = ("topk", "coupled")
MOST_ROWS = 512
"""Of logits, of all drafts of a call: they are held at once."""


@dataclass(frozen=True, slots=True)
class Place:
    """One SSM's draft for one sequence. `member`: the SSM's place in its company."""

    ssm: SsmDrafter
    company: Company
    member: int
    ask: Ask
    state: SsmState

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
    def limits(self) -> Limits | None:
        """The length policy's."""
        stop = self.ask.stop
        return Limits() if stop is None else stop.limits(self.ask.name)

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
    if ask.kind not in KINDS or place.limits is None or not _shape(place):
        return False
    if not place.coupled:
        return True
    # Noise that is no hash may mind being asked for more than is drafted.
    whole = sampling.top_k == 0 and sampling.top_p == 1.0
    return whole and isinstance(ask.sequence.noise, SeededNoise)


def compiled_drafts(places: Many[Place]) -> list[Draft]:
    """The drafts of places of one company, in its members' order; rows and states are left as
    after passes over feeds. What a pass may fail with is raised before anything has changed."""
    began = time.perf_counter()
    company = places[0].company
    shapes = [_shape(place) for place in places]
    noise = _Noise()
    found = company.drafts(_told(places, shapes, noise), _room(places, shapes), noise.ready)
    grown = [_Draft.of(place, i, found) for i, place in enumerate(places)]
    utilities = _utilities(grown)
    chances = _scores(grown, utilities)
    if not all(score > 0 for scores in chances for score in scores):
        raise EngineError("logits are no numbers, or a token is next to impossible")
    times = _times(grown, [*found.ends[:-1], time.perf_counter()], began)
    drafts = []
    for one, own, scores in zip(grown, utilities, chances, strict=True):
        draft = Draft(
            one.token_ids, one.parents, scores, [1.0] * len(one.token_ids), one.ranks,
            {ROOT: 0} | {node: 1 + place for place, node in enumerate(one.fed)},
            one.logits, own if one.place.coupled else None,
            timed=times[one.place.member], passes=one.passes,
        )  # fmt: skip
        drafts.append(draft)
    for one in grown:
        one.leave()
    return drafts


# -- what the call is told --


def _shape(place: Place) -> tuple[int, ...]:
    """The ask's, as deep as the length policy lets it grow."""
    limits = place.limits
    assert limits is not None, "it suits"
    return place.ask.shape if limits.longest is None else place.ask.shape[: limits.longest]


def _room(places: Many[Place], shapes: Many[tuple[int, ...]]) -> Room:
    from core.models.compiled.forward import Room

    lacking = sum(len(place.ask.sequence.tokens) - place.read for place in places)
    levels = [_level_sizes(shape) for shape in shapes]
    widest = max(
        sum(sizes[level] for sizes in levels if level < len(sizes))
        for level in range(max(map(len, shapes)))
    )
    fed = [sum(sizes[:-1]) for sizes in levels]
    slots = max(len(p.ask.sequence.tokens) + own for p, own in zip(places, fed, strict=True))
    most = max(sum(sizes) for sizes in levels)
    return Room(max(lacking, widest), len(places) + sum(fed), most, slots)


def _level_sizes(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[: level + 1]) for level in range(len(shape))]


def _told(places: Many[Place], shapes: Many[tuple[int, ...]], noise: _Noise) -> Told:
    from core.models.compiled.described import Told

    count, levels = len(places), max(map(len, shapes))
    text: list[int] = []
    ends: list[int] = []
    seats, ends_at = np.empty((count, 6), np.int64), np.zeros(count + 1, np.int64)
    widths = np.zeros((count, levels), np.int64)
    judged, ruled = np.zeros(count, np.int64), np.zeros(count, np.int64)
    least, rules = np.full(count, -math.inf), np.zeros((count, levels, 4))
    warmth, heat = np.ones(count, np.float32), np.empty(count, np.float32)
    noise_at = np.full((count, levels), -1, np.int64)
    for i, (place, shape) in enumerate(zip(places, shapes, strict=True)):
        tokens, read = place.ask.sequence.tokens, place.read
        vocabulary = place.company.members[place.member].vocab_size
        known = min(vocabulary, place.ssm.vocab_size)
        seats[i] = place.member, place.row, len(tokens), read, len(text), known
        text += [min(token_id, vocabulary - 1) for token_id in tokens[read:]]
        ends += sorted(place.ask.sequence.eos_ids)
        ends_at[i + 1] = len(ends)
        widths[i, : len(shape)] = np.minimum(shape, known)
        heat[i] = place.heat
        limits = place.limits
        assert limits is not None, "it suits"
        least[i], ruled[i] = limits.least, limits.rules is not None
        judged[i] = ruled[i] or limits.least > -math.inf
        if limits.rules is not None:
            own = limits.rules[: len(shape)]
            rules[i, : len(own)] = own
        if place.coupled:
            warmth[i] = place.ask.sequence.sampling.temperature
            noise_at[i, : len(shape)] = [noise.of(place, level) for level in range(len(shape))]
    return Told(
        seats, np.array(text, np.int64), widths, np.array(ends, np.int64), ends_at,
        noise.room(), noise_at, warmth, heat, judged, least, ruled, rules,
    )  # fmt: skip


class _Noise:
    """The noise of the positions that children may have, made when they are chosen: a draft may end
    before."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], int] = {}
        self._levels: dict[int, list[tuple[Ask, int]]] = {}
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


# -- what has come of it --


@dataclass(frozen=True, slots=True)
class _Draft:
    """One draft: parallel lists of its nodes, those that were `fed`, in order, and the logits (1 +
    fed, V) after the root and each of them."""

    place: Place
    token_ids: list[int]
    parents: list[int]
    ranks: list[int]
    fed: list[int]
    logits: torch.Tensor
    passes: int

    @classmethod
    def of(cls, place: Place, i: int, found: Drafted) -> _Draft:
        grown, logits = found.grown, found.logits
        count, fed, passes = grown.counts[i].tolist()
        token_ids, parents, ranks = grown.nodes[i, :count].T.tolist()
        rows = grown.rows[i, : fed + 1]
        whole = int(rows[-1]) - int(rows[0]) == fed  # nobody else's lie between
        own = logits[int(rows[0]) : int(rows[-1]) + 1] if whole else logits[torch.from_numpy(rows)]
        fed_nodes = grown.fed[i, :fed].tolist()
        padded = place.ssm.padded(own)
        return cls(place, token_ids, parents, ranks, fed_nodes, padded, passes)

    @property
    def depths(self) -> Iterator[int]:
        """Of each row of logits: how far its node is from the root."""
        depth = {ROOT: 0}
        for node, parent in enumerate(self.parents):
            depth[node] = depth[parent] + 1
        return (depth[node] for node in (ROOT, *self.fed))

    def leave(self) -> None:
        """The model's row and the state, as after passes over feeds."""
        place = {ROOT: ROOT} | {node: at for at, node in enumerate(self.fed)}
        parents = [place[self.parents[node]] for node in self.fed]
        pending = Pending(self.logits[0])
        if self.fed:
            pending.add([self.token_ids[node] for node in self.fed], parents, self.logits[1:])
        own, sequence = self.place, self.place.ask.sequence
        model = own.company.members[own.member]
        model.note(own.state.row, len(sequence.tokens) - own.read, parents)
        own.state.pending = pending


def _utilities(grown: Many[_Draft]) -> list[torch.Tensor]:
    """What each draft's scores are the softmax of, (1 + fed, V)."""
    found = []
    for one in grown:
        if not one.place.coupled:
            found.append(one.logits)
            continue
        ask = one.place.ask
        noise, first = ask.sequence.noise, ask.root_position + 1
        log_q = processed(one.logits, ask.sequence.sampling).double().log_softmax(dim=-1)
        gumbels = [noise.gumbel(first + depth) for depth in one.depths]
        found.append(log_q.add_(torch.stack(gumbels)))
    return found


def _scores(grown: Many[_Draft], utilities: Many[torch.Tensor]) -> list[list[float]]:
    """Of each draft's nodes."""
    found = []
    for one, own in zip(grown, utilities, strict=True):
        row = {ROOT: 0} | {node: 1 + place for place, node in enumerate(one.fed)}
        rows = [row[parent] for parent in one.parents]
        scores = scores_of(own, [one.place.state.calibration] * len(own))
        found.append(scores[rows, one.token_ids].tolist())
    return found


def _times(grown: Many[_Draft], ends: Many[float], began: float) -> dict[int, tuple[Timed, Timed]]:
    """Of each SSM, its part in the passes, which ended at these times, for whichever sequences:
    catching up, then drafting, to where the last pass ended that it took part in. A pass for
    several is shared."""
    passes: dict[int, int] = {}
    for one in grown:
        member = one.place.member
        passes[member] = max(passes.get(member, 0), one.passes)
    mates = [sum(own > i for own in passes.values()) for i in range(len(ends))]
    found = {}
    for one in grown:
        member, own = one.place.member, passes[one.place.member]
        drafted = sum((ends[i] - ends[i - 1]) / mates[i] for i in range(1, own))
        whole = ends[own - 1] - ends[0]
        share = min(1.0, drafted / whole) if whole > 0 else 1.0
        name = one.place.ssm.name
        found[member] = (
            Timed(name, "catch_up", began, ends[0], 1 / len(passes)),
            Timed(name, "draft", ends[0], ends[own - 1], share),
        )
    return found
