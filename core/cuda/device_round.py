"""DeviceRound: a round from drafts to commit on the device, with one copy of the results
to the host. `plan_round` has the conditions of such a round; other rounds run step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from core.cuda.acceptance import fill_target_tokens
from core.cuda.draft_graph import DraftGraphs, draft_pass_of
from core.cuda.draft_pass import DraftTensors, padded_ends
from core.cuda.draft_requests import write_inputs
from core.cuda.kv_view import KvView, model_group_of
from core.cuda.round_pass import RoundPass, round_input_shapes
from core.cuda.round_plan import RoundPlan, RoundResult, fill_drafts, plan_round
from core.cuda.staging import DeviceClock, DeviceToHost, HostToDevice
from core.engine.drafting import Drafting
from core.engine.round_state import RoundState
from core.errors import MODEL_FAULTS
from core.events.parts import Timed
from core.models.graph_cache import MAX_GRAPHS, CachedGraph, GraphPool
from core.models.protocol import LanguageModel
from core.trees.noise import bases_of
from core.trees.verify import VerifyInput

__all__ = ["DeviceRound", "RoundResult"]


class DeviceRound:
    """Runs rounds as CUDA graphs with `capture`, else eagerly. Sets `SsmPool.batched` for rounds
    that run step by step."""

    def __init__(self, llm: LanguageModel, drafting: Drafting, *, capture: bool) -> None:
        self._llm = model_group_of([llm])
        self._drafting = drafting
        self._pool = GraphPool(capture=capture)
        self._graphs: dict[tuple[object, ...], _RoundGraph] = {}
        # The round that `begin` has launched, until the next `run`.
        self._started: _StartedRound | None = None
        ssm_pool = drafting.ssm_pool
        ssm_pool.batched = DraftGraphs(ssm_pool.ssms, llm.vocab_size, capture=capture)

    @torch.inference_mode()
    def run(self, states: Sequence[RoundState]) -> RoundResult | None:
        """Runs the round and fills in each state's drafts. `RoundResult.fill_verdicts` fills in the
        verdicts later. Returns None and fills in no drafts if the round has to run step by step."""
        plan = self._plan(states)
        # A started round may be dropped: only slots past the committed slots were written.
        started, self._started = self._started, None
        if plan is None:
            return None
        if started is not None and started.inputs_key == plan.inputs_key:
            return started.graph.finish(plan)
        graph = self._launch_draft(plan)
        if graph is None:
            return None
        # Two graphs: the clock's mark between them separates the times of drafting and verifying.
        graph.launch_verify()
        return graph.finish(plan)

    @torch.inference_mode()
    def begin(self, states: Sequence[RoundState]) -> None:
        """Launches the next round without waiting for its results. `run` uses the results if the
        inputs are the same."""
        plan = self._plan(states)
        graph = None if plan is None else self._launch_draft(plan)
        if plan is None or graph is None:
            return
        with suppress(*MODEL_FAULTS):  # `run` launches the round again and raises the error
            graph.launch_verify()
            self._started = _StartedRound(plan.inputs_key, graph)

    def fill_target_tokens(
        self, states: Sequence[RoundState], case_of: Callable[[RoundState], VerifyInput]
    ) -> None:
        """For rounds that run step by step; see `acceptance.fill_target_tokens`."""
        fill_target_tokens(states, case_of)

    def _plan(self, states: Sequence[RoundState]) -> RoundPlan | None:
        return None if self._llm is None else plan_round(states, self._llm, self._drafting)

    def _launch_draft(self, plan: RoundPlan) -> _RoundGraph | None:
        try:
            graph = self._graph(plan)
            graph.launch_draft(plan)
        except MODEL_FAULTS:  # the round then runs step by step, which finds the failing SSM
            return None
        return graph

    def _graph(self, plan: RoundPlan) -> _RoundGraph:
        groups = [(plan.llm, plan.extents[0])]
        if plan.requests is not None:
            groups.append((plan.requests.group, plan.extents[1]))
        # Arenas grow before a graph is chosen. Their sizes are part of the key: a graph captured
        # before an arena grew would use the arena's old tensors.
        arenas = tuple((id(group.arena), *group.reserve(extent)) for group, extent in groups)
        key = (*plan.key, arenas)
        if len(self._graphs) >= MAX_GRAPHS and key not in self._graphs:
            self._graphs.clear()
        for old in [old for old in self._graphs if _has_moved(old[-1], arenas)]:
            del self._graphs[old]
        if key not in self._graphs:
            self._graphs[key] = _RoundGraph(plan, self._pool)
        return self._graphs[key]


@dataclass(frozen=True, slots=True)
class _StartedRound:
    inputs_key: tuple[object, ...]
    graph: _RoundGraph


def _has_moved(arenas: object, now: tuple[tuple[int, ...], ...]) -> bool:
    """Whether an arena has grown, and so moved its tensors, since the graph was captured."""
    sizes = {arena: size for arena, *size in now}
    assert isinstance(arenas, tuple)
    return any(sizes.get(arena, list(size)) != list(size) for arena, *size in arenas)


class _RoundGraph:
    """A round's two graphs (drafting; verification and commit) and their staging buffers."""

    def __init__(self, plan: RoundPlan, pool: GraphPool) -> None:
        llm, layout, device = plan.llm, plan.layout, plan.llm.forward.device
        shapes = round_input_shapes(len(plan.states), len(layout.shape))
        draft_shapes = plan.requests.input_shapes if plan.requests else {}
        # Both graphs share one buffer, so that a round needs one copy to the device.
        self._inputs = HostToDevice(shapes | draft_shapes, device)
        draft_pass = None
        if plan.requests is not None:
            draft_pass = draft_pass_of(plan.requests, plan.extents[1], self._inputs)
        self._round = RoundPass(
            KvView.of(llm.forward, llm.arena, plan.rows, plan.extents[0], llm.num_embeddings),
            layout,
            layout.tensors(device),
            plan.states[0].request.sequence.sampling.distribution,
            plan.uses_noise,
            self._inputs,
            draft_pass,
        )
        # Written by the drafting graph, read by the verifying graph.
        self._drafts: DraftTensors | None = None
        self._packed = torch.zeros(0, dtype=torch.long)
        self._draft = None if draft_pass is None else CachedGraph(draft_pass, pool)
        self._verify = CachedGraph(lambda: self._round.verify_and_commit(self._drafts), pool)
        self._results = DeviceToHost(device)
        self._clock = DeviceClock(device)

    def launch_draft(self, plan: RoundPlan) -> None:
        # A clock times one launch.
        self._clock = DeviceClock(plan.llm.forward.device)
        self._send(plan)
        self._clock.mark()
        if self._draft is not None:
            self._drafts = self._draft()
        self._clock.mark()

    def launch_verify(self) -> None:
        self._packed = self._verify()
        self._clock.mark()

    def finish(self, plan: RoundPlan) -> RoundResult:
        """Waits for the results, fills in the drafts and records the commit."""
        results = self._results.read(self._packed, self._round.result_shapes())
        start, drafted, end = self._clock.times()
        if plan.requests is not None:
            fill_drafts(plan, plan.requests, results, (start, drafted))
        for row, state in enumerate(plan.states):
            # The device has moved the path's KV: the root and `length` nodes are committed.
            plan.llm.members[0].note(state.request.row, 1 + int(results["length"][row]))
            state.kv_committed = True
        return RoundResult(plan, results, Timed("llm", "forward", drafted, end))

    def _send(self, plan: RoundPlan) -> None:
        inputs = self._inputs
        inputs.wait()
        if plan.requests is not None:
            write_inputs(inputs, plan.requests.rows, coupled=plan.requests.choice.coupled)
        host = inputs.host
        for row, state in enumerate(plan.states):
            sequence = state.request.sequence
            host["root"][row], host["length"][row] = sequence.tokens[-1], state.root_position
            host["llm_ends"][row] = padded_ends(sequence.eos_ids)
            if plan.uses_noise:
                positions = host["llm_bases"].shape[1]
                first = state.root_position + 1
                host["llm_bases"][row] = bases_of(sequence.noise, first, positions)
        inputs.send()
