"""Drafting: step 2 of a round, for all live requests: what each drafter is asked, and its drafts.

Requests that ask the same drafter share its passes. Knows no LLM and no verification.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from contextlib import suppress

from core.config.budget import cut_shape, shape_nodes
from core.config.mechanisms import combine_rule, draft_kind
from core.drafters import make_drafters
from core.drafters.ahead import AheadPlan, PassEnded
from core.drafters.base import Drafter, DraftRequest, Drafts
from core.drafters.pooled_drafting import PooledAsk
from core.drafters.ssm_pool import SsmPool
from core.drafters.weights import needs_likelihoods
from core.engine.ahead_results import ahead_results
from core.engine.round_state import ActiveRequest, RoundState
from core.errors import DRAFTER_FAULTS, DrafterError
from core.length import Auditions
from core.models.loading.load import LoadedModels

__all__ = ["Drafting", "asks_of"]


class Drafting:
    """Owns the drafters, by name."""

    def __init__(self, models: LoadedModels) -> None:
        self.ssm_pool = SsmPool(models.ssms, models.llm.vocab_size)
        self._drafters = make_drafters(self.ssm_pool)

    def named(self, names: Many[str]) -> tuple[Drafter, ...]:
        """The drafters of a run, in its order."""
        return tuple(self._drafters[name] for name in names)

    def audition(self, live: ActiveRequest) -> None:
        """Tells a length policy that chooses drafters how well each of several SSMs predicts the
        prompt: specialised ones differ, and to let all of them draft costs rounds."""
        names = [one.name for one in live.drafters if one.name in self.ssm_pool.ssms]
        policy = live.policy
        if len(names) < 2 or not isinstance(policy, Auditions) or not policy.chooses:
            return
        scores, timed = self.ssm_pool.prompt_scores(names, live.sequence.prompt_ids)
        live.timed += timed
        policy.hear(scores)

    def draft(self, turns: Many[RoundState]) -> None:
        """Fills in each turn's drafts, judges what was made of them ahead, and tells its weights
        what the drafters learnt."""
        alone: dict[str, list[tuple[RoundState, DraftRequest]]] = {}
        for turn in turns:
            for ask in self._draft_together(turn, self.asks(turn)):
                alone.setdefault(ask.name, []).append((turn, ask))
        self._draft_alone(alone)
        for turn in turns:
            # A neighbour in the batch may have asked in another order: each keeps its own.
            turn.drafts = dict(sorted(turn.drafts.items()))
            for draft in turn.drafts.values():
                turn.timed.extend(draft.timed)
            turn.ahead = ahead_results(turn)
            _hear(turn)

    def asks(self, turn: RoundState) -> list[DraftRequest]:
        """Of the turn's drafters that know its request, which they are told when first asked."""
        return [ask for ask in asks_of(turn) if self._opened(turn.live, ask.index)]

    def draft_ahead(self, turns: Many[RoundState], done: PassEnded) -> None:
        """Drafts for the next round of turns whose trees are being verified. A turn without an SSM
        that drafted is left out: none of its SSMs has read the whole text."""
        planned = [(turn, plan) for turn in turns if (plan := self._plan(turn)).weights]
        if not planned:
            return
        seen, failed = self.ssm_pool.draft_ahead([plan for _, plan in planned], done)
        for (turn, _), found in zip(planned, seen, strict=True):
            turn.foreseen = found
        for name, error in failed.items():
            for turn, _ in planned:
                for index, drafter in enumerate(turn.live.drafters):
                    if drafter.name == name and index in turn.live.opened:
                        turn.live.lose(index, error)

    def _plan(self, turn: RoundState) -> AheadPlan:
        """The SSMs that drafted in this round, and what they will be asked for in the next if it is
        chosen like this one."""
        weights = turn.ballot.weights
        names = {i: turn.live.drafters[i].name for i in turn.drafts}
        ssms = {i: name for i, name in names.items() if name in self.ssm_pool.ssms}
        behind = range(1, turn.tree.depth + 2)
        return AheadPlan(
            turn.live.sequence,
            turn.tree,
            {name: weights[i] for i, name in ssms.items()},
            tuple(
                {ask.name: ask for ask in asks_of(turn, tokens) if ask.index in ssms}
                for tokens in behind
            ),
        )

    def commit(self, turn: RoundState, committed: tuple[int, ...]) -> None:
        """Commits the accepted tokens in every open drafter."""
        live = turn.live
        for index in sorted(live.opened):
            try:
                draft = turn.drafts.get(index)
                live.drafters[index].commit(live.sequence, draft, committed)
            except DRAFTER_FAULTS as error:
                live.lose(index, error)

    def close(self, live: ActiveRequest) -> None:
        """Closes the request in every open drafter; safe to call in any state."""
        for index in live.opened:
            with suppress(*DRAFTER_FAULTS):  # the run is over: there is no round to report it in
                live.drafters[index].close(live.sequence)
        live.opened.clear()

    def _opened(self, live: ActiveRequest, index: int) -> bool:
        """Whether a drafter knows the request, which it is told when first asked."""
        if index not in live.opened:
            live.opened.add(index)
            try:
                live.timed.extend(live.drafters[index].open(live.sequence))
            except DRAFTER_FAULTS as error:
                live.lose(index, error)
        return index in live.opened

    def _draft_alone(self, asked: Mapping[str, Many[tuple[RoundState, DraftRequest]]]) -> None:
        """Each drafter's drafts for all who ask it, the SSMs' at once; all lose one that fails."""
        asks = {name: [ask for _, ask in whose] for name, whose in asked.items()}
        for name, drafts in self._answers(asks).items():
            if isinstance(drafts, BaseException):
                for turn, ask in asked[name]:
                    turn.live.lose(ask.index, drafts)
            else:
                for (turn, ask), draft in zip(asked[name], drafts, strict=True):
                    turn.drafts[ask.index] = draft

    def _answers(self, asks: Mapping[str, list[DraftRequest]]) -> dict[str, Drafts]:
        """The drafts of each drafter, or its error."""
        of_ssms = {name: asks[name] for name in asks if name in self.ssm_pool.ssms}
        found: dict[str, Drafts] = {}
        try:
            found |= self.ssm_pool.draft(of_ssms) if of_ssms else {}
        except DRAFTER_FAULTS as error:
            found |= dict.fromkeys(of_ssms, error)
        for name in [name for name in asks if name not in of_ssms]:
            try:
                found[name] = self._drafters[name].draft(asks[name])
            except DRAFTER_FAULTS as error:
                found[name] = error
        return found

    def _draft_together(self, turn: RoundState, asks: list[DraftRequest]) -> list[DraftRequest]:
        """`log_pool`: the SSMs of a run draft one tree. Returns the asks left to draft alone."""
        pooled = [ask for ask in asks if ask.name in self.ssm_pool.ssms]
        if not combine_rule(turn.speculation.combine).pooled or not pooled:
            return asks
        weights = turn.ballot.weights
        shared = PooledAsk(tuple(pooled), tuple(weights[ask.index] for ask in pooled))
        try:
            drafts = self.ssm_pool.draft_pooled(shared)
            for ask, draft in zip(pooled, drafts, strict=True):
                turn.drafts[ask.index] = draft
        except DRAFTER_FAULTS as error:
            # Without a pool's draft in this round; the next goes on with those that are left.
            named = [a for a in pooled if isinstance(error, DrafterError) and a.name == error.name]
            for ask in named or pooled:
                turn.live.lose(ask.index, error)
        return [ask for ask in asks if ask not in pooled]


