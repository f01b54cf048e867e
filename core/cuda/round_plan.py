"""RoundPlan: a round to run on the device. RoundResult: the round's results on the host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from core.config.mechanisms import combine_rule, verify_rule
from core.cuda.acceptance import is_batchable
from core.cuda.draft_graph import draft_spans
from core.cuda.draft_pass import MAX_END_TOKENS
from core.cuda.draft_requests import DraftRequests, host_draft, present_nodes
from core.cuda.kv_view import ModelGroup, TreeLayout, padded_extent
from core.cuda.staging import IntArray, as_reals
from core.engine.drafting import Drafting
from core.engine.round_state import RoundState
from core.errors import EngineError
from core.events.parts import Timed
from core.plurals import number_of
from core.trees.tree import ROOT
from core.trees.verify import TargetTokens, verdict_of_tokens

__all__ = ["RoundPlan", "RoundResult", "fill_drafts", "plan_round"]

# Limit on the nodes of all SSMs' trees, duplicates included.
MAX_ROUND_NODES = 64


@dataclass(frozen=True)
class RoundPlan:
    """`states`: one per row of the results; `llm`: the group of the LLM alone; `requests`: the
    draft requests of all SSMs, None if no SSM drafts."""

    states: tuple[RoundState, ...]
    llm: ModelGroup
    requests: DraftRequests | None

    @cached_property
    def layout(self) -> TreeLayout:
        """The trees of all SSMs side by side under one root."""
        if self.requests is None:
            return TreeLayout(())
        return TreeLayout(self.requests.layout.shape, len(self.requests.group.members))

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the LLM's arena."""
        return tuple(self.llm.members[0].place(state.request.row) for state in self.states)

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Numbers of KV slots that the LLM's pass and the SSMs' pass use; (n, 0) if no SSM
        drafts."""
        longest = max(len(state.request.sequence.tokens) for state in self.states)
        ssm_extent = 0 if self.requests is None else padded_extent(self.requests.num_slots)
        return padded_extent(longest + len(self.layout)), ssm_extent

    @property
    def uses_noise(self) -> bool:
        """Whether verification reads Gumbel noise."""
        return verify_rule(self.states[0].speculation.verify).reads_gumbel

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for plans that one graph serves, unless an arena grows."""
        sequence, requests = self.states[0].request.sequence, self.requests
        drafts = None
        if requests is not None:
            drafts = requests.arena_rows, requests.width, requests.layout.shape, requests.choice
        return self.rows, self.extents, drafts, sequence.sampling.distribution, self.uses_noise

    @property
    def inputs_key(self) -> tuple[object, ...]:
        """Equal for plans with the same inputs."""
        positions = tuple(
            (state.request.sequence.run_id, state.root_position) for state in self.states
        )
        rows = self.requests.rows if self.requests else ()
        return self.key, positions, tuple((row.num_read, row.request.shape) for row in rows)


def plan_round(
    states: Sequence[RoundState], llm: ModelGroup, drafting: Drafting
) -> RoundPlan | None:
    """The plan of a round; None if the round cannot run on the device. The pipeline mode must be
    `off`. Opens each drafter at its first draft request."""
    if not states or not all(map(_fits_device_round, states)):
        return None
    rules = {(one.speculation.verify, one.request.sequence.sampling.distribution) for one in states}
    if len(rules) != 1:
        return None
    by_state = [drafting.draft_requests(state) for state in states]
    if not any(by_state):
        return RoundPlan(tuple(states), llm, None)
    ssms = drafting.ssm_pool.ssms
    by_name = {
        first.name: [one for own in by_state for one in own if one.name == first.name]
        for first in by_state[0]
    }
    # The batch is a rectangle: all requests draft with the same SSMs.
    if any({one.name for one in own} != by_name.keys() for own in by_state):
        return None
    # Model-free drafters work on the host.
    if not by_name.keys() <= ssms.keys():
        return None
    requests = DraftRequests.of(ssms, by_name, llm.vocab_size)
    if requests is None or not requests.is_supported:
        return None
    plan = RoundPlan(tuple(states), llm, requests)
    return plan if len(plan.layout) <= MAX_ROUND_NODES else None


