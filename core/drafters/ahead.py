"""Drafting ahead within one request (ALGORITHMS 5): while the LLM verifies a round, one SSM looks
at its tree and guesses what it will come to, and all SSMs begin the next round's drafts behind the
likeliest outcomes, those of one SSM in one pass. A guess that comes true is used at once.

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

from core.drafters.base import DraftRequest, Outcome, likeliest
from core.drafters.ssm import SsmDrafter
from core.errors import DRAFTER_FAULTS
from core.events.parts import Timed
from core.sequence import Sequence
from core.trees.sampling import processed
from core.trees.tree import TokenTree

__all__ = ["PassEnded", "AheadDraft", "Foresight", "AheadPlan", "AheadDraftsByName"]

# More outcomes make every pass dearer and add little: the fifth is seldom 3 % probable.
OUTCOMES = 4


class PassEnded(Protocol):
    """Tells whether the LLM's pass has ended; a `threading.Event` is one."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class AheadPlan:
    """One request's part: the tree that is being verified, the SSMs by name with their weights, and
    what each will be asked for behind 1, 2, ... committed tokens (`asks[0]`, `asks[1]`, ...)."""

    sequence: Sequence
    tree: TokenTree
    weights: Mapping[str, float]
    asks: tuple[Mapping[str, DraftRequest], ...]


@dataclass(eq=False)
class AheadDraft:
    """What one SSM did for one request's next round: it `looked` at the tree, and `drafted` behind
    `outcomes` (tokens that may be committed, and how probable that was)."""

    outcomes: dict[tuple[int, ...], float] = field(default_factory=dict)
    looked: list[Timed] = field(default_factory=list)
    drafted: list[Timed] = field(default_factory=list)

    @property
    def timed(self) -> list[Timed]:
        """All of it, in order."""
        return [*self.looked, *self.drafted]


AheadDraftsByName = dict[str, AheadDraft]
"""By SSM."""


class Foresight:
    """The drafting of some plans beside one LLM pass. `seen`: what came of each; `failed`: SSMs
    that failed in it, and how.

    Stops between two model passes once the LLM's is done: a draft that is not finished goes on from
    there in its round, if its guess came true. Draws nothing that its round would not draw alike.
    """

    def __init__(self, ssms: Mapping[str, SsmDrafter], plans: Many[AheadPlan]) -> None:
        self.seen: list[AheadDraftsByName] = [{} for _ in plans]
        self.failed: dict[str, BaseException] = {}
        self._plans = plans
        self._ssms = ssms
        self._outcomes: dict[int, list[Outcome]] = {}
        self._members = {
            name: [i for i, plan in enumerate(plans) if name in plan.weights and _can(plan, ssm)]
            for name, ssm in ssms.items()
        }

    def run(self, done: PassEnded) -> None:
        """All of it, or as much as there is time for."""
        leads = self._leads()
        for name in self._names():
            if done.is_set():
                return
            self._look(name, [i for i in self._members[name] if leads[i] == name])
        for name in self._names():
            if done.is_set():
                return
            self._guess(name)
        going = self._names()
        while going and not done.is_set():
            going = [name for name in going if not done.is_set() and self._go_on(name)]

    def _names(self) -> list[str]:
        return [name for name, members in self._members.items() if members]

    def _leads(self) -> dict[int, str]:
        """Who looks for each plan: the SSM of the greatest weight. A pass a round is what another
        pair of eyes would cost, and there is time for a few only."""
        leads: dict[int, str] = {}
        for name, members in self._members.items():
            for i in members:
                weights = self._plans[i].weights
                if i not in leads or weights[name] > weights[leads[i]]:
                    leads[i] = name
        return leads

    def _look(self, name: str, members: list[int]) -> None:
        """What the SSM holds of every node of the trees, and so the likeliest outcomes."""
        if not members:
            return
        ssm, plans = self._ssms[name], [self._plans[i] for i in members]
        with self._pass(name, members, looking=True):
            logits = ssm.look([(plan.sequence, plan.tree) for plan in plans])
            for i, plan, rows in zip(members, plans, logits, strict=True):
                scores = ssm.calibration(plan.sequence).scores(_utilities(rows, plan))
                ends = plan.sequence.eos_ids
                self._outcomes[i] = likeliest(plan.tree, scores, OUTCOMES, ends)

    def _guess(self, name: str) -> None:
        """Begins a draft behind each outcome that leaves one to be made."""
        ssm, wanted, members = self._ssms[name], [], []
        for i in self._members[name]:
            plan, chosen = self._plans[i], {}
            for outcome in self._outcomes.get(i, ()):
                ask = plan.asks[len(outcome.token_ids) - 1].get(name)
                if ask is not None and (fitted := ssm.fitted(ask)).worth_starting:
                    chosen[outcome] = fitted
            if chosen:
                members.append(i)
                wanted.append((plan.sequence, [(o.token_ids, ask) for o, ask in chosen.items()]))
                found = {outcome.token_ids: outcome.probability for outcome in chosen}
                self._of(i, name).outcomes.update(found)
        if wanted:
            with self._pass(name, members):
                ssm.guess(wanted)

    def _of(self, i: int, name: str) -> AheadDraft:
        return self.seen[i].setdefault(name, AheadDraft())

    def _go_on(self, name: str) -> bool:
        """One pass further for whose drafts want one; False where there is nothing left to draft.
        So the k-th pass that drafted for a request is the k-th of each draft it was in."""
        ssm, plans = self._ssms[name], self._plans
        begun = [i for i in self._members[name] if name in self.seen[i]]
        members = [i for i in begun if ssm.growing([plans[i].sequence])]
        if not members:
            return False
        with self._pass(name, members):
            ssm.go_on([plans[i].sequence for i in members])
        return True

    @contextmanager
    def _pass(self, name: str, members: list[int], *, looking: bool = False) -> Iterator[None]:
        """Times a pass for some plans; an SSM that fails in it takes no further part."""
        start = time.perf_counter()
        try:
            yield
        except DRAFTER_FAULTS as error:
            self.failed[name] = error
            for seen in self.seen:
                seen.pop(name, None)
            self._members[name] = []
            return
        timed = Timed(name, "ahead", start, time.perf_counter())
        for i in members:
            foreseen = self._of(i, name)
            (foreseen.looked if looking else foreseen.drafted).append(timed)


def _can(plan: AheadPlan, ssm: SsmDrafter) -> bool:
    """Whether the SSM has read the text, and its context has room behind the tree."""
    room = ssm.context_length - plan.sequence.root_position - plan.tree.depth
    return room > 1 and ssm.caught_up(plan.sequence)


def _utilities(logits: torch.Tensor, plan: AheadPlan) -> torch.Tensor:
    """What the LLM's choice is foretold from: under `match` it shares the noise of its position."""
    sequence = plan.sequence
    if sequence.speculation.verify != "match":
        return logits
    log_q = processed(logits, sequence.sampling).double().log_softmax(dim=-1)
    first = sequence.root_position + 1
    depths = (0, *plan.tree.depths)
    noise = {depth: sequence.noise.gumbel(first + depth) for depth in set(depths)}
    return log_q + torch.stack([noise[depth] for depth in depths])