def asks_of(turn: RoundState, beyond: int = 0) -> list[DraftRequest]:
    """What each drafter is asked for: shapes and budgets, fixed before anything is drawn; for a
    draft that begins `beyond` tokens behind the text, if the next round is chosen like this."""
    live, sequence, choice = turn.live, turn.live.sequence, turn.choice
    config = turn.speculation
    shape = config.shape(max(0, min(choice.length, sequence.room - beyond)))
    asked = live.asked(choice)
    asks = []
    for index, budget in zip(asked, live.budgets(shape_nodes(shape), asked), strict=True):
        # Best first spends its budget by score; the others are cut beforehand.
        fitted = shape if draft_kind(config.draft).by_score else cut_shape(shape, budget)
        name = live.drafters[index].name
        if shape and budget and fitted:
            ask = DraftRequest(
                sequence, index, config.draft, fitted, budget, name, choice.stop, beyond
            )
            asks.append(ask)
    return asks


def _hear(turn: RoundState) -> None:
    """The weights hear how probable the drafters held what was committed since."""
    if not needs_likelihoods(turn.speculation):
        return
    live, sequence = turn.live, turn.live.sequence
    caught_up = {index for index, draft in turn.drafts.items() if draft.passes}
    told = {}
    for index in sorted(live.opened):
        name = live.drafters[index].name
        told[name] = live.drafters[index].likelihoods(sequence)
        whole = index in caught_up
        live.heard.reach(name, len(told[name]), len(sequence.tokens), whole=whole)
    live.weights.foretold(told, live.heard)
