"""Drafting, step 2 of a round, for all active requests: what each drafter is asked for, its
drafts, and the results of drafts made ahead.

Requests that use the same drafter share its passes. Knows no LLM and no verification. A draft
ahead counts as a hit only once the next round has used it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from contextlib import suppress

from core.config.budget import cut_shape, shape_nodes
from core.config.mechanisms import combine_rule, draft_kind
from core.drafters import make_drafters
from core.drafters.ahead import AheadDraft, AheadPlan, PassEnded
from core.drafters.base import Drafter, DraftRequest, Drafts
from core.drafters.pooled_drafting import PooledAsk
from core.drafters.ssm_pool import SsmPool
from core.drafters.weights import needs_likelihoods
from core.engine.round_state import ActiveRequest, AheadDrafts, RoundState
from core.errors import DRAFTER_FAULTS, DrafterError
from core.events import Ahead
from core.events.parts import Timed
from core.length import Auditions
from core.metrics import LLM_LANE
from core.models.loading.load import LoadedModels

__all__ = ["Drafting", "ahead_drafts", "ahead_results", "asks_of", "hidden_ms", "unused_at_end"]


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


def ahead_drafts(turn: RoundState, committed: tuple[int, ...]) -> AheadDrafts | None:
    """What was drafted beside the turn's pass, for the round behind what it committed."""
    if not turn.foreseen:
        return None
    passes = tuple(t for t in turn.timed if t.lane == LLM_LANE)
    return AheadDrafts(turn.foreseen, passes, committed)


def ahead_results(turn: RoundState) -> tuple[Ahead, ...]:
    """What the drafts made for this turn came to, now that it has drafted."""
    if turn.ahead_drafts is None:
        return ()
    used = {turn.live.drafters[i].name: draft.ahead for i, draft in turn.drafts.items()}
    told = []
    for name, seen in _in_order(turn, turn.ahead_drafts):
        if turn.ahead_drafts.committed not in seen.outcomes:
            told.append(_ahead(name, seen, "wrong"))
        elif not used.get(name):
            told.append(_ahead(name, seen, "unused"))
        else:
            told.append(_ahead(name, seen, "", used[name], turn.ahead_drafts.passes))
    return tuple(told)


def unused_at_end(turn: RoundState, unasked: AheadDrafts | None) -> tuple[Ahead, ...]:
    """What was drafted for a round that will not come, since the text has ended."""
    if unasked is None:
        return ()
    return tuple(_ahead(name, seen, "ended") for name, seen in _in_order(turn, unasked))


def _in_order(turn: RoundState, what: AheadDrafts) -> Iterator[tuple[str, AheadDraft]]:
    """By the run's order of drafters."""
    for drafter in turn.live.drafters:
        if drafter.name in what.seen:
            yield drafter.name, what.seen[drafter.name]


def _ahead(
    name: str, seen: AheadDraft, reason: str, used: int = 0, passes: Many[Timed] = ()
) -> Ahead:
    """`used`: how many of the passes that drafted are in the draft; the others were for nothing, as
    is every look at the tree."""
    for_nothing = [*seen.looked, *seen.drafted[used:]]
    return Ahead(
        drafter=name,
        outcomes=len(seen.outcomes),
        probability=min(1.0, sum(seen.outcomes.values(), 0.0)),
        hit=not reason,
        saved_ms=hidden_ms(seen.drafted[:used], passes),
        wasted_ms=1000 * sum((t.seconds for t in for_nothing), 0.0),
        reason=reason,
    )


def hidden_ms(timed: Many[Timed], passes: Many[Timed]) -> float:
    """How much of a work was done while the LLM's passes ran."""
    shared = (
        one.share * max(0.0, min(one.end, other.end) - max(one.start, other.start))
        for one in timed
        for other in passes
    )
    return 1000 * sum(shared, 0.0)
