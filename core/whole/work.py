"""Work: a round that can be made whole, and whether it can."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from functools import cached_property

from core.device.drafting import ENDS
from core.device.ground import up_to
from core.device.layout import Layout
from core.drafters.loop_asks import LoopAsks, loops
from core.drafting import Drafting
from core.judging import judged_at_once
from core.models.crew import Crew
from core.turn import Turn

__all__ = ["Work", "work_of"]

MOST_NODES = 64


@dataclass(frozen=True)
class Work:
    """`turns` in the order of their rows; `asks` None where nobody drafts."""

    turns: tuple[Turn, ...]
    llm: Crew
    asks: LoopAsks | None

    @cached_property
    def layout(self) -> Layout:
        """The trees of all SSMs side by side, under a request's root."""
        if self.asks is None:
            return Layout(())
        return Layout(self.asks.layout.shape, len(self.asks.crew.members))

    @property
    def rows(self) -> tuple[int, ...]:
        """Of the LLM's arena."""
        return tuple(self.llm.members[0].place(turn.live.row) for turn in self.turns)

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Slots that the LLM's pass and the SSMs' look at."""
        longest = max(len(turn.live.sequence.tokens) for turn in self.turns)
        return up_to(longest + len(self.layout)), 0 if self.asks is None else up_to(self.asks.slots)

    @property
    def noisy(self) -> bool:
        return self.turns[0].speculation.verify == "match"

    @property
    def key(self) -> tuple[object, ...]:
        """What makes its pass unlike another."""
        sequence = self.turns[0].live.sequence
        drafts = None
        if self.asks is not None:
            drafts = self.asks.rows, self.asks.width, self.asks.layout.shape, self.asks.manner
        return self.rows, self.extents, drafts, sequence.sampling.shape, self.noisy


def work_of(turns: Many[Turn], llm: Crew, drafting: Drafting) -> Work | None:
    """The round of these turns, none of them pipelined; None where it has to be made step by step.
    Drafters that meet a request here read its prompt."""
    if not turns or not all(map(_simple, turns)):
        return None
    if len({_form(turn) for turn in turns}) != 1:
        return None
    asked = [drafting.asks(turn) for turn in turns]
    if not any(asked):
        return Work(tuple(turns), llm, None)
    ssms = drafting.ssm_pool.ssms
    by_name = {ask.name: [one for asks in asked for one in asks if one.name == ask.name]
               for ask in asked[0]}  # fmt: skip
    if any({ask.name for ask in asks} != by_name.keys() for asks in asked):
        return None
    if not by_name.keys() <= ssms.keys():
        return None
    found = LoopAsks.of(ssms, by_name, llm.vocab_size)
    if found is None or not loops(found):
        return None
    work = Work(tuple(turns), llm, found)
    return work if len(work.layout) <= MOST_NODES else None


def _simple(turn: Turn) -> bool:
    """Whether nothing about the turn wants to be looked at before its end."""
    return (
        judged_at_once(turn)
        and turn.speculation.combine == "union"
        and turn.choice.stop is None
        and turn.made is None
        and len(turn.live.sequence.eos_ids) <= ENDS
    )


def _form(turn: Turn) -> tuple[object, ...]:
    return turn.speculation.verify, turn.live.sequence.sampling.shape
