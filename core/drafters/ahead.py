"""Drafting ahead within one request (`pipeline=ahead`).

While the LLM verifies a tree, one SSM predicts the most probable outcomes: the tokens that the
round may commit. Then the SSMs draft after these outcomes. If an outcome comes true, the next round
can use the draft that was made for this outcome.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch

from core.config.mechanisms import verify_rule
from core.drafters.base import DraftRequest, PredictedOutcome, top_outcomes
from core.drafters.ssm import SsmDrafter
from core.errors import MODEL_FAULTS
from core.events.parts import Timed
from core.sequence import TokenSequence
from core.trees.sampling import penalize_tree, process_logits
from core.trees.tree import TokenTree

__all__ = ["CancelSignal", "AheadDraft", "AheadDrafting", "AheadPlan", "AheadDraftsByName"]

# The most outcomes per tree. More outcomes would make every pass slower.
OUTCOMES = 4


class CancelSignal(Protocol):
    """Is set when drafting ahead is to end; for example a `threading.Event`."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class AheadPlan:
    """A plan for one request. `tree`: the tree that is being verified. `weights`: by SSM.
    `requests[n]`: each SSM's draft request after n + 1 committed tokens."""

    sequence: TokenSequence
    tree: TokenTree
    weights: Mapping[str, float]
    requests: tuple[Mapping[str, DraftRequest], ...]


@dataclass(eq=False)
class AheadDraft:
    """One SSM's work for one request's next round. `outcomes`: committed tokens -> predicted
    probability."""

    outcomes: dict[tuple[int, ...], float] = field(default_factory=dict)
    scoring_timings: list[Timed] = field(default_factory=list)
    draft_timings: list[Timed] = field(default_factory=list)

    @property
    def timings(self) -> list[Timed]:
        """The spans of all passes, in order."""
        return [*self.scoring_timings, *self.draft_timings]


AheadDraftsByName = dict[str, AheadDraft]
"""One request's AheadDrafts, by SSM."""


