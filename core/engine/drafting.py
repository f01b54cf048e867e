"""The draft step of a round: plans the draft requests and runs the drafters."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from core.config.budget import cut_shape, shape_nodes
from core.config.mechanisms import draft_kind, drafts_together
from core.drafters import make_drafters
from core.drafters.ahead import AheadPlan, CancelSignal
from core.drafters.base import Drafter, DraftRequest, Drafts
from core.drafters.drafter_weights import needs_likelihoods
from core.drafters.lookup_base import LookupDrafter
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
from core.trees.draft import Draft

__all__ = ["Drafting", "plan_draft_requests"]

# At most this many finished texts are kept until a run opens a lookup drafter.
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
        self._unlearned_texts: deque[TokenSequence] = deque(maxlen=MAX_UNLEARNED_TEXTS)
        self._lookup_in_use = False
        if remote is not None:
            self._drafters |= remote.drafters

    def by_names(self, names: Sequence[str]) -> tuple[Drafter, ...]:
        """The drafters with these names, in this order."""
        return tuple(self._drafters[name] for name in names)

    def draft(self, states: Sequence[RoundState]) -> None:
        """Routes and drafts, and fills in the results in each state."""
        for state in states:
            # Before the route: a router may choose by the audition's scores.
            self.auditions.before_route(state)
            _route(state)
        plans: PlannedDrafts = [(state, self.draft_requests(state)) for state in states]
        if self._remote is not None:
            # First, so that drafter nodes draft while the SSMs in this process do.
            plans = self._remote.begin(plans)
        self._draft_locally(plans)
        if self._remote is not None:
            self._remote.finish()
        if self.wire_ms:
            self._wait_for_wire(states)
        for state in states:
            state.drafts = dict(sorted(state.drafts.items()))
            for draft in state.drafts.values():
                state.timings.extend(draft.timings)
            state.ahead_events = ahead_results(state)
            _update_likelihoods(state)

    def _wait_for_wire(self, states: Sequence[RoundState]) -> None:
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
            # One message would carry all drafts of a run.
            count = sum(one is state for one, _, _ in waiting)
            wire = Timed(name, "wire", start, end, 1 / count)
            state.drafts[index] = replace(draft, timings=(*draft.timings, wire))

    def draft_requests(self, state: RoundState) -> list[DraftRequest]:
        """The draft requests of a round, without drafters that fail to open."""
        requests = [
            one for one in plan_draft_requests(state) if self._ensure_open(state.request, one.index)
        ]
        state.draft_requests = tuple(requests)
        return requests

    def draft_ahead(self, states: Sequence[RoundState], pass_ended: CancelSignal) -> None:
        """Drafts for the next round of `states` while the LLM verifies their trees."""
        plans = [(state, plan) for state in states if (plan := self._plan(state)).weights]
        if not plans:
            return
        # Errors are returned: an error raised on the drafting thread would end the round.
        results, errors = self.ssm_pool.draft_ahead([plan for _, plan in plans], pass_ended)
        for (state, _), by_drafter in zip(plans, results, strict=True):
            state.next_drafts = by_drafter
        for name, error in errors.items():
            for state, _ in plans:
                for index, drafter in enumerate(state.request.drafters):
                    if drafter.name == name and index in state.request.open_drafters:
                        state.request.drop_drafter(index, error)

    def begin_remote_ahead(self, states: Sequence[RoundState]) -> None:
        """Requests drafts for the next round of `states` from the drafter nodes."""
        if self._remote is not None:
            self._remote.begin_ahead([(state, plan_draft_requests(state, 1)) for state in states])

    def end_remote_ahead(self, states: Sequence[RoundState]) -> None:
        """Takes the drafter nodes' drafts for the next round. Call it after the LLM's pass."""
        if self._remote is not None:
            self._remote.end_ahead(states)

    def _plan(self, state: RoundState) -> AheadPlan:
        weights = state.vote_weights.weights
        names = {i: state.request.drafters[i].name for i in state.drafts}
        ssms = {i: name for i, name in names.items() if name in self.ssm_pool.ssms}
        # The round commits an accepted path and the LLM's own token.
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
        """Tells every open drafter which tokens were committed."""
        request = state.request
        for index in sorted(request.open_drafters):
            try:
                # Called without a draft too: the drafter drops its pending state.
                draft = state.drafts.get(index)
                request.drafters[index].commit(request.sequence, draft, committed)
            except MODEL_FAULTS as error:
                request.drop_drafter(index, error)

    def close(self, request: ActiveRequest) -> None:
        """Closes the request in every open drafter; safe to call in any state."""
        for index in request.open_drafters:
            with suppress(*MODEL_FAULTS):  # no later round of the run could report the error
                request.drafters[index].close(request.sequence)
        request.open_drafters.clear()
        # Not a cancelled or failed run: the drafter `suffix` keeps only the first text of a prompt.
        if request.sequence.finish_reason not in ("", "failed"):
            self._unlearned_texts.append(request.sequence)
        # Not before a run opens a lookup: compiling could delay every live request for seconds.
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
        """Returns False if the drafter fails to open."""
        if index not in request.open_drafters:
            # Added first: `drop_drafter` discards the index.
            request.open_drafters.add(index)
            if request.drafters[index].name in self._lookups and not self._lookup_in_use:
                self._lookup_in_use = True
                self._learn()
            try:
                request.timings.extend(request.drafters[index].open(request.sequence))
            except MODEL_FAULTS as error:
                request.drop_drafter(index, error)
        return index in request.open_drafters

    def _draft_locally(self, plans: PlannedDrafts) -> None:
        """Drafts with the drafters of this process."""
        ssms = self.ssm_pool.ssms
        runs: list[tuple[Sequence[DraftRequest], Sequence[float] | None]] = []
        # The requests to each of the other drafters are one call.
        others: dict[str, list[tuple[RoundState, DraftRequest]]] = {}
        for state, requests in plans:
            speculation, weights = state.speculation, None
            of_ssms = [one for one in requests if one.name in ssms]
            if drafts_together(speculation.draft, speculation.combine):
                weights = [state.vote_weights.weights[one.index] for one in of_ssms]
            runs.append((of_ssms, weights))
            for one in requests:
                if one.name not in ssms:
                    others.setdefault(one.name, []).append((state, one))
        for (state, _), results in zip(plans, self.ssm_pool.draft_runs(runs), strict=True):
            for draft_request, result in results:
                _take(state, draft_request, result)
        for name, pairs in others.items():
            try:
                drafts: Drafts = self._drafters[name].draft([one for _, one in pairs])
            except MODEL_FAULTS as error:
                drafts = error
            for i, (state, draft_request) in enumerate(pairs):
                draft = drafts if isinstance(drafts, BaseException) else drafts[i]
                _take(state, draft_request, draft)


def _take(state: RoundState, draft_request: DraftRequest, result: Draft | BaseException) -> None:
    if isinstance(result, BaseException):
        state.request.drop_drafter(draft_request.index, result)
    else:
        state.drafts[draft_request.index] = result


def _route(state: RoundState) -> None:
    state.route, policy = state.request.route(), state.request.policy
    if state.route is not None and isinstance(policy, RoutedPolicy):
        policy.use_drafters(state.route.drafters)


def plan_draft_requests(state: RoundState, beyond: int = 0) -> list[DraftRequest]:
    """The draft requests of a round. `beyond`: the number of tokens between the text's end and the
    draft's beginning.

    Shapes and budgets are fixed before anything is drawn: a cut that depended on drawn tokens would
    bias the verify rules `mss` and `traversal`.
    """
    request, sequence, choice = state.request, state.request.sequence, state.choice
    config = state.speculation
    shape = config.shape(max(0, min(choice.length, sequence.room - beyond)))
    if not shape:
        return []
    indices = request.drafters_for(choice)
    draft_requests = []
    for index, budget in zip(indices, request.budgets(shape_nodes(shape), indices), strict=True):
        # A draft without a fixed shape keeps to its budget by itself.
        cut = shape if draft_kind(config.draft).by_score else cut_shape(shape, budget)
        name = request.drafters[index].name
        if budget and cut:
            draft_request = DraftRequest(
                sequence, index, config.draft, cut, budget, name, choice.stop, beyond
            )
            draft_requests.append(draft_request)
    return draft_requests


def _update_likelihoods(state: RoundState) -> None:
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
        # A drafter that drafted has read the whole text.
        whole = index in caught_up
        count = len(likelihoods[name])
        request.likelihood_history.advance(name, count, len(sequence.tokens), whole=whole)
    request.weights.observe_likelihoods(likelihoods, request.likelihood_history)
    state.log_probs = {name: _logs(probabilities) for name, probabilities in likelihoods.items()}


def _logs(probabilities: Sequence[float]) -> list[float]:
    return [math.log(p) if p > 0 else p if math.isnan(p) else -math.inf for p in probabilities]
