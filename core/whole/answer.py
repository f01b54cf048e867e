"""Whole: what the host makes of a round that was made without it, the drafts, what the LLM says of
the tree that they combine to, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.device.slips import Numbers, real
from core.drafters.loop_asks import LoopAsks, kept_nodes, plain_draft
from core.drafters.looped import timed
from core.errors import EngineError
from core.sequence import Timed
from core.tree import ROOT
from core.turn import Turn
from core.verify import Said, told
from core.whole.work import Work

__all__ = ["Whole", "take_drafts"]


@dataclass(frozen=True, slots=True)
class Whole:
    """A round that was made: what was `found`, in the LLM's pass `forward`."""

    work: Work
    found: Mapping[str, Numbers]
    forward: Timed

    def judge(self) -> None:
        """Fills in each turn's verdict, now that its tree is combined."""
        for row, turn in enumerate(self.work.turns):
            start = time.perf_counter()
            turn.said = self._said(row, turn)
            turn.verdict = told(turn.tree, turn.said, turn.live.sequence.eos_ids)
            kept = int(self.found["length"][row])
            if len(turn.verdict.path) != kept:
                raise EngineError(
                    f"path is {len(turn.verdict.path)} nodes long: {kept} were committed"
                )
            turn.timed += [self.forward, Timed("verify", "verify", start, time.perf_counter())]

    def _said(self, row: int, turn: Turn) -> Said:
        """What the LLM says of the combined tree's nodes: of equal ones it was asked for the
        first."""
        nodes = self._nodes(row, turn) if self.work.asks else []
        own, found = self.found["own"][row], self.found
        own_shown, shown = real(found["own_shown"][row]), real(found["shown"][row])
        rows = [0, *(node + 1 for node in nodes)]
        return Said(
            tuple(own[rows].tolist()), tuple(own_shown[rows].tolist()), tuple(shown[nodes].tolist())
        )

    def _nodes(self, row: int, turn: Turn) -> list[int]:
        """Where each node of the combined tree is among all SSMs' that lie side by side."""
        asks, tree = self.work.asks, turn.tree
        assert asks is not None
        members, each = len(asks.crew.members), len(asks.layout)
        children = {
            (parent, token): node
            for node, (parent, token) in enumerate(zip(tree.parents, tree.token_ids, strict=True))
        }
        found: dict[int, int] = {}
        for place in range(members):
            seat = row * members + place
            draft = turn.drafts[asks.seats[seat].ask.index]
            here = {ROOT: ROOT}
            for node, at in enumerate(kept_nodes(self.found["tokens"][seat])):
                here[node] = children[here[draft.parents[node]], draft.token_ids[node]]
                found.setdefault(here[node], place * each + at)
        return [found[node] for node in range(len(tree))]


def take_drafts(
    work: Work, asks: LoopAsks, found: Mapping[str, Numbers], span: tuple[float, float]
) -> None:
    """The drafts of each turn; the SSMs' rows hold what of them was committed."""
    scores, temperatures = real(found["scores"]), real(found["temperature"])
    for place, seat in enumerate(asks.seats):
        draft = plain_draft(asks.layout, found["tokens"][place], scores[place], seat.ask)
        times = timed(asks, seat, draft, span)
        turn = work.turns[place // len(asks.crew.members)]
        settled = float(temperatures[place])
        turn.drafts[seat.ask.index] = replace(draft, timed=times, settled=settled)
        seat.model.note(seat.state.row, len(seat.missing) + int(found["kept"][place]))
    for turn in work.turns:
        turn.drafts = dict(sorted(turn.drafts.items()))
        for draft in turn.drafts.values():
            turn.timed.extend(draft.timed)