class AheadDrafting:
    """Runs plans during one LLM pass. `results`: the drafts of each plan; `failed`: errors by SSM.

    Noise is keyed by position: a draft reads the same noise whether it is made ahead or not.
    """

    def __init__(self, ssms: Mapping[str, SsmDrafter], plans: Sequence[AheadPlan]) -> None:
        self.results: list[AheadDraftsByName] = [{} for _ in plans]
        self.failed: dict[str, BaseException] = {}
        self._plans = plans
        self._ssms = ssms
        # By plan index: the outcomes that the plan's lead SSM predicts (`_lead_ssms`).
        self._outcomes: dict[int, list[PredictedOutcome]] = {}
        # By SSM: indices of its plans; empty after the SSM has failed.
        self._members = {
            name: [
                i for i, plan in enumerate(plans) if name in plan.weights and _has_room(plan, ssm)
            ]
            for name, ssm in ssms.items()
        }

    def run(self, pass_ended: CancelSignal) -> None:
        """Drafts until all drafts are complete or `pass_ended` is set."""
        leads = self._lead_ssms()
        for name in self._names():
            if pass_ended.is_set():
                return
            self._score_trees(name, [i for i in self._members[name] if leads[i] == name])
        for name in self._names():
            if pass_ended.is_set():
                return
            self._begin_drafts(name)
        # One level of each SSM in turn: when the LLM's pass ends, all drafts have similar depths.
        remaining = self._names()
        while remaining and not pass_ended.is_set():
            remaining = [
                name for name in remaining if not pass_ended.is_set() and self._extend_drafts(name)
            ]

    def _names(self) -> list[str]:
        return [name for name, members in self._members.items() if members]

    def _lead_ssms(self) -> dict[int, str]:
        """By plan index, the SSM of the greatest weight, which predicts the outcomes."""
        leads: dict[int, str] = {}
        for name, members in self._members.items():
            for i in members:
                weights = self._plans[i].weights
                # On a tie, the SSM that was loaded first leads.
                if i not in leads or weights[name] > weights[leads[i]]:
                    leads[i] = name
        return leads

    def _score_trees(self, name: str, members: list[int]) -> None:
        if not members:
            return
        ssm, plans = self._ssms[name], [self._plans[i] for i in members]
        with self._pass(name, members, scoring=True):
            logits = ssm.tree_logits([(plan.sequence, plan.tree) for plan in plans])
            for i, plan, rows in zip(members, plans, logits, strict=True):
                # Calibrated scores estimate P(the LLM chooses y), see `top_outcomes`.
                scores = ssm.calibration(plan.sequence).scores(_utilities(rows, plan))
                ends = plan.sequence.eos_ids
                self._outcomes[i] = top_outcomes(plan.tree, scores, OUTCOMES, ends)

    def _begin_drafts(self, name: str) -> None:
        ssm, plans, members = self._ssms[name], [], []
        for i in self._members[name]:
            plan, by_outcome = self._plans[i], {}
            for outcome in self._outcomes.get(i, ()):
                request = plan.requests[len(outcome.token_ids) - 1].get(name)
                if request is not None and (one := ssm.fit_context(request)).worth_starting:
                    by_outcome[outcome] = one
            if by_outcome:
                members.append(i)
                plans.append(
                    (plan.sequence, [(o.token_ids, request) for o, request in by_outcome.items()])
                )
                chances = {outcome.token_ids: outcome.probability for outcome in by_outcome}
                self._draft_of(i, name).outcomes.update(chances)
        if plans:
            with self._pass(name, members):
                ssm.begin_ahead(plans)

    def _draft_of(self, i: int, name: str) -> AheadDraft:
        return self.results[i].setdefault(name, AheadDraft())

    def _extend_drafts(self, name: str) -> bool:
        """Runs one more pass for all unfinished drafts of an SSM. False if all are complete."""
        ssm, plans = self._ssms[name], self._plans
        with_draft = [i for i in self._members[name] if name in self.results[i]]
        members = [i for i in with_draft if ssm.has_growing(plans[i].sequence)]
        if not members:
            return False
        with self._pass(name, members):
            ssm.extend_ahead([plans[i].sequence for i in members])
        return True

    @contextmanager
    def _pass(self, name: str, members: list[int], *, scoring: bool = False) -> Iterator[None]:
        """Times a pass for some plans. An SSM that fails is left out from then on."""
        start = time.perf_counter()
        try:
            yield
        except MODEL_FAULTS as error:
            self.failed[name] = error
            for drafts in self.results:
                drafts.pop(name, None)
            self._members[name] = []
            return
        span = Timed(name, "ahead", start, time.perf_counter())
        for i in members:
            draft = self._draft_of(i, name)
            # Kept apart: the time of scoring counts as wasted.
            (draft.scoring_timings if scoring else draft.draft_timings).append(span)


def _has_room(plan: AheadPlan, ssm: SsmDrafter) -> bool:
    """Whether the SSM has read the whole text and its context has room after the tree."""
    # One position for each level of the tree, and at least one below the tree for the draft.
    room = ssm.context_length - plan.sequence.root_position - plan.tree.depth
    return room > 1 and ssm.is_caught_up(plan.sequence)


def _utilities(logits: torch.Tensor, plan: AheadPlan) -> torch.Tensor:
    """Utilities (1 + nodes, V) that predict the LLM's token after the root and after each node:
    the logits or, under `match`, log q plus the Gumbel noise with which the LLM chooses."""
    sequence = plan.sequence
    logits = penalize_tree(logits, sequence.sampling, sequence.tokens, plan.tree)
    if not verify_rule(sequence.speculation.verify).reads_gumbel:
        return logits
    log_q = process_logits(logits, sequence.sampling).double().log_softmax(dim=-1)
    # The row of a node of depth d predicts the token at position root + 1 + d. Nodes of one depth
    # share that position's noise.
    first = sequence.root_position + 1
    depths = (0, *plan.tree.depths)
    noise = {depth: sequence.noise.gumbel(first + depth) for depth in set(depths)}
    return log_q + torch.stack([noise[depth] for depth in depths])
