"""WholeRounds: rounds that are made from the drafts to the commit without a word to the host, and
told in one copy; what such a round does step by step, `Engine.round` says.

For one or several requests of one sampling whose drafts `core.drafters.loop_asks` can make, or that
draft nothing; union, `greedy` or `match`, nothing pipelined, no length policy that looks at nodes,
and nobody who wants more of the LLM's distributions (`record_top_k`).
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from contextlib import suppress
from dataclasses import dataclass

import torch

from core.device.clock import Clock
from core.device.drafting import Drafted, ends_of
from core.device.ground import Ground
from core.device.replay import Pool, Replay
from core.device.slips import Landing, Slip
from core.drafters.loop_asks import fill
from core.drafters.looped import drafting_of
from core.drafting import Drafting
from core.errors import DRAFTER_FAULTS
from core.models.crew import crew_of
from core.models.language_model import LanguageModel
from core.noise import bases_of
from core.sequence import Timed
from core.turn import Turn
from core.whole.answer import Whole, take_drafts
from core.whole.round_pass import RoundPass, round_shapes
from core.whole.work import Work, work_of

__all__ = ["WholeRounds"]

# Passes kept at once: tiers of length, sets of rows, stretches of text.
KEPT = 48


class WholeRounds:
    """`capture`: as CUDA graphs; else the same code eagerly."""

    def __init__(self, llm: LanguageModel, drafting: Drafting, *, capture: bool) -> None:
        self._llm = crew_of([llm])
        self._drafting = drafting
        self._pool = Pool(capture=capture)
        self._passes: dict[tuple[object, ...], _Pass] = {}
        self._begun: _Begun | None = None

    @torch.inference_mode()
    def run(self, turns: Many[Turn]) -> Whole | None:
        """Makes the whole round and fills in each turn's drafts; the rest is told once those are
        combined. None, and nothing is done, where it has to be made step by step."""
        work = None if self._llm is None else work_of(turns, self._llm, self._drafting)
        begun, self._begun = self._begun, None
        if work is None:
            return None
        if begun is not None and begun.place == _place(work):
            return begun.made.finish(work)
        made = self._drafted(work)
        if made is None:
            return None
        made.verify()
        return made.finish(work)

    @torch.inference_mode()
    def begin(self, turns: Many[Turn]) -> None:
        """Has the round of these turns made, without waiting for it; `run` asks for the same turns
        next, or for others: then nothing was done. What was written lies behind the rows' ends."""
        work = None if self._llm is None else work_of(turns, self._llm, self._drafting)
        made = None if work is None else self._drafted(work)
        if work is None or made is None:
            return
        with suppress(*DRAFTER_FAULTS):  # whoever asks for the round is told
            made.verify()
            self._begun = _Begun(_place(work), made)

    def _drafted(self, work: Work) -> _Pass | None:
        try:
            made = self._pass(work)
            made.draft(work)
        except DRAFTER_FAULTS:  # step by step it is found who fails, and the others go on
            return None
        return made

    def _pass(self, work: Work) -> _Pass:
        crews = [(work.llm, work.extents[0])]
        if work.asks is not None:
            crews.append((work.asks.crew, work.extents[1]))
        room = tuple((id(crew.arena), *crew.reserve(extent)) for crew, extent in crews)
        key = (*work.key, room)
        if len(self._passes) >= KEPT and key not in self._passes:
            self._passes.clear()
        for known in [known for known in self._passes if _moved(known[-1], room)]:
            del self._passes[known]
        if key not in self._passes:
            self._passes[key] = _Pass(work, self._pool)
        return self._passes[key]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A round that is under way, and of which `place` in which texts."""

    place: tuple[object, ...]
    made: _Pass


def _place(work: Work) -> tuple[object, ...]:
    """What makes a round unlike all others: its form, its runs and where their texts end."""
    ends = tuple((turn.live.sequence.run_id, turn.root_position) for turn in work.turns)
    seats = work.asks.seats if work.asks else ()
    return work.key, ends, tuple((seat.first, seat.ask.shape) for seat in seats)


def _moved(known: object, room: tuple[tuple[int, ...], ...]) -> bool:
    """Whether an arena has grown since a pass was made, and lies elsewhere."""
    now = {arena: size for arena, *size in room}
    assert isinstance(known, tuple)
    return any(now.get(arena, list(size)) != list(size) for arena, *size in known)


class _Pass:
    """One tier of rounds: told by a slip, made, and told in one copy."""

    def __init__(self, work: Work, pool: Pool) -> None:
        llm, layout, device = work.llm, work.layout, work.llm.forward.device
        shapes = round_shapes(len(work.turns), len(layout.shape))
        self._slip = Slip(shapes | (work.asks.shapes if work.asks else {}), device)
        drafting = None
        if work.asks is not None:
            drafting = drafting_of(work.asks, work.extents[1], self._slip)
        self._round = RoundPass(
            Ground.of(llm.forward, llm.arena, work.rows, work.extents[0], llm.vocab_size),
            layout,
            layout.tables(device),
            work.turns[0].live.sequence.sampling.shape,
            work.noisy,
            self._slip,
            drafting,
        )
        self._drafted: Drafted | None = None
        self._told = torch.zeros(0, dtype=torch.long)
        self._draft = None if drafting is None else Replay(drafting, pool)
        self._verify = Replay(lambda: self._round.verify(self._drafted), pool)
        self._landing = Landing(device)
        self._clock = Clock(device)

    def draft(self, work: Work) -> None:
        """The round's first half; the host knows nothing of it yet."""
        self._clock = Clock(work.llm.forward.device)
        self._tell(work)
        self._clock.mark()
        if self._draft is not None:
            self._drafted = self._draft()
        self._clock.mark()

    def verify(self) -> None:
        """The other half."""
        self._told = self._verify()
        self._clock.mark()

    def finish(self, work: Work) -> Whole:
        """Waits for both; takes models, states and drafts to where they left them."""
        found = self._landing.read(self._told, self._round.told_shapes())
        began, drafted, ended = self._clock.times()
        if work.asks is not None:
            take_drafts(work, work.asks, found, (began, drafted))
        for row, turn in enumerate(work.turns):
            work.llm.members[0].note(turn.live.row, 1 + int(found["length"][row]))
            turn.settled = True
        return Whole(work, found, Timed("llm", "forward", drafted, ended))

    def _tell(self, work: Work) -> None:
        slip = self._slip
        slip.ready()
        if work.asks is not None:
            fill(slip, work.asks.seats, noisy=work.asks.manner.coupled)
        told = slip.host
        for row, turn in enumerate(work.turns):
            sequence = turn.live.sequence
            told["root"][row], told["length"][row] = sequence.tokens[-1], turn.root_position
            told["llm_ends"][row] = ends_of(sequence.eos_ids)
            if work.noisy:
                deep = told["llm_bases"].shape[1]
                told["llm_bases"][row] = bases_of(sequence.noise, turn.root_position + 1, deep)
        slip.send()
