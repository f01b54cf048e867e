"""Levels: drafts of SSMs whose passes are compiled, level by level with little in between: one pass
for all of them, told by single queries, and one choice of children.

What comes of it is what `SsmDrafter.drafting` makes, to the bit: here passes are small beside what
it takes to describe them as feeds of rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Many
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from core.drafters.base import Ask, Draft
from core.drafters.growth import Growth, absorbed
from core.drafters.pending import Pending
from core.drafters.proposers import apart
from core.drafters.ssm import SsmDrafter
from core.drafters.state import SsmState
from core.errors import DRAFTER_FAULTS
from core.models.company import Company, company_of
from core.models.compiled.asking import Query
from core.models.hf_model import HfModel
from core.sequence import Timed
from core.tree import ROOT
from core.weights import needs_likelihoods

__all__ = ["Levels"]


class Levels:
    """`ssms` by name."""

    def __init__(self, ssms: Mapping[str, SsmDrafter]) -> None:
        self._ssms = ssms

    def draft(self, asked: Mapping[str, Many[Ask]]) -> dict[str, list[Draft]]:
        """The drafts of those SSMs that can be asked like this, those of one company at once. Where
        that fails nothing has changed: asked one by one, who is at fault will be known."""
        found: dict[str, list[Draft]] = {}
        companies: dict[int, list[_Seat]] = {}
        for name, asks in asked.items():
            with suppress(*DRAFTER_FAULTS):
                taken = _taken(self._ssms[name], asks)
                if taken is not None:
                    found[name] = [Draft()] * len(asks)
                    companies.setdefault(taken[0], []).extend(taken[1])
        for seats in companies.values():
            try:
                _answer(seats, found)
            except DRAFTER_FAULTS:
                for seat in seats:
                    found.pop(seat.ssm.name, None)
        return found


def _taken(ssm: SsmDrafter, asks: Many[Ask]) -> tuple[int, list[_Seat]] | None:
    """Which company the SSM is in, and seats for those of the asks that are worth starting; None
    where not all of them can be answered."""
    company = company_of(ssm.model)
    fitted = [ssm.fitted(ask) for ask in asks]
    if company is None or not all(_simple(ssm, ask) for ask in fitted):
        return None
    place = company.members.index(ssm.model)
    seats = [
        _Seat(ssm, company, place, i, ask) for i, ask in enumerate(fitted) if ask.worth_starting
    ]
    return id(company.host), seats


def _simple(ssm: SsmDrafter, ask: Ask) -> bool:
    """Whether all there is to do is to read on and to draft: nothing was drafted ahead, nobody
    wants to know how probable the text was held."""
    state = ssm.state(ask)
    return (
        ask.beyond == 0
        and state.ready is None
        and state.pending.root is None
        and ssm.model.pending(state.row) == 0
        and not needs_likelihoods(ask.sequence.speculation)
    )


@dataclass
class _Seat:
    """One SSM's draft for one sequence: what it is asked, and how far it has come.

    `slots` of each fed place: its own and those above it. `fed`: the logits of each pass.
    """

    ssm: SsmDrafter
    company: Company
    place: int
    number: int
    ask: Ask
    slots: list[tuple[int, ...]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    fed: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state: SsmState = self.ssm.state(self.ask)
        self.grown: Growth = self.ssm.begun(self.ask)
        self.model: HfModel = self.company.members[self.place]
        self.row = self.model.place(self.state.row)
        self.read = self.model.length(self.state.row)
        self.start = len(self.ask.sequence.tokens)

    def text(self) -> list[Query]:
        """The tokens of the text that the model lacks."""
        missing = self.ask.sequence.tokens[self.read :]
        return [
            Query(self.row, self._known(token_id), slot, slot, slot + 1)
            for slot, token_id in enumerate(missing, start=self.read)
        ]

    def frontier(self) -> list[Query]:
        """The nodes whose logits are wanted next; they are fed from now on."""
        grown, queries = self.grown, []
        for node in grown.frontier:
            parent, token_id = grown.places[grown.out.parents[node]], grown.out.token_ids[node]
            place = len(self.slots)
            above = () if parent == ROOT else self.slots[parent]
            path = (*above, self.start + place)
            position = self.start - 1 + len(path)
            self.slots.append(path)
            self.token_ids.append(token_id)
            self.parents.append(parent)
            grown.places[node] = place
            queries.append(
                Query(self.row, self._known(token_id), position, path[-1], self.start, path)
            )
        return queries

    def leave(self) -> None:
        """The model's row and the state are as after passes over feeds."""
        self.model.note(self.state.row, self.start - self.read, self.parents)
        root, *nodes = self.fed
        self.state.pending = Pending(root[0])
        if nodes:
            self.state.pending.add(self.token_ids, self.parents, torch.cat(nodes))

    def draft(self, times: tuple[float, float, float], share: float) -> Draft:
        """What has grown, from `begun` over `caught_up` to `ended` (time.perf_counter)."""
        begun, caught_up, ended = times
        name = self.ssm.name
        catching_up = Timed(name, "catch_up", begun, caught_up, share)
        drafting = Timed(name, "draft", caught_up, ended, share)
        return replace(self.grown.draft(), timed=(catching_up, drafting), passes=len(self.fed))

    def _known(self, token_id: int) -> int:
        return min(token_id, self.model.vocab_size - 1)


def _answer(seats: Many[_Seat], found: dict[str, list[Draft]]) -> None:
    """Drafts what these want, all of one company, and puts it where it belongs."""
    begun = time.perf_counter()
    seats = sorted(seats, key=lambda seat: seat.place)
    _pass(seats, [seat.text() for seat in seats], last_only=True)
    caught_up = time.perf_counter()
    while growing := [seat for seat in seats if seat.grown.frontier]:
        _pass(growing, [seat.frontier() for seat in growing], last_only=False)
    ended = time.perf_counter()
    share = 1 / len({seat.place for seat in seats}) if seats else 1.0
    for seat in seats:
        seat.leave()
        found[seat.ssm.name][seat.number] = seat.draft((begun, caught_up, ended), share)


def _pass(seats: Many[_Seat], queries: Many[Many[Query]], *, last_only: bool) -> None:
    """One pass over the seats' queries, whose logits their growths take in."""
    if not seats:
        return
    asked: dict[int, list[Query]] = {}
    counts: list[int] = []
    wanted: list[int] = []
    end = 0
    for seat, own in zip(seats, queries, strict=True):
        asked.setdefault(seat.place, []).extend(own)
        first = len(own) - 1 if last_only else 0
        wanted += range(end + first, end + len(own))
        counts.append(len(own) - first)
        end += len(own)
    logits = seats[0].ssm.padded(seats[0].company.answers(asked, wanted))
    each = apart(logits, counts)
    for seat, rows in zip(seats, each, strict=True):
        seat.fed.append(rows)
    absorbed([seat.grown for seat in seats], each)
