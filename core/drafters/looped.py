"""Looped: drafts of SSMs that lie on one another, or of one alone, as one pass over tensors
(`core.device`), and what that leaves in each SSM's state.

Made where nothing has to be looked at between a level and the next: see `loops`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import replace

import torch

from core.device.drafting import NO_TOKEN, Drafted, Drafting
from core.device.ground import Ground, up_to
from core.device.replay import Pool, Replay
from core.device.slips import Landing, Numbers, Slip, flat, real
from core.drafters.base import Ask, Draft, Drafts
from core.drafters.loop_asks import LoopAsks, Seat, fill, grew, loops, plain_draft
from core.drafters.pending import Pending
from core.drafters.ssm import SsmDrafter
from core.errors import DRAFTER_FAULTS
from core.models.crew import Crew
from core.sequence import Timed

__all__ = ["Looped", "drafting_of", "timed"]

# Passes kept at once: tiers of length, sets of rows, stretches of text.
KEPT = 48


class Looped:
    """`capture`: as CUDA graphs; else the same code eagerly. `vocab_size` is the LLM's."""

    def __init__(self, ssms: Mapping[str, SsmDrafter], vocab_size: int, *, capture: bool) -> None:
        self._ssms = ssms
        self._vocab_size = vocab_size
        self._capture = capture
        self._crews: dict[frozenset[str], _Passes] = {}

    def draft(self, asked: Mapping[str, Many[Ask]]) -> dict[str, Drafts]:
        """The drafts of those whose asks it can answer, all at once or each by itself."""
        found = self._together(asked) if asked else {}
        if found or len(asked) < 2:
            return found
        for name, asks in asked.items():
            found |= self._together({name: asks})
        return found

    def _together(self, asked: Mapping[str, Many[Ask]]) -> dict[str, Drafts]:
        work = LoopAsks.of(self._ssms, asked, self._vocab_size)
        if work is None or not loops(work):
            return {}
        passes = self._crews.get(names := frozenset(asked))
        if passes is None or passes.crew != work.crew:
            passes = self._crews[names] = _Passes(work.crew, Pool(capture=self._capture))
        try:
            drafts = passes.draft(work)
        except DRAFTER_FAULTS as error:
            return dict.fromkeys(asked, error)
        found: dict[str, list[Draft]] = {name: [] for name in asked}
        for seat, draft in zip(work.seats, drafts, strict=True):
            found[seat.name].append(draft)
        return {**found}


class _Passes:
    """A crew's passes, by what makes one unlike another."""

    def __init__(self, crew: Crew, pool: Pool) -> None:
        self.crew = crew
        self._pool = pool
        self._known: dict[tuple[object, ...], _Pass] = {}
        self._room = (0, 0)

    @torch.inference_mode()
    def draft(self, work: LoopAsks) -> list[Draft]:
        """A draft a seat; the seats' models and states are taken to where the pass left them."""
        extent = up_to(work.slots)
        room = self.crew.reserve(extent)
        key = (work.rows, work.width, extent, work.layout.shape, work.manner)
        if self._room != room or (len(self._known) >= KEPT and key not in self._known):
            self._known.clear()  # the arena lies elsewhere, or much has changed
            self._room = room
        if key not in self._known:
            self._known[key] = _Pass(drafting_of(work, extent), self._pool)
        return self._known[key].draft(work)


def drafting_of(work: LoopAsks, extent: int, slip: Slip | None = None) -> Drafting:
    """The pass that makes such drafts, told by a slip of its own if by no other."""
    crew, layout, device = work.crew, work.layout, work.crew.forward.device
    return Drafting(
        Ground.of(crew.forward, crew.arena, work.rows, extent, crew.vocab_size),
        layout,
        layout.tables(device),
        work.manner,
        slip or Slip(work.shapes, device),
    )


class _Pass:
    """One tier of drafts: told by a slip, made, and told in one copy."""

    def __init__(self, drafting: Drafting, pool: Pool) -> None:
        self._drafting = drafting
        self._replay = Replay(self._made, pool)
        self._landing = Landing(drafting.ground.forward.device)

    def _made(self) -> tuple[Drafted, torch.Tensor]:
        drafted = self._drafting()
        return drafted, flat((drafted.tokens, drafted.scores))

    def draft(self, work: LoopAsks) -> list[Draft]:
        start = time.perf_counter()
        slip = self._drafting.slip
        slip.ready()
        fill(slip, work.seats, noisy=work.manner.coupled)
        slip.send()
        drafted, told = self._replay()
        if self._replay.captured:  # the next pass writes where this one did
            drafted = replace(
                drafted, logits=drafted.logits.clone(), utilities=drafted.utilities.clone()
            )
        shape = (len(work.seats), len(work.layout))
        found = self._landing.read(told, {"tokens": shape, "scores": shape})
        tokens, scores = found["tokens"], real(found["scores"])
        end = time.perf_counter()
        drafts = []
        for row, seat in enumerate(work.seats):
            draft = plain_draft(work.layout, tokens[row], scores[row], seat.ask)
            utilities = drafted.utilities[row] if work.manner.coupled else None
            times = timed(work, seat, draft, (start, end))
            logits = drafted.logits[row]
            drafts.append(replace(draft, logits=logits, utilities=utilities, timed=times))
            _leave(work, seat, tokens[row], logits)
        return drafts


def timed(
    work: LoopAsks, seat: Seat, draft: Draft, span: tuple[float, float]
) -> tuple[Timed, Timed]:
    """What a draft took of a pass from start to end (time.perf_counter): its SSM's part. Between
    catching up and drafting nobody looked: all of its `passes` are told as equally long."""
    start, end = span
    middle = start + (end - start) / draft.passes
    share = 1 / len(work.crew.members)
    catching_up = Timed(seat.name, "catch_up", start, middle, share)
    return catching_up, Timed(seat.name, "draft", middle, end, share)


def _leave(work: LoopAsks, seat: Seat, tokens: Numbers, logits: torch.Tensor) -> None:
    """The seat's model and state after the pass: the text read, the fed nodes pending. What was fed
    for the sake of a full tree is known by no token."""
    layout = work.layout
    parents = layout.parents[: layout.fed]
    known = [
        int(token) if grew(layout, tokens, node, seat.ask) else NO_TOKEN
        for node, token in enumerate(tokens[: layout.fed])
    ]
    seat.model.note(seat.state.row, len(seat.missing), parents)
    seat.state.pending = Pending(logits[0])
    seat.state.pending.add(known, parents, logits[1:])
