"""BatchSchedule: turns the engine's requests into a scheduler's inputs, and applies its plans."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from core.config.mechanisms import length_policy, verify_rule
from core.engine.round_state import ActiveRequest, RoundState
from core.engine.snapshot import ScheduleDecision
from core.events.parts import Scheduled, Timed
from core.metrics import LLM_LANE, NOT_DRAFTING, timings_union_ms
from core.scheduling import (
    FREE,
    BatchOutcome,
    FollowsLoad,
    Grant,
    LiveRequest,
    Plan,
    make_scheduler,
)
from core.speculation_length import BatchLoad
from core.speculation_length.cost_model import Costs
from core.trees.combine import merge_and_select, node_chances, select

__all__ = ["EACH", "BatchSchedule"]

EACH = "each"
# SSM stages that most rounds do not have.
OPENING = ("prefill", "audition")
# Weight of a request's last tree in the moving average of its trees' widths.
WIDTH_SHARE = 0.3
EMPTY_POOL: Mapping[str, RoundState] = MappingProxyType({})


class BatchSchedule:
    """Plans rounds, makes their trees and reports their times to the scheduler. Inactive
    under the schedule `each`."""

    def __init__(self, name: str, costs: Costs) -> None:
        self.name = name
        self._scheduler = make_scheduler(name, costs)
        self._plan = Plan((), ())
        self._num_queued = self._num_live = self._num_passes = 0
        # The last plan with a decision, and that plan's `_num_passes`.
        self._last_decision: tuple[Plan, int] | None = None
        self._start = 0.0  # when the last `plan` began, by time.perf_counter
        self._num_drafted: dict[str, int] = {}  # tree nodes before the budget drops any, by run

    @property
    def active(self) -> bool:
        """Whether requests are planned together."""
        return self._scheduler is not None

    @property
    def decision(self) -> ScheduleDecision | None:
        """The latest decision, or None; may be read in any thread."""
        if self._last_decision is None:
            return None
        plan, number = self._last_decision
        return ScheduleDecision(plan.decision, plan.reason, self._num_passes - number)

    def take_over(
        self, requests: Sequence[ActiveRequest], pool_states: Mapping[str, RoundState]
    ) -> None:
        """Forgets the grants and decisions of the schedule that this schedule replaces.
        `pool_states`: the drafted states that wait to be verified, by run; their grants stay."""
        self._last_decision = None
        if isinstance(self._scheduler, FollowsLoad):
            self._scheduler.forget_load()
        for request in requests:
            request.decision = None
            _apply_grant(request, FREE, None)
        for state in pool_states.values():
            state.decision = None

    def plan(
        self,
        requests: Sequence[ActiveRequest],
        modes: Mapping[str, str],
        num_queued: int,
        pool_states: Mapping[str, RoundState] = EMPTY_POOL,
    ) -> tuple[list[ActiveRequest], list[ActiveRequest] | None]:
        """Returns the requests to verify in the next round, and the requests to draft for
        meanwhile. The second value is None if the caller has to decide.

        `modes`: the pipeline mode by run; `num_queued`: requests in the queue; `pool_states`: the
        drafted states that wait to be verified, by run.
        """
        if self._scheduler is None:
            return list(requests), None
        self._start = time.perf_counter()
        self._num_queued, self._num_live = num_queued, len(requests)
        self._plan = self._scheduler.plan(
            [_live_request(one, modes, pool_states.get(one.run_id)) for one in requests],
            num_queued,
        )
        self._num_passes += 1
        if self._plan.decision:
            self._last_decision = (self._plan, self._num_passes)
        for request, grant in zip(requests, self._plan.grants, strict=True):
            _apply_grant(request, grant, self._plan.load)
            request.rounds_waited += 1
            if self._plan.decision:
                request.decision = self._plan
        next_group = self._plan.next_group
        return (
            [requests[index] for index in self._plan.group],
            None if next_group is None else [requests[index] for index in next_group],
        )

    def make_trees(self, states: Sequence[RoundState]) -> None:
        """Merges each request's drafts. If the scheduler sets a budget, drops the least likely
        nodes, except under rules that read q."""
        assert self._scheduler is not None, "not called with `each`"
        start = time.perf_counter()
        self._num_drafted = {}
        if any(state.drafts for state in states):
            self._divide_node_budget(states)
        end, share = time.perf_counter(), 1 / max(1, len(states))
        for state in states:
            state.timings.append(Timed("combine", "combine", start, end, share))
        self._record(states)

    def _divide_node_budget(self, states: Sequence[RoundState]) -> None:
        assert self._scheduler is not None
        merges = [
            merge_and_select(one.speculation.combine, one.drafts, one.vote_weights)
            for one in states
        ]
        # chances[i][j]: P(node j of request i is accepted), estimated by its drafters.
        chances = [node_chances(trie, selection.nodes) for trie, selection in merges]
        self._num_drafted = {
            state.request.run_id: len(selection.nodes)
            for state, (_, selection) in zip(states, merges, strict=True)
        }
        # Rules that read q need every drawn node: dropping unlikely nodes would bias the text.
        may_cut = [not verify_rule(state.speculation.verify).reads_q for state in states]
        droppable = [each if cut else [] for each, cut in zip(chances, may_cut, strict=True)]
        context = sum(state.root_position for state in states) // max(1, len(states))
        budget = self._scheduler.budget(droppable, context)
        likeliest = _likeliest(droppable, budget) if budget is not None else None
        for index, (state, (trie, selection)) in enumerate(zip(states, merges, strict=True)):
            if likeliest is not None and may_cut[index]:
                nodes = tuple(selection.nodes[i] for i in likeliest[index])
                state.combined = select(trie, replace(selection, nodes=nodes))
            else:
                state.combined = select(trie, selection, state.keep_node)

    def _record(self, states: Sequence[RoundState]) -> None:
        plan, load = self._plan, self._plan.load
        num_drafted = sum(self._num_drafted.values())
        num_granted = sum(len(state.tree) for state in states)
        for state in states:
            request, tree = state.request, state.tree
            request.rounds_waited = 0
            if tree.depth:
                request.mean_width += WIDTH_SHARE * (len(tree) / tree.depth - request.mean_width)
            # The state's, not the request's: the request may have a newer grant and decision.
            grant, decision = state.grant, state.decision
            state.scheduled = Scheduled(
                schedule=self.name,
                num_live=self._num_live,
                num_batch=len(states),
                num_waiting=self._num_queued,
                length_limit=grant.length,
                drafter_limit=grant.drafters,
                num_drafted=self._num_drafted.get(state.request.run_id, 0),
                num_granted=len(state.tree),
                batch_drafted=num_drafted,
                batch_granted=num_granted,
                tokens_per_ms=load.price if load else 0.0,
                decision=decision.decision if decision else "",
                reason=(decision or plan).reason,
            )

    def end_round(self, states: Sequence[RoundState]) -> None:
        """Reports the round to the scheduler. The round's time includes `plan`."""
        if self._scheduler is None or not states:
            return
        spans = [t for state in states for t in state.timings if t.start >= self._start]
        models = [t for t in spans if t.lane not in NOT_DRAFTING]
        llm = [t for t in spans if (t.lane, t.name) == (LLM_LANE, "forward")]
        opening = [t for t in models if t.name in OPENING]
        wall_ms = (time.perf_counter() - self._start) * 1000
        all_drafts = [draft for state in states for draft in state.drafts.values()]
        drafts = [one for draft in all_drafts for one in draft.timings]
        self._scheduler.observe(
            BatchOutcome(
                requests=len(states),
                context=sum(state.root_position for state in states) // len(states),
                nodes=sum(len(state.tree) for state in states),
                tokens=sum(state.num_tokens for state in states),
                llm_ms=timings_union_ms(llm),
                draft_ms=timings_union_ms(drafts),
                wall_ms=wall_ms,
                open_ms=timings_union_ms(opening),
                num_opened=sum(any(t in opening for t in state.timings) for state in states),
                between_ms=wall_ms - timings_union_ms([*llm, *models]),
                steps=max((max(draft.depths, default=0) for draft in all_drafts), default=0),
                num_queued=self._num_queued,
            )
        )


