"""Levels: drafts of SSMs whose passes are compiled, level by level with little in between: one pass
for all of them, told by single queries, and one choice of children.

What comes of it is what `SsmDrafter.drafting` makes, to the bit unless machine code makes scores
(`compiled`): here passes are small beside what it takes to describe them as feeds of rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, field, replace

import torch

from core.drafters.base import Ask, Draft
from core.drafters.compiled import compiled_drafts
from core.drafters.growth import Growth, absorbed
from core.drafters.pending import Pending
from core.drafters.proposers import apart
from core.drafters.ssm import SsmDrafter
from core.drafters.state import SsmState
from core.drafters.told import Place, limits_of, suits
from core.errors import FORESEEN
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
        a pass fails as passes do nothing has changed: asked one by one, who is at fault will be
        known."""
        found: dict[str, list[Draft]] = {}
        companies: dict[int, list[tuple[int, Place]]] = {}
        for name, asks in asked.items():
            taken = _taken(self._ssms[name], asks)
            if taken is not None:
                found[name] = [Draft()] * len(asks)
                companies.setdefault(taken[0], []).extend(taken[1])
        for seated in companies.values():
            seated.sort(key=lambda seat: seat[1].member)
            places = [place for _, place in seated]
            try:
                drafts = _drafted(places)
            except FORESEEN:
                for place in places:
                    found.pop(place.ssm.name, None)
                continue
            for (number, place), draft in zip(seated, drafts, strict=True):
                found[place.ssm.name][number] = draft
        return found


def _drafted(places: Many[Place]) -> list[Draft]:
    """The drafts of one company."""
    if not places:
        return []
    if suits(places):
        return compiled_drafts(places)
    seats = [_Seat(place.ssm, place.company, place.member, place.ask) for place in places]
    _grow(seats)
    return [seat.draft() for seat in seats]


def _taken(ssm: SsmDrafter, asks: Many[Ask]) -> tuple[int, list[tuple[int, Place]]] | None:
    """Which company the SSM is in, and those of the asks that are worth starting, with their
    numbers; None where not all of them can be answered."""
    company = company_of(ssm.model)
    if company is None or not all(ssm.knows(ask.sequence) for ask in asks):
        return None
    fitted = [ssm.fitted(ask) for ask in asks]
    if not all(_simple(ssm, ask) for ask in fitted):
        return None
    member = company.members.index(ssm.model)
    places = [
        (i, Place(ssm, company, member, ask, ssm.state(ask), limits_of(ask)))
        for i, ask in enumerate(fitted)
        if ask.worth_starting
    ]
    return id(company.host), places


def _simple(ssm: SsmDrafter, ask: Ask) -> bool:
    """Whether all there is to do is to read on and to draft: nothing was drafted ahead, nobody
    wants to know how probable the text was held."""
    state = ssm.state(ask)
    return (
        ask.beyond == 0
        and state.ready is None
        and state.pending.root is None
        and ssm.model.pending(state.row) == 0
        and ssm.model.length(state.row) < len(ask.sequence.tokens)
        and not needs_likelihoods(ask.sequence.speculation)
    )


@dataclass
class _Time:
    """One SSM's part in the passes, for whichever sequences, in seconds of time.perf_counter.
    `drafted` of those from `caught_up` to `until` were spent on it: a pass for several is shared.
    `mates`: who read on in one pass."""

    began: float
    caught_up: float
    until: float
    mates: int
    drafted: float = 0.0

    def told(self, name: str) -> tuple[Timed, Timed]:
        """As a draft tells it."""
        whole = self.until - self.caught_up
        share = min(1.0, self.drafted / whole) if whole > 0 else 1.0
        return (
            Timed(name, "catch_up", self.began, self.caught_up, 1 / self.mates),
            Timed(name, "draft", self.caught_up, self.until, share),
        )


@dataclass
class _Seat:
    """One SSM's draft for one sequence: what it is asked, and how far it has come.

    `place`: the SSM's in its company. Of each fed place
    `token_ids`, `parents`, and `slots`: its own and those above it; `fed`: the logits of each pass.
    `row` and `start` say where in the arena it works, `read` how much of the text it had read.
    """

    ssm: SsmDrafter
    company: Company
    place: int
    ask: Ask
    slots: list[tuple[int, ...]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    fed: list[torch.Tensor] = field(default_factory=list)
    time: _Time | None = None
    state: SsmState = field(init=False)
    grown: Growth = field(init=False)
    model: HfModel = field(init=False)
    row: int = field(init=False)
    read: int = field(init=False)
    start: int = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.ssm.state(self.ask)
        self.grown = self.ssm.begun(self.ask)
        self.model = self.company.members[self.place]
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

    def draft(self) -> Draft:
        """What has grown. The model's row and the state are left as after passes over feeds."""
        assert self.time is not None, "it has grown"
        root, *nodes = self.fed
        pending = Pending(root[0])
        if nodes:
            pending.add(self.token_ids, self.parents, torch.cat(nodes))
        draft = replace(
            self.grown.draft(), timed=self.time.told(self.ssm.name), passes=len(self.fed)
        )
        self.model.note(self.state.row, self.start - self.read, self.parents)
        self.state.pending = pending
        return draft

    def _known(self, token_id: int) -> int:
        return min(token_id, self.model.vocab_size - 1)


def _grow(seats: list[_Seat]) -> None:
    """Drives the drafts of one company to their ends: catching up, then level by level."""
    began = time.perf_counter()
    _pass(seats, [seat.text() for seat in seats], last_only=True)
    now = time.perf_counter()
    places = {seat.place for seat in seats}
    times = {place: _Time(began, now, now, len(places)) for place in places}
    while growing := [seat for seat in seats if seat.grown.frontier]:
        since = now
        _pass(growing, [seat.frontier() for seat in growing], last_only=False)
        now = time.perf_counter()
        together = {seat.place for seat in growing}
        for place in together:
            times[place].drafted += (now - since) / len(together)
            times[place].until = now
    for seat in seats:
        seat.time = times[seat.place]


def _pass(seats: Many[_Seat], queries: Many[Many[Query]], *, last_only: bool) -> None:
    """One pass over the seats' queries, whose logits their growths take in."""
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
