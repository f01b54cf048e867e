"""Auditions: SSMs score the text's last tokens. A router or a length policy chooses among the SSMs
by these scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from core.drafters.ssm import AUDITION
from core.drafters.ssm_pool import MIN_TOKENS, SsmPool
from core.engine.remote_drafting import PartialAudition, RemoteDrafting, TakesAudition
from core.engine.round_state import ActiveRequest, RoundState
from core.events.parts import Timed
from core.speculation_length import Auditions
from core.speculation_length.cost_model import Costs

__all__ = ["AuditionStep"]


class AuditionStep:
    """Runs auditions of SSMs in this process and on drafter nodes."""

    def __init__(self, ssm_pool: SsmPool, costs: Costs, remote: RemoteDrafting | None) -> None:
        self._ssm_pool = ssm_pool
        self._costs = costs
        self._remote = remote

    def before_first_draft(self, request: ActiveRequest) -> None:
        """Runs a request's first audition if its router or length policy chooses by scores. Call it
        before each draft: the text may be too short at first."""
        too_short = len(request.sequence.tokens) < MIN_TOKENS
        if request.had_audition or not request.may_draft or too_short:
            return
        request.had_audition = True
        names = self._ssm_names(request)
        policy = request.policy
        chooses = isinstance(policy, Auditions) and policy.chooses
        routes = request.router is not None and request.router.needs_audition
        if len(names) < 2 or not (chooses or routes):
            return
        window = AUDITION if request.router is None else request.router.audition_window

        def observe(log_probs: Mapping[str, Sequence[float]], ms: float) -> None:
            if isinstance(policy, Auditions) and policy.chooses:
                means = {n: sum(each) / len(each) for n, each in log_probs.items() if each}
                policy.observe_audition(means)
            _observe_router(request, log_probs, ms)

        # Added to the request's timings: before its first round there is no RoundState.
        request.timings += self._audition(request, names, "prefill", window, observe)

    def before_route(self, state: RoundState) -> None:
        """Runs an audition if the request's router needs one."""
        request, router = state.request, state.request.router
        # An audition that waits for the nodes' scores is not requested twice.
        waiting = self._remote is not None and self._remote.expects_audition(request)
        if router is None or not router.needs_audition or not request.may_draft or waiting:
            return
        names, observe = self._ssm_names(request), partial(_observe_router, request)
        state.timings += self._audition(request, names, "audition", router.audition_window, observe)

    def _audition(
        self,
        request: ActiveRequest,
        names: Sequence[str],
        stage: str,
        window: int,
        observe: TakesAudition,
    ) -> list[Timed]:
        """Calls `observe` at once unless an SSM is on a drafter node."""
        here = [name for name in names if name in self._ssm_pool.ssms]
        there = tuple(name for name in names if name not in here)
        if there and self._remote is not None:
            # All SSMs score the same tokens: the shortest context limits the window.
            window = min([window, *(self._remote.context_length(name) for name in there)])
            window = min([window, *(self._ssm_pool.ssms[name].context_length for name in here)])
        log_probs, timings = self._ssm_pool.audition(
            here, request.sequence.tokens, stage=stage, window=window
        )
        # These times stand in for the drafting times of SSMs that have not drafted.
        for one in timings:
            self._costs.draft_costs(one.lane).audition.add(one.seconds * 1000)
        ms = sum(one.seconds for one in timings) * 1000
        if there and self._remote is not None:
            # Sent with the next draft requests, to save a round trip.
            audition = PartialAudition(there, window, observe, log_probs, ms)
            self._remote.add_audition(request, audition)
        else:
            observe(log_probs, ms)
        return timings

    def _ssm_names(self, request: ActiveRequest) -> list[str]:
        remote = () if self._remote is None else self._remote.drafters
        return [
            drafter.name
            for index, drafter in enumerate(request.drafters)
            if index not in request.lost_drafters
            and (drafter.name in self._ssm_pool.ssms or drafter.name in remote)
        ]


def _observe_router(
    request: ActiveRequest, log_probs: Mapping[str, Sequence[float]], ms: float
) -> None:
    if request.router is not None and log_probs:
        request.router.observe_audition(log_probs, ms)
