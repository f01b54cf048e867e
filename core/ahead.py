"""Drafting ahead within one request (ALGORITHMS 5): while the LLM verifies a round, the SSMs look
at its tree, guess what it will come to, and begin the next round's drafts behind the likeliest
outcomes, all of one SSM in one pass. A guess that comes true is used at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Many
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from core.drafters.base import Ask
from core.drafters.outcomes import Outcome, likeliest
from core.drafters.ssm import SsmDrafter
from core.drafting import asks_of
from core.errors import FORESEEN
from core.events import Ahead
from core.metrics import LLM_LANE
from core.sampling import processed
from core.sequence import Sequence, Timed
from core.tree import TokenTree
from core.turn import Foreseen, Turn

__all__ = ["Done", "Foresight", "came_of", "hidden_ms"]

# More outcomes make every pass dearer and add little: the fifth is seldom 3 % probable.
OUTCOMES = 4

Done = Callable[[], bool]
"""Whether the LLM's pass has ended."""


@dataclass(eq=False)
class _Member:
    """One SSM's part in one turn. `outcomes`: those it drafts behind."""

    turn: Turn
    index: int
    seen: Foreseen = field(default_factory=Foreseen)

    @property
    def sequence(self) -> Sequence:
        return self.turn.live.sequence


@dataclass(frozen=True, slots=True)
class _Guess:
    """An outcome, and what is asked of each drafter (by index) behind it."""

    outcome: Outcome
    asks: Mapping[int, Ask]


class Foresight:
    """The job of the drafting thread beside one LLM pass, for all turns that draft ahead.

    Stops between two model passes once the LLM's is done: a draft that is not finished goes on from
    there in its round, if its guess came true.
    """

    def __init__(self, ssms: Mapping[str, SsmDrafter], turns: Many[Turn]) -> None:
        self._ssms = ssms
        self._members = {
            name: [
                _Member(turn, i) for turn in turns if (i := _fitting(turn, name, ssm)) is not None
            ]
            for name, ssm in ssms.items()
        }

    def __call__(self, done: Done) -> None:
        """Draws nothing that a later round would not draw alike."""
        held: dict[Turn, list[tuple[float, torch.Tensor]]] = {}
        for name in self._names():
            if done():
                return
            self._look(name, held)
        guesses = {turn: _guesses(turn, found) for turn, found in held.items()}
        for name in self._names():
            if done():
                return
            self._guess(name, guesses)
        going = self._names()
        while going and not done():
            going = [name for name in going if not done() and self._go_on(name)]

    def _names(self) -> list[str]:
        return [name for name, members in self._members.items() if members]

    def _look(self, name: str, held: dict[Turn, list[tuple[float, torch.Tensor]]]) -> None:
        """What the SSM holds of every node of the trees, by turn, with its weight."""
        members = self._members[name]
        with self._pass(name, looking=True):
            logits = self._ssms[name].look([(m.sequence, m.turn.tree) for m in members])
            for member, rows in zip(members, logits, strict=True):
                member.turn.foreseen[member.index] = member.seen
                utilities = _utilities(rows, member.turn.tree, member.sequence)
                scores = self._ssms[name].calibration(member.sequence).scores(utilities)
                weight = member.turn.ballot.weights[member.index]
                held.setdefault(member.turn, []).append((weight, scores))

    def _guess(self, name: str, guesses: Mapping[Turn, list[_Guess]]) -> None:
        """Begins a draft behind each outcome that leaves one to be made."""
        ssm = self._ssms[name]
        wanted = []
        for member in self._members[name]:
            chosen = []
            for guess in guesses.get(member.turn, ()):
                ask = guess.asks.get(member.index)
                if ask is not None and (fitted := ssm.fitted(ask)).worth_starting:
                    token_ids = guess.outcome.token_ids
                    chosen.append((token_ids, fitted))
                    member.seen.outcomes[token_ids] = guess.outcome.probability
            if chosen:
                wanted.append((member.sequence, chosen))
        if wanted:
            with self._pass(name):
                ssm.guess(wanted)

    def _go_on(self, name: str) -> bool:
        """One pass further; False where there is nothing left to draft."""
        sequences = [member.sequence for member in self._members[name] if member.seen.outcomes]
        if not self._ssms[name].growing(sequences):
            return False
        with self._pass(name):
            self._ssms[name].go_on(sequences)
        return True

    @contextmanager
    def _pass(self, name: str, *, looking: bool = False) -> Iterator[None]:
        """Times a pass; an SSM that fails in it is lost to its runs, the others go on."""
        start = time.perf_counter()
        try:
            yield
        except FORESEEN as error:
            for member in self._members[name]:
                member.turn.live.lose(member.index, error)
                member.turn.foreseen.pop(member.index, None)
            self._members[name] = []
            return
        timed = Timed(name, "ahead", start, time.perf_counter())
        for member in self._members[name]:
            (member.seen.looked if looking else member.seen.drafted).append(timed)


def came_of(turn: Turn, committed: tuple[int, ...]) -> tuple[Ahead, ...]:
    """What the drafts behind guesses came to, now that the round's tokens are known."""
    passes = [t for t in turn.timed if t.lane == LLM_LANE]
    events = []
    for index, seen in sorted(turn.foreseen.items()):
        hit = committed in seen.outcomes
        wasted = seen.looked if hit else seen.timed
        events.append(
            Ahead(
                drafter=turn.live.drafters[index].name,
                outcomes=len(seen.outcomes),
                probability=min(1.0, sum(seen.outcomes.values())),
                hit=hit,
                saved_ms=hidden_ms(seen.drafted, passes) if hit else 0.0,
                wasted_ms=sum(t.end - t.start for t in wasted) * 1000,
            )
        )
    return tuple(events)


def hidden_ms(timed: Many[Timed], passes: Many[Timed]) -> float:
    """How much of a work was done while the LLM's passes ran."""
    return 1000 * sum(
        max(0.0, min(one.end, other.end) - max(one.start, other.start))
        for one in timed
        for other in passes
    )


def _guesses(turn: Turn, held: list[tuple[float, torch.Tensor]]) -> list[_Guess]:
    """The likeliest outcomes by what the SSMs hold on weighted average."""
    total = sum(weight for weight, _ in held)
    scores = torch.stack([weight / total * rows for weight, rows in held]).sum(dim=0)
    found = likeliest(turn.tree, scores, OUTCOMES, turn.live.sequence.eos_ids)
    return [_Guess(one, {a.index: a for a in asks_of(turn, len(one.token_ids))}) for one in found]


def _fitting(turn: Turn, name: str, ssm: SsmDrafter) -> int | None:
    """The SSM's index in the turn, if it drafted in it and its context has room behind its tree."""
    room = ssm.context_length - turn.root_position - turn.tree.depth
    return next((i for i in turn.drafts if turn.live.drafters[i].name == name and room > 1), None)


def _utilities(logits: torch.Tensor, tree: TokenTree, sequence: Sequence) -> torch.Tensor:
    """What the LLM's choice is foretold from: under `match` it shares the noise of its position."""
    if sequence.speculation.verify != "match":
        return logits
    log_q = processed(logits, sequence.sampling).double().log_softmax(dim=-1)
    first = sequence.root_position + 1
    depths = (0, *tree.depths)
    noise = {depth: sequence.noise.gumbel(first + depth) for depth in set(depths)}
    return log_q + torch.stack([noise[depth] for depth in depths])