def _apply_grant(request: ActiveRequest, grant: Grant, load: BatchLoad | None) -> None:
    request.grant, request.load = grant, load
    if request.shares_pass is not None:
        request.shares_pass.share(load)


def _live_request(
    request: ActiveRequest, modes: Mapping[str, str], state: RoundState | None
) -> LiveRequest:
    speculation = request.sequence.speculation
    # `policy.choose`, not `request.choose`: the request still has the grant of its last round.
    choice = state.choice if state else request.policy.choose()
    policy = length_policy(speculation.length)
    needs_no_guard = speculation.never_drafts or policy.compares_with_plain
    return LiveRequest(
        context=request.sequence.root_position,
        length=state.length if state else choice.length,
        drafters=max(1, request.num_ssms_for(choice)),
        rounds_waited=request.rounds_waited,
        overlapped=modes[request.run_id] == "across",
        tokens=request.sequence.sampling.max_new_tokens,
        ready=state is not None,
        width=request.mean_width,
        kind=None if needs_no_guard else (speculation, request.sequence.sampling.temperature),
    )


def _likeliest(chances: Sequence[Sequence[float]], budget: int) -> list[list[int]]:
    """For each request, the indices of its nodes among the `budget` likeliest of all requests."""
    nodes = [
        (-chance, request, node)
        for request, own in enumerate(chances)
        for node, chance in enumerate(own)
    ]
    likeliest: list[list[int]] = [[] for _ in chances]
    # Of equally likely nodes the earlier is kept: a parent before its child.
    for _, request, node in sorted(nodes)[:budget]:
        likeliest[request].append(node)
    return [sorted(own) for own in likeliest]
