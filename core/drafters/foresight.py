"""Drafting ahead within one request (ALGORITHMS 5): while the LLM verifies a round, the SSMs look
at its tree, guess what it will come to, and begin the next round's drafts behind the likeliest
outcomes, all of one SSM in one pass. A guess that comes true is used at once.

Knows SSMs and plans, and neither the LLM nor the round they serve.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch

from core.drafters.base import Ask
from core.drafters.outcomes import Outcome, likeliest
from core.drafters.ssm import SsmDrafter
from core.errors import FORESEEN
from core.sampling import processed
from core.sequence import Sequence, Timed
from core.tree import TokenTree

__all__ = ["Done", "Foreseen", "Foresight", "Plan", "Seen"]

# More outcomes make every pass dearer and add little: the fifth is seldom 3 % probable.
OUTCOMES = 4


class Done(Protocol):
    """Tells whether the LLM's pass has ended; a `threading.Event` is one."""

    def is_set(self) -> bool: ...

    def wait(self) -> bool:
        """Returns when it has."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """One request's part: the tree that is being verified, the SSMs by name with their weights, and
    what each will be asked for behind 1, 2, ... committed tokens (`asks[0]`, `asks[1]`, ...)."""

    sequence: Sequence
    tree: TokenTree
    weights: Mapping[str, float]
    asks: tuple[Mapping[str, Ask], ...]


@dataclass(eq=False)
class Foreseen:
    """What one SSM did for one request's next round: it `looked` at the tree, and `drafted` behind
    `outcomes` (tokens that may be committed, and how probable that was)."""

    outcomes: dict[tuple[int, ...], float] = field(default_factory=dict)
    looked: list[Timed] = field(default_factory=list)
    drafted: list[Timed] = field(default_factory=list)

    @property
    def timed(self) -> list[Timed]:
        """All of it, in order."""
        return [*self.looked, *self.drafted]


Seen = dict[str, Foreseen]
"""By SSM."""


class Foresight:
    """The drafting of some plans beside one LLM pass. `seen`: what came of each; `failed`: SSMs
    that failed in it, and how.

    Stops between two model passes once the LLM's is done: a draft that is not finished goes on from
    there in its round, if its guess came true. Draws nothing that its round would not draw alike.
    """

    def __init__(self, ssms: Mapping[str, SsmDrafter], plans: Many[Plan]) -> None:
        self.seen: list[Seen] = [{} for _ in plans]
        self.failed: dict[str, BaseException] = {}
        self._plans = plans
        self._ssms = ssms
        self._scores: dict[int, list[tuple[float, torch.Tensor]]] = {}
        self._found: dict[int, list[Outcome]] = {}
        self._members = {
            name: [i for i, plan in enumerate(plans) if name in plan.weights and _fits(plan, ssm)]
            for name, ssm in ssms.items()
        }

    def run(self, done: Done) -> None:
        """All of it, or as much as there is time for."""
        for step in (self._look, self._guess):
            for name in self._names():
                if done.is_set():
                    return
                step(name)
        going = self._names()
        while going and not done.is_set():
            going = [name for name in going if not done.is_set() and self._go_on(name)]

    def _names(self) -> list[str]:
        return [name for name, members in self._members.items() if members]

    def _look(self, name: str) -> None:
        """What the SSM holds of every node of the trees."""
        ssm, members = self._ssms[name], self._members[name]
        with self._pass(name, looking=True):
            plans = [self._plans[i] for i in members]
            logits = ssm.look([(plan.sequence, plan.tree) for plan in plans])
            for i, plan, rows in zip(members, plans, logits, strict=True):
                self.seen[i][name] = Foreseen()
                scores = ssm.calibration(plan.sequence).scores(_utilities(rows, plan))
                self._scores.setdefault(i, []).append((plan.weights[name], scores))

    def _guess(self, name: str) -> None:
        """Begins a draft behind each outcome that leaves one to be made."""
        ssm, wanted = self._ssms[name], []
        for i in self._members[name]:
            chosen = []
            for outcome in self._outcomes(i):
                ask = self._plans[i].asks[len(outcome.token_ids) - 1].get(name)
                if ask is not None and (fitted := ssm.fitted(ask)).worth_starting:
                    chosen.append((outcome.token_ids, fitted))
                    self.seen[i][name].outcomes[outcome.token_ids] = outcome.probability
            if chosen:
                wanted.append((self._plans[i].sequence, chosen))
        if wanted:
            with self._pass(name):
                ssm.guess(wanted)

    def _outcomes(self, i: int) -> Many[Outcome]:
        """The likeliest outcomes by what the SSMs hold on weighted average."""
        if i not in self._found:
            held = self._scores[i]
            total = sum(weight for weight, _ in held)
            scores = torch.stack([weight / total * rows for weight, rows in held]).sum(dim=0)
            plan = self._plans[i]
            self._found[i] = likeliest(plan.tree, scores, OUTCOMES, plan.sequence.eos_ids)
        return self._found[i]

    def _go_on(self, name: str) -> bool:
        """One pass further; False where there is nothing left to draft."""
        sequences = [
            self._plans[i].sequence for i in self._members[name] if self.seen[i][name].outcomes
        ]
        if not self._ssms[name].growing(sequences):
            return False
        with self._pass(name):
            self._ssms[name].go_on(sequences)
        return True

    @contextmanager
    def _pass(self, name: str, *, looking: bool = False) -> Iterator[None]:
        """Times a pass; an SSM that fails in it takes no further part."""
        start = time.perf_counter()
        try:
            yield
        except FORESEEN as error:
            self.failed[name] = error
            for seen in self.seen:
                seen.pop(name, None)
            self._members[name] = []
            return
        timed = Timed(name, "ahead", start, time.perf_counter())
        for i in self._members[name]:
            foreseen = self.seen[i][name]
            (foreseen.looked if looking else foreseen.drafted).append(timed)


def _fits(plan: Plan, ssm: SsmDrafter) -> bool:
    """Whether the SSM's context has room behind the tree."""
    return ssm.context_length - plan.sequence.root_position - plan.tree.depth > 1


def _utilities(logits: torch.Tensor, plan: Plan) -> torch.Tensor:
    """What the LLM's choice is foretold from: under `match` it shares the noise of its position."""
    sequence = plan.sequence
    if sequence.speculation.verify != "match":
        return logits
    log_q = processed(logits, sequence.sampling).double().log_softmax(dim=-1)
    first = sequence.root_position + 1
    depths = (0, *plan.tree.depths)
    noise = {depth: sequence.noise.gumbel(first + depth) for depth in set(depths)}
    return log_q + torch.stack([noise[depth] for depth in depths])
