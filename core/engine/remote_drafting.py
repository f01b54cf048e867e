"""A round's drafts from SSMs on drafter nodes: sends the draft requests and fills in the answers.

Between `begin` and `finish` the nodes draft for this round. Between `begin_ahead` and `end_ahead`
the nodes draft for the next round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.config.budget import cut_shape
from core.config.mechanisms import draft_kind, drafts_together, is_model_free
from core.drafters.base import Drafter, DraftRequest
from core.engine.round_state import ActiveRequest, RoundState
from core.errors import DrafterError

if TYPE_CHECKING:
    from core.remote_ssms.ahead import AheadRun
    from core.remote_ssms.client import RemotePool
    from core.remote_ssms.pending_round import NodeAnswers
    from core.remote_ssms.run_requests import RemoteRun

__all__ = ["PartialAudition", "PlannedDrafts", "RemoteDrafting", "TakesAudition"]

LEAST_WAIT_S, WAIT_PASSES = 1.0, 4.0
"""A round waits for a drafter node at most LEAST_WAIT_S seconds or the time of WAIT_PASSES LLM
passes without drafts, whichever is longer."""
AUDITIONS = 4
"""At most so many incomplete auditions of a run are repeated. A node easily misses its first
deadline: it reads the prompt first."""
PlannedDrafts = list[tuple[RoundState, list[DraftRequest]]]
TakesAudition = Callable[[Mapping[str, Sequence[float]], float], None]
"""Called with the log-probabilities of the scored tokens by SSM name, and the milliseconds of
scoring."""


@dataclass(slots=True)
class PartialAudition:
    """An audition: SSMs on drafter nodes score the text's last tokens. `to_score`: the names of
    these SSMs. `window`: the number of tokens to score. `log_probs`, `ms`: results and milliseconds
    of the SSMs in this process."""

    to_score: tuple[str, ...]
    window: int
    observe: TakesAudition
    log_probs: dict[str, list[float]] = field(default_factory=dict)
    ms: float = 0.0


class RemoteDrafting:
    """The drafts of an engine's requests by SSMs on drafter nodes. `plain_ms`: the predicted time
    of an LLM pass without drafts, in milliseconds."""

    def __init__(self, pool: RemotePool, plain_ms: Callable[[], float]) -> None:
        self._pool = pool
        self._plain_ms = plain_ms
        self._auditions: dict[str, PartialAudition] = {}
        self._misses: Counter[str] = Counter()  # incomplete auditions, by run
        self._states: list[RoundState] = []

    @property
    def drafters(self) -> Mapping[str, Drafter]:
        """The drafter nodes' SSMs by name."""
        return self._pool.drafters

    def context_length(self, name: str) -> int:
        """The context length, in tokens, of an SSM on a drafter node."""
        return self._pool.drafters[name].info.context_length

    def expects_audition(self, request: ActiveRequest) -> bool:
        """Whether an audition of this request waits for scores."""
        return request.run_id in self._auditions

    def add_audition(self, request: ActiveRequest, audition: PartialAudition) -> None:
        """Requests an audition together with the next drafts."""
        self._auditions[request.run_id] = audition

    def forget(self, request: ActiveRequest) -> None:
        """Drops the state of a request that has ended, here and on the drafter nodes."""
        self._auditions.pop(request.run_id, None)
        self._misses.pop(request.run_id, None)
        self._pool.free(request.sequence)

    def begin(self, plans: PlannedDrafts) -> PlannedDrafts:
        """Sends the draft requests of SSMs on drafter nodes; returns the other draft requests."""
        here: PlannedDrafts = []
        runs, self._states = [], []
        for state, requests in plans:
            # Before the requests are divided by process: the budget is for all processes.
            requests = self._within_budget(state, requests)
            here.append((state, [one for one in requests if one.name not in self.drafters]))
            there = tuple(one for one in requests if one.name in self.drafters)
            audition = self._auditions.get(state.request.run_id)
            if there or audition:
                runs.append(self._remote_run(state, there, audition))
                self._states.append(state)
        if runs:
            # Drafts that take longer than several LLM passes save no time.
            self._pool.begin(runs, max(LEAST_WAIT_S, WAIT_PASSES * self._plain_ms() / 1000))
        return here

    def _remote_run(
        self,
        state: RoundState,
        requests: tuple[DraftRequest, ...],
        audition: PartialAudition | None,
    ) -> RemoteRun:
        from core.remote_ssms.run_requests import RemoteRun

        return RemoteRun(
            state.request.sequence,
            requests,
            state.vote_weights.weights,
            audition.to_score if audition else (),
            audition.window if audition else 0,
            state.speculation.record_top_k,
        )

    def _within_budget(self, state: RoundState, requests: list[DraftRequest]) -> list[DraftRequest]:
        """Divides a tree's node budget among the processes whose SSMs draft the tree together."""
        if not drafts_together(state.speculation.draft, state.speculation.combine):
            return requests
        ssms = [one for one in requests if not is_model_free(one.name)]
        places = [self._pool.place_of(one.name) for one in ssms]
        in_budget = [one for one in requests if is_model_free(one.name)]
        for request, place in zip(ssms, places, strict=True):
            budget = request.budget * places.count(place) // len(places)
            # Drafts of these kinds are cut to the budget while they are made.
            cut_later = draft_kind(request.kind).by_score or draft_kind(request.kind).fused
            shape = request.shape if cut_later else cut_shape(request.shape, budget)
            if budget:
                in_budget.append(replace(request, budget=budget, shape=shape))
        return sorted(in_budget, key=lambda one: one.index)

    def finish(self) -> None:
        """Waits for the drafter nodes, and fills in their drafts."""
        # Cleared before the code below can fail: no round is waited for twice.
        states, self._states = self._states, []
        if not states:
            return
        answers, plain_ms = self._pool.finish(), self._plain_ms()
        for state in states:
            request = state.request
            answer = answers[request.run_id]
            state.drafts |= answer.drafts
            state.drafter_node_trips = tuple(
                replace(trip, plain_ms=plain_ms) for trip in answer.trips
            )
            request.notes += answer.notes
            state.requests_served_ahead = tuple(answer.ahead)
            for index, error in answer.errors.items():
                request.drop_drafter(index, DrafterError(request.drafters[index].name, error))
            self._finish_audition(request, answer)

    def _finish_audition(self, request: ActiveRequest, answer: NodeAnswers) -> None:
        run_id = request.run_id
        # Popped in any case: an audition that some node missed is repeated as a whole.
        audition = self._auditions.pop(run_id, None)
        if audition is None:
            return
        if not answer.auditions.keys() >= {*audition.to_score} and self._misses[run_id] < AUDITIONS:
            self._misses[run_id] += 1
            request.had_audition = False
            return
        log_probs = {**audition.log_probs, **answer.auditions}
        audition.observe(log_probs, audition.ms + answer.audition_ms)

    def begin_ahead(self, plans: PlannedDrafts) -> None:
        """Requests drafts for the next round from the nodes' SSMs that drafted in this round.
        `plans`: the next round's draft requests if this round commits one token."""
        runs = []
        for state, requests in plans:
            there = tuple(
                one for one in requests if one.name in self.drafters and one.index in state.drafts
            )
            if there:
                runs.append(self._ahead_run(state, there))
        if runs:
            self._pool.begin_ahead(runs)

    def _ahead_run(self, state: RoundState, requests: tuple[DraftRequest, ...]) -> AheadRun:
        from core.remote_ssms.ahead import AheadRun

        sequence = state.request.sequence
        return AheadRun(
            sequence,
            state.tree,
            requests,
            state.requests_served_ahead,
            state.vote_weights.weights,
            sequence.room,
            state.speculation.record_top_k,
        )

    def end_ahead(self, states: Sequence[RoundState]) -> None:
        """Takes the drafts for the next round that have arrived; does not wait."""
        drafts_by_name = self._pool.end_ahead([state.request.sequence for state in states])
        # The drafting thread has filled in the drafts of this process.
        for state, drafts in zip(states, drafts_by_name, strict=True):
            state.next_drafts |= drafts
