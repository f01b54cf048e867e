"""The draft step of a round: plans the draft requests of all active requests and runs the drafters.

Requests that use the same drafter share its passes. Independent of the LLM and of verification.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from core.config.budget import cut_shape, shape_nodes
from core.config.mechanisms import draft_kind, drafts_together
from core.drafters import make_drafters
from core.drafters.ahead import AheadPlan, CancelSignal
from core.drafters.base import Drafter, DraftRequest, Drafts
from core.drafters.drafter_weights import needs_likelihoods
from core.drafters.lookup_base import LookupDrafter
from core.drafters.pooled_drafting import PooledRequest
from core.drafters.ssm_pool import SsmPool
from core.drafters.user_drafters import GuardedDrafter
from core.engine.ahead_events import ahead_results
from core.engine.audition_step import AuditionStep
from core.engine.remote_drafting import PlannedDrafts, RemoteDrafting
from core.engine.round_state import ActiveRequest, RoundState
from core.errors import MODEL_FAULTS
from core.events.parts import Timed
from core.models.loading.load import LoadedModels
from core.sequence import TokenSequence
from core.speculation_length import RoutedPolicy
from core.speculation_length.cost_model import Costs

__all__ = ["Drafting", "plan_draft_requests"]

# The number of latest texts that are kept until a run opens a lookup for the first time; then all
# lookups learn these texts. Bounded, since perhaps no run ever opens one.
MAX_UNLEARNED_TEXTS = 16


class Drafting:
    """Owns the drafters, by name."""

    def __init__(
        self, models: LoadedModels, costs: Costs, remote: RemoteDrafting | None = None
    ) -> None:
        vocab_size = models.llm.vocab_size
        self.ssm_pool = SsmPool(models.ssms, vocab_size)
        self._remote = remote
        self.auditions = AuditionStep(self.ssm_pool, costs, remote)
        # See `Engine.wire_ms`.
        self.wire_ms = 0.0
        self._drafters = make_drafters(
            self.ssm_pool, vocab_size, models.counts, models.user_drafters
        )
        lookups = [
            one
            for one in self._drafters.values()
            if isinstance(one, (LookupDrafter, GuardedDrafter)) and one.learns
        ]
        self._lookups = {one.name: one for one in lookups}
        # Finished texts that no lookup has learned yet.
        self._unlearned_texts: deque[TokenSequence] = deque(maxlen=MAX_UNLEARNED_TEXTS)
        self._lookup_in_use = False
        if remote is not None:
            self._drafters |= remote.drafters

    def by_names(self, names: Sequence[str]) -> tuple[Drafter, ...]:
        """The drafters with these names, in this order."""
        return tuple(self._drafters[name] for name in names)

    def draft(self, states: Sequence[RoundState]) -> None:
        """Fills in `route`, `draft_requests`, `drafts`, `ahead_events`, `log_probs` and `timings`
        of each state; with drafter nodes also `drafter_node_trips` and `requests_served_ahead`.
        Updates the drafter weights."""
        for state in states:
            # The audition comes first, since the router chooses by its scores.
            self.auditions.before_route(state)
            _route(state)
        plans: PlannedDrafts = [(state, self.draft_requests(state)) for state in states]
        if self._remote is not None:
            # First, so that drafter nodes draft while the SSMs in this process do.
            plans = self._remote.begin(plans)
        by_drafter: dict[str, list[tuple[RoundState, DraftRequest]]] = {}
        for state, requests in self._draft_together(plans):
            for draft_request in requests:
                # Regrouped by drafter: one drafter's passes serve all requests.
                by_drafter.setdefault(draft_request.name, []).append((state, draft_request))
        self._draft_by_drafter(by_drafter)
        if self._remote is not None:
            self._remote.finish()
        if self.wire_ms:
            self._wait_for_wire(states)
        for state in states:
            # The drafts are in the order in which the batch's drafters ran; events list them by
            # drafter index.
            state.drafts = dict(sorted(state.drafts.items()))
            for draft in state.drafts.values():
                state.timings.extend(draft.timings)
            # After the drafting, which uses some of the drafts made ahead.
            state.ahead_events = ahead_results(state)
            _update_likelihoods(state)

    def _wait_for_wire(self, states: Sequence[RoundState]) -> None:
        """Sleeps for `wire_ms`, as if the SSMs in this process were on a drafter node; each of
        their drafts that was begun gets a span of this time."""
        waiting = [
            (state, index, draft)
            for state in states
            for index, draft in state.drafts.items()
            if draft.passes and state.request.drafters[index].name in self.ssm_pool.ssms
        ]
        if not waiting:
            return
        start = time.perf_counter()
        time.sleep(self.wire_ms / 1000)
        end = time.perf_counter()
        for state, index, draft in waiting:
            name = state.request.drafters[index].name
            # All drafts of a run come in one message.
            count = sum(one is state for one, _, _ in waiting)
            wire = Timed(name, "wire", start, end, 1 / count)
            state.drafts[index] = replace(draft, timings=(*draft.timings, wire))

    def draft_requests(self, state: RoundState) -> list[DraftRequest]:
        """The draft requests of a round; opens each drafter at its first request. Leaves out
        drafters that fail to open."""
        requests = [
            one for one in plan_draft_requests(state) if self._ensure_open(state.request, one.index)
        ]
        state.draft_requests = tuple(requests)
        return requests

    def draft_ahead(self, states: Sequence[RoundState], pass_ended: CancelSignal) -> None:
        """Drafts for the next round while the LLM verifies the trees of `states`. A state in which
        no SSM of this process drafted is left out."""
        plans = [(state, plan) for state in states if (plan := self._plan(state)).weights]
        if not plans:
            return
        # Errors are returned, not raised: an error raised on the drafting thread would end the
        # round.
        results, errors = self.ssm_pool.draft_ahead([plan for _, plan in plans], pass_ended)
        for (state, _), by_drafter in zip(plans, results, strict=True):
            state.next_drafts = by_drafter
        for name, error in errors.items():
            for state, _ in plans:
                for index, drafter in enumerate(state.request.drafters):
                    if drafter.name == name and index in state.request.open_drafters:
                        state.request.drop_drafter(index, error)

    def begin_remote_ahead(self, states: Sequence[RoundState]) -> None:
        """Requests drafts for the next round from the drafter nodes, to be made while the LLM
        verifies the trees of `states`."""
        if self._remote is not None:
            self._remote.begin_ahead([(state, plan_draft_requests(state, 1)) for state in states])

    def end_remote_ahead(self, states: Sequence[RoundState]) -> None:
        """Takes the drafts of the drafter nodes, once the LLM's pass has ended."""
        if self._remote is not None:
            self._remote.end_ahead(states)

    def _plan(self, state: RoundState) -> AheadPlan:
        """The SSMs that drafted in this round, and their draft requests for the next round. These
        have the length that the policy chose for this round."""
        weights = state.vote_weights.weights
        names = {i: state.request.drafters[i].name for i in state.drafts}
        ssms = {i: name for i, name in names.items() if name in self.ssm_pool.ssms}
        # How many tokens an outcome may commit: an accepted path and the LLM's own token.
        counts = range(1, state.tree.depth + 2)
        return AheadPlan(
            state.request.sequence,
            state.tree,
            {name: weights[i] for i, name in ssms.items()},
            tuple(
                {one.name: one for one in plan_draft_requests(state, tokens) if one.index in ssms}
                for tokens in counts
            ),
        )

    def commit(self, state: RoundState, committed: tuple[int, ...]) -> None:
        """Commits the `committed` tokens in every open drafter."""
        request = state.request
        for index in sorted(request.open_drafters):
            try:
                # A drafter that did not draft in this round is called too, with draft None, so that
                # it drops its pending state.
                draft = state.drafts.get(index)
                request.drafters[index].commit(request.sequence, draft, committed)
            except MODEL_FAULTS as error:
                request.drop_drafter(index, error)

    def close(self, request: ActiveRequest) -> None:
        """Closes the request in every open drafter; safe to call in any state. A text that came to
        its end is kept for the lookups, which learn it now if a run has ever opened a lookup."""
        for index in request.open_drafters:
            with suppress(*MODEL_FAULTS):  # the run is over: there is no round to report it in
                request.drafters[index].close(request.sequence)
        request.open_drafters.clear()
        # A run that was cancelled or failed is not learned: `suffix` keeps one text for each
        # prompt, and `table` would count this beginning again with each later run.
        if request.sequence.finish_reason not in ("", "failed"):
            self._unlearned_texts.append(request.sequence)
        # Nothing is learned before a run opens a lookup for the first time: compiling the lookups'
        # functions could delay every live request for seconds.
        if self._lookup_in_use:
            self._learn()
        if self._remote is not None:
            self._remote.forget(request)

    def _learn(self) -> None:
        for sequence in self._unlearned_texts:
            for lookup in self._lookups.values():
                with suppress(*MODEL_FAULTS):  # as in `close`
                    lookup.learn(sequence)
        self._unlearned_texts.clear()

    def _ensure_open(self, request: ActiveRequest, index: int) -> bool:
        """Opens the request in a drafter unless it is open; False if the drafter fails."""
        if index not in request.open_drafters:
            # Added first, so that `close` also reaches a drafter that failed while it was opening a
            # row.
            request.open_drafters.add(index)
            if request.drafters[index].name in self._lookups and not self._lookup_in_use:
                self._lookup_in_use = True
                self._learn()
            try:
                request.timings.extend(request.drafters[index].open(request.sequence))
            except MODEL_FAULTS as error:
                request.drop_drafter(index, error)
        return index in request.open_drafters

    def _draft_by_drafter(
        self, by_drafter: Mapping[str, Sequence[tuple[RoundState, DraftRequest]]]
    ) -> None:
        """Runs each drafter once for all requests that use it, all SSMs in one call. A drafter that
        fails is dropped from each of these requests."""
        requests = {name: [one for _, one in pairs] for name, pairs in by_drafter.items()}
        for name, drafts in self._draft_all(requests).items():
            if isinstance(drafts, BaseException):
                for state, draft_request in by_drafter[name]:
                    state.request.drop_drafter(draft_request.index, drafts)
            else:
                for (state, draft_request), draft in zip(by_drafter[name], drafts, strict=True):
                    state.drafts[draft_request.index] = draft

    def _draft_all(self, requests: Mapping[str, list[DraftRequest]]) -> dict[str, Drafts]:
        """The drafts of each drafter, or its error."""
        # SSMs in one call: SSMs of one shape share each pass.
        of_ssms = {name: requests[name] for name in requests if name in self.ssm_pool.ssms}
        drafts: dict[str, Drafts] = {}
        try:
            drafts |= self.ssm_pool.draft(of_ssms) if of_ssms else {}
        except MODEL_FAULTS as error:
            # An SSM's own error is in its place in the result. An error raised here names no SSM:
            # all SSMs are dropped.
            drafts |= dict.fromkeys(of_ssms, error)
        for name in [name for name in requests if name not in of_ssms]:
            try:
                drafts[name] = self._drafters[name].draft(requests[name])
            except MODEL_FAULTS as error:
                drafts[name] = error
        return drafts

    def _draft_together(self, plans: PlannedDrafts) -> PlannedDrafts:
        """Drafts for the runs whose SSMs draft one tree together (`log_pool` and fusion). Returns
        the draft requests that are left for the other drafters."""
        pools: list[tuple[RoundState, PooledRequest]] = []
        others: PlannedDrafts = []
        for state, requests in plans:
            speculation = state.speculation
            together = drafts_together(speculation.draft, speculation.combine)
            of_ssms = [one for one in requests if together and one.name in self.ssm_pool.ssms]
            if of_ssms:
                weights = state.vote_weights.weights
                own = tuple(weights[one.index] for one in of_ssms)
                pools.append((state, PooledRequest(tuple(of_ssms), own)))
            others.append((state, [one for one in requests if one not in of_ssms]))
        results = self.ssm_pool.draft_together([pool for _, pool in pools]) if pools else []
        for (state, pool), drafts in zip(pools, results, strict=True):
            if not isinstance(drafts, BaseException):
                pairs = zip(pool.requests, drafts, strict=True)
                state.drafts |= {one.index: draft for one, draft in pairs}
                continue
            # This round continues without these drafts; the next round uses the SSMs that are left.
            for draft_request in pool.failed_requests(drafts):
                state.request.drop_drafter(draft_request.index, drafts)
        return others