def _fits_device_round(state: RoundState) -> bool:
    router, rule = state.request.router, combine_rule(state.speculation.combine)
    return (
        is_batchable(state)
        and not (router is not None and router.needs_audition)
        and not state.request.sequence.sampling.penalizes
        # Other combine rules drop nodes, or need weights that the host holds.
        and rule.keeps_all
        and not rule.weighted
        and state.choice.stop is None
        and state.ahead_drafts is None
        and len(state.request.sequence.eos_ids) <= MAX_END_TOKENS
    )


@dataclass(frozen=True, slots=True)
class RoundResult:
    """`arrays`: results by name, see `RoundPass.result_shapes`. `forward`: the span of the LLM's
    pass."""

    plan: RoundPlan
    arrays: Mapping[str, IntArray]
    forward: Timed

    def fill_verdicts(self) -> None:
        """Fills in each state's `target_tokens` and verdict. `RoundState.combined` must be set.

        Raises EngineError if a path is not as long as the path committed on the device.
        """
        for row, state in enumerate(self.plan.states):
            start = time.perf_counter()
            state.target_tokens = self._target_tokens(row, state)
            eos_ids = state.request.sequence.eos_ids
            state.verdict = verdict_of_tokens(state.tree, state.target_tokens, eos_ids)
            committed = int(self.arrays["length"][row])
            # If the paths differ, the KV cache is wrong.
            if len(state.verdict.path) != committed:
                raise EngineError(
                    f"path is {number_of(len(state.verdict.path), 'node')} long: "
                    f"{committed} were committed"
                )
            state.timings += [self.forward, Timed("verify", "verify", start, time.perf_counter())]

    def _target_tokens(self, row: int, state: RoundState) -> TargetTokens:
        """The LLM's outputs at the nodes of the merged tree."""
        nodes = self._first_nodes(row, state) if self.plan.requests else []
        tokens = self.arrays["target_tokens"][row]
        token_probs = as_reals(self.arrays["token_probs"][row])
        node_probs = as_reals(self.arrays["node_probs"][row])
        # Index 0 is the root's.
        rows = [0, *(node + 1 for node in nodes)]
        return TargetTokens(
            tuple(tokens[rows].tolist()),
            tuple(token_probs[rows].tolist()),
            tuple(node_probs[nodes].tolist()),
        )

    def _first_nodes(self, row: int, state: RoundState) -> list[int]:
        """For each node of the merged tree, its first occurrence in `RoundPlan.layout`."""
        requests, tree = self.plan.requests, state.tree
        assert requests is not None
        num_ssms, nodes_per_ssm = len(requests.group.members), len(requests.layout)
        children = {
            (parent, token): node
            for node, (parent, token) in enumerate(zip(tree.parents, tree.token_ids, strict=True))
        }
        first: dict[int, int] = {}
        for ssm in range(num_ssms):
            draft_row = row * num_ssms + ssm
            draft = state.drafts[requests.rows[draft_row].request.index]
            # From the draft's nodes to the merged tree's nodes.
            merged = {ROOT: ROOT}
            for node, layout_node in enumerate(present_nodes(self.arrays["tokens"][draft_row])):
                merged[node] = children[merged[draft.parents[node]], draft.token_ids[node]]
                # As on the device, the first of equal nodes is kept.
                first.setdefault(merged[node], ssm * nodes_per_ssm + layout_node)
        return [first[node] for node in range(len(tree))]


def fill_drafts(
    plan: RoundPlan,
    requests: DraftRequests,
    results: Mapping[str, IntArray],
    span: tuple[float, float],
) -> None:
    """Fills in each state's drafts, and records in the SSMs' rows how many tokens were committed on
    the device. `results`: see `RoundPass.result_shapes`. `span`: start and end of drafting,
    time.perf_counter."""
    scores, temperatures = as_reals(results["scores"]), as_reals(results["temperature"])
    for i, row in enumerate(requests.rows):
        draft = host_draft(requests.layout, results["tokens"][i], scores[i], row.request)
        timings = draft_spans(requests, row, draft, span)
        state = plan.states[i // len(requests.group.members)]
        temperature = float(temperatures[i])
        state.drafts[row.request.index] = replace(
            draft, timings=timings, next_temperature=temperature
        )
        row.model.note(row.state.row, len(row.unread) + int(results["num_kept"][i]))
    for state in plan.states:
        # The run's order of drafters may differ from the order of `requests.rows`.
        state.drafts = dict(sorted(state.drafts.items()))
        for draft in state.drafts.values():
            state.timings.extend(draft.timings)
