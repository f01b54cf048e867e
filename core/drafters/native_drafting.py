"""Drafts of SSMs whose passes are compiled, by machine code alone: from the catch-up pass to the
last level, for all SSMs of a stack and all sequences at once.

The drafts are those of `SsmDrafter.drafting`, except for ties (here the lowest id comes first), for
tokens whose score is next to 0, and for the scores' digits, which are float32's. Served are
expansions of the most probable tokens, coupled or not, whose length policy gives its limits as
numbers (`core.drafters.draft_batch`); everything else drafts in lock-step over feeds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core.drafters.base import DraftRequest
from core.drafters.draft_batch import Noises, Place, limits_of, room_for, suits, told_of
from core.drafters.ssm import SsmDrafter
from core.drafters.state import Pending
from core.drafters.weights import needs_likelihoods
from core.errors import FORESEEN, EngineError
from core.events.parts import Timed
from core.models.batch import batched_models_of
from core.trees.draft import Draft
from core.trees.tree import ROOT

if TYPE_CHECKING:
    from core.models.native.forward import DraftResult

__all__ = ["CompiledDrafting", "compiled_drafts"]


class CompiledDrafting:
    """Drafts on the compiled pass, for those SSMs and asks that it serves. `ssms` by name."""

    def __init__(self, ssms: Mapping[str, SsmDrafter]) -> None:
        self._ssms = ssms

    def draft(self, asked: Mapping[str, Many[DraftRequest]]) -> dict[str, list[Draft]]:
        """Drafts by SSM, one an ask; SSMs that are not served here are left out. If a pass fails,
        nothing has changed and its SSMs are left out too: drafting one by one finds the culprit."""
        found: dict[str, list[Draft]] = {}
        stacks: dict[int, list[tuple[int, Place]]] = {}
        for name, asks in asked.items():
            places = _places(self._ssms[name], asks)
            if places is not None:
                found[name] = [Draft()] * len(asks)
                for number, place in places:
                    stacks.setdefault(id(place.company.runner), []).append((number, place))
        for numbered in stacks.values():
            numbered.sort(key=lambda one: one[1].member)
            drafts = _drafts_of([place for _, place in numbered])
            if drafts is None:
                for _, place in numbered:
                    found.pop(place.ssm.name, None)
                continue
            for (number, place), draft in zip(numbered, drafts, strict=True):
                found[place.ssm.name][number] = draft
        return found


def _drafts_of(places: Many[Place]) -> list[Draft] | None:
    """The drafts of one stack's places; None if they are not served, or a pass failed."""
    if not suits(places):
        return None
    try:
        return compiled_drafts(places)
    except FORESEEN:
        return None


def _places(ssm: SsmDrafter, asks: Many[DraftRequest]) -> list[tuple[int, Place]] | None:
    """The asks that are worth starting, with their numbers; None if one of them cannot be served:
    the pass is not compiled, or more is wanted than to read on and to draft."""
    company = batched_models_of(ssm.model)
    if company is None or not all(ssm.knows(ask.sequence) for ask in asks):
        return None
    fitted = [ssm.fitted(ask) for ask in asks]
    if not all(_only_reads_on(ssm, ask) for ask in fitted):
        return None
    member = company.members.index(ssm.model)
    return [
        (i, Place(ssm, company, member, ask, ssm.state(ask), limits_of(ask)))
        for i, ask in enumerate(fitted)
        if ask.worth_starting
    ]


def _only_reads_on(ssm: SsmDrafter, ask: DraftRequest) -> bool:
    """Whether the SSM starts from committed text alone: no draft ahead, no pending nodes, and no
    weights that need the likelihood of each committed token."""
    state = ssm.state(ask)
    return (
        ask.beyond == 0
        and state.ready is None
        and state.pending.root is None
        and ssm.model.pending(state.row) == 0
        and ssm.model.length(state.row) < len(ask.sequence.tokens)
        and not needs_likelihoods(ask.sequence.speculation)
    )


def compiled_drafts(places: Many[Place]) -> list[Draft]:
    """The drafts of places of one company, in its members' order; rows and states are left as
    after passes over feeds. What a pass may fail with is raised before anything has changed."""
    began = time.perf_counter()
    company = places[0].company
    noise = Noises()
    found = company.drafts(told_of(places, noise), room_for(places), noise.ready)
    grown = [_Draft.of(place, i, found) for i, place in enumerate(places)]
    if not all(score > 0 for one in grown for score in one.scores) or any(
        math.isnan(whole) for one in grown for *_, whole in one.moments
    ):
        raise EngineError("logits are no numbers, or a token is next to impossible")
    # Children are chosen before the next pass begins, at last before now.
    ends = [*(begin for begin, _ in found.passes[1:]), time.perf_counter()]
    times = _times(grown, ends, began)
    for one in grown:
        one.leave()
    return [one.draft(times[one.place.member]) for one in grown]


@dataclass(frozen=True, slots=True)
class _Draft:
    """One draft: parallel lists of its nodes, those that were `fed`, in order, and the logits (1 +
    fed, V) after the root and each of them, with what was made of these."""

    place: Place
    token_ids: list[int]
    parents: list[int]
    scores: list[float]
    ranks: list[int]
    fed: list[int]
    logits: torch.Tensor
    utilities: torch.Tensor | None
    moments: list[tuple[float, float, float]]
    passes: int

    @classmethod
    def of(cls, place: Place, i: int, found: DraftResult) -> _Draft:
        grown = found.outputs
        count, fed, passes = grown.counts[i].tolist()
        token_ids, parents, ranks = grown.nodes[i, :count].T.tolist()
        rows = grown.rows[i, : fed + 1]
        whole = int(rows[-1]) - int(rows[0]) == fed  # nobody else's lie between
        at = slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows
        logits = place.ssm.padded(found.logits[at])
        utilities = None
        if place.coupled:
            outputs = grown.utilities.reshape(len(found.logits), -1)[at, : found.logits.shape[1]]
            utilities = place.ssm.padded(torch.from_numpy(outputs))
        return cls(
            place, token_ids, parents, grown.scores[i, :count].tolist(), ranks,
            grown.fed[i, :fed].tolist(), logits, utilities, grown.moments[at].tolist(), passes,
        )  # fmt: skip

    def draft(self, timed: tuple[Timed, Timed]) -> Draft:
        """As everybody knows them."""
        return Draft(
            self.token_ids, self.parents, self.scores, [1.0] * len(self.token_ids), self.ranks,
            self.rows, self.logits, self.utilities, timed=timed, passes=self.passes,
            moments=[(mean, variance) for mean, variance, _ in self.moments],
        )  # fmt: skip

    @property
    def rows(self) -> dict[int, int]:
        """Of the root and each fed node: where its logits are."""
        return {ROOT: 0} | {node: 1 + place for place, node in enumerate(self.fed)}

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