def _route(state: RoundState) -> None:
    """Lets the request's router, if any, choose the SSMs that draft in this round."""
    state.route, policy = state.request.route(), state.request.policy
    if state.route is not None and isinstance(policy, RoutedPolicy):
        policy.use_drafters(state.route.drafters)


def plan_draft_requests(state: RoundState, beyond: int = 0) -> list[DraftRequest]:
    """The draft requests of a round. The shape and the node budget of each drafter are fixed before
    anything is drawn: a cut that depended on the drawn tokens would bias `mss` and `traversal`.

    `beyond`: the number of tokens between the text's end and the draft's beginning (drafting
    ahead). It does not change the policy's choice of a length.
    """
    request, sequence, choice = state.request, state.request.sequence, state.choice
    config = state.speculation
    shape = config.shape(max(0, min(choice.length, sequence.room - beyond)))
    if not shape:
        return []
    indices = request.drafters_for(choice)
    draft_requests = []
    for index, budget in zip(indices, request.budgets(shape_nodes(shape), indices), strict=True):
        # Kinds that spend their budget by score keep the shape; for other kinds it is cut
        # beforehand.
        cut = shape if draft_kind(config.draft).by_score else cut_shape(shape, budget)
        name = request.drafters[index].name
        if budget and cut:
            draft_request = DraftRequest(
                sequence, index, config.draft, cut, budget, name, choice.stop, beyond
            )
            draft_requests.append(draft_request)
    return draft_requests


def _update_likelihoods(state: RoundState) -> None:
    """Updates the drafter weights, and fills in `log_probs`, with the probabilities that each
    drafter gave to the tokens committed since its last report."""
    if not needs_likelihoods(state.speculation):
        return
    request, sequence = state.request, state.request.sequence
    caught_up = {index for index, draft in state.drafts.items() if draft.passes}
    likelihoods = {}
    for index in sorted(request.open_drafters):
        name = request.drafters[index].name
        try:
            likelihoods[name] = request.drafters[index].likelihoods(sequence)
        except MODEL_FAULTS as error:
            request.drop_drafter(index, error)
            continue
        # A drafter that drafted has read the whole text; another drafter may lag by some tokens.
        whole = index in caught_up
        count = len(likelihoods[name])
        request.likelihood_history.advance(name, count, len(sequence.tokens), whole=whole)
    request.weights.observe_likelihoods(likelihoods, request.likelihood_history)
    state.log_probs = {name: _logs(probabilities) for name, probabilities in likelihoods.items()}


def _logs(probabilities: Sequence[float]) -> list[float]:
    """Logarithms; NaN stays NaN, and a probability of 0 is -inf."""
    return [math.log(p) if p > 0 else p if math.isnan(p) else -math.inf for p in probabilities]
