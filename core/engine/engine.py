"""Engine: the round loop of speculative inference, for one request or many at once.

Read `core/engine/round.py` first.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from core.config import Request, SpeculationConfig
from core.config.checks import number
from core.config.mechanisms import is_model_free, length_policy
from core.config.offload import FASTEST_MBPS
from core.cuda.device_round import DeviceRound, RoundResult
from core.drafters import compile_lookups
from core.drafters.drafter_weights import DrafterWeights, make_weights
from core.drafters.ssm import PREFILL_CHUNK
from core.drafters.user_drafters import import_drafters
from core.engine.admission import prepare
from core.engine.batch_schedule import EACH, BatchSchedule
from core.engine.drafting import Drafting
from core.engine.overlap import (
    DraftPool,
    DraftThread,
    Job,
    RoundBatch,
    observe_switch,
    pipeline_modes,
    pipeline_switch,
)
from core.engine.remote_drafting import RemoteDrafting
from core.engine.round import RoundSteps, count_event, run_round
from core.engine.round_events import RoundEventBuilder
from core.engine.round_state import ActiveRequest, RoundState, next_round, update_weights
from core.engine.run_events import run_failed, run_started
from core.engine.snapshot import ScheduleDecision
from core.engine.time_between_stages import TimeBetweenStages
from core.errors import MODEL_FAULTS, ConfigError, EngineBusyError
from core.events import Event, RunStarted
from core.events.parts import Timed
from core.models.hf_model import HfModel
from core.models.loading.load import LoadedModels
from core.models.loading.progress import Say
from core.models.machine import TorchAlone, without_cudnn_attention
from core.models.protocol import chain, ranks_info
from core.models.stacking import has_shape_of
from core.routing import CHAIN_DEPTH, RoundTime, make_router
from core.sequence import TokenSequence
from core.speculation_length import make_policy
from core.speculation_length.cost_model import Costs, Meter

if TYPE_CHECKING:
    from core.remote_ssms.client import RemotePool

__all__ = ["Engine"]

# The most tokens of a prompt that one pass over pipeline stages reads: a rank waits only a limited
# time for the stages before it.
STAGES_CHUNK = 64
# Limited: no run is cancelled while a round sleeps for `wire_ms`.
LONGEST_WIRE_MS = 1000.0


class Engine:
    """Owns the models while a call runs; one call at a time, in the caller's thread.

    `on_device`: whether whole rounds may run on the device (DeviceRound). None allows whole rounds
    if the LLM is on a GPU and has no ranks, and no `nodes` are given. `drafters`: import paths of
    user-defined drafters. `costs`: the times that another engine measured with these models.
    """

    def __init__(
        self,
        models: LoadedModels,
        on_device: bool | None = None,
        schedule: str = EACH,
        drafters: Sequence[str] = (),
        nodes: RemotePool | None = None,
        costs: Costs | None = None,
    ) -> None:
        if drafters:
            models = dataclasses.replace(models, user_drafters=import_drafters(drafters))
        if nodes is not None:
            models = dataclasses.replace(models, remote=nodes.infos)
        self.models = models
        self.busy = threading.Lock()
        self._llm = models.llm
        self._stream_mbps = 0.0
        on_gpu = models.llm.device.type == "cuda"
        if on_gpu:
            without_cudnn_attention()
        self.costs = Costs(models.llm) if costs is None else costs
        self.nodes = nodes
        remote = None if nodes is None else RemoteDrafting(nodes, lambda: self.costs.plain_ms)
        self._drafting = Drafting(models, self.costs, remote)
        self._device_round: DeviceRound | None = None
        in_one_process = ranks_info(models.llm) is None
        if on_device and not in_one_process:
            raise ConfigError.of("on_device", on_device, "not with an LLM over ranks")
        if on_device and nodes is not None:
            raise ConfigError.of("on_device", on_device, "not with SSMs on nodes")
        whole_rounds = on_gpu and in_one_process if on_device is None else on_device
        if nodes is None and whole_rounds:
            self._device_round = DeviceRound(models.llm, self._drafting, capture=on_gpu)
        # Weights that outlive their run, by drafters and the settings of the weights.
        self._carried_weights: dict[tuple[object, ...], DrafterWeights] = {}
        self._draft_pool = DraftPool()
        self._draft_thread = DraftThread(models.llm.device)
        self._time_between_stages = TimeBetweenStages()
        # While a run is live, `_torch_alone` may limit torch's threads.
        self._live_ids: set[str] = set()
        self._torch_alone = TorchAlone((models.llm, *models.ssms.values()))
        self._recorder = RoundEventBuilder(models.tokenizer)
        self._schedule = BatchSchedule(schedule, self.costs)
        # A replaced schedule keeps its measurements.
        self._schedules = {schedule: self._schedule}
        self._steps = RoundSteps(
            models.llm,
            self._drafting,
            self._recorder,
            self._time_between_stages,
            self._device_round.fill_target_tokens if self._device_round else None,
            self._schedule,
            self.costs,
        )

    # -- public API --

    @property
    def schedule(self) -> str:
        """The name of the schedule: how rounds are divided among live requests."""
        return self._schedule.name

    @schedule.setter
    def schedule(self, name: str) -> None:
        # Takes effect in the next round: another thread may be running a round.
        if name not in self._schedules:
            self._schedules[name] = BatchSchedule(name, self.costs)
        self._schedule = self._schedules[name]

    @property
    def can_stream(self) -> bool:
        """Whether `stream_mbps` may be above 0."""
        return isinstance(self._llm, HfModel) and self._llm.can_stream_from_host

    @property
    def stream_mbps(self) -> float:
        """The rate, in 10^6 bytes a second, at which the LLM's layers are copied from host memory
        in each pass; 0 means no copying. `costs` keeps times measured at other rates. The setter
        raises ConfigError for a value out of range, or above 0 for an LLM that is no HfModel. The
        setter raises UnsupportedModelError for an HfModel that cannot stream."""
        return self._stream_mbps

    @stream_mbps.setter
    def stream_mbps(self, mbps: float) -> None:
        number("stream_mbps", mbps, 0, FASTEST_MBPS)
        if mbps != self._stream_mbps:
            if not isinstance(self._llm, HfModel):
                raise ConfigError.of("stream_mbps", mbps, "0 with this kind of LLM")
            self._llm.stream_from_host(mbps)
            self._stream_mbps = mbps

    @property
    def wire_ms(self) -> float:
        """A simulated round trip, in milliseconds, for which the drafts of SSMs in this process
        wait. Device rounds do not wait."""
        return self._drafting.wire_ms

    @wire_ms.setter
    def wire_ms(self, ms: float) -> None:
        number("wire_ms", ms, 0, LONGEST_WIRE_MS)
        self._drafting.wire_ms = float(ms)

    @property
    def schedule_decision(self) -> ScheduleDecision | None:
        """The present schedule's latest decision, or None."""
        # After a change of schedule the decision is an old one until the next round.
        return self._schedule.decision if self._schedule is self._steps.schedule else None

    def generate(self, request: Request) -> Iterator[Event]:
        """Yields the events of one request; closing the iterator cancels the request."""
        return self.generate_many([request])

    def generate_many(self, requests: Sequence[Request]) -> Iterator[Event]:
        """Decodes several requests together; events are distinguished by `run_id`.

        Raises EngineBusyError if the engine is in use, and ConfigError before the first request
        runs. A model's error in prefill or a round is raised if its request is alone; otherwise the
        request ends with RunFailed.
        """
        if not self.busy.acquire(blocking=False):
            raise EngineBusyError(
                "engine is busy: one call at a time; use a Worker for many callers"
            )
        active: list[ActiveRequest] = []
        with ExitStack() as cleanup:
            cleanup.callback(self.busy.release)
            for sequence in [self.prepare(request) for request in requests]:
                active.append(self.admit(sequence))
                cleanup.callback(self.release, active[-1])
                yield self.run_started_event(active[-1])
                try:
                    for _ in self.prefill(active[-1]):
                        pass
                except MODEL_FAULTS as error:
                    if len(requests) == 1:
                        raise
                    yield run_failed(sequence, error)
            while running := [one for one in active if not one.sequence.finish_reason]:
                yield from self.round(running)

    def warm_up(self, say: Say | None = None) -> Engine:
        """Times the LLM's passes, compiles the drafters `suffix` and `table`, and starts the
        process that renders chat templates. Call it before the first request."""
        if say is not None:
            say("Timing the LLM's passes")
        if getattr(self.models.tokenizer, "chat_template", None):
            self.models.templates.start()
        compile_lookups(self.prepare(Request("warm-up", prompt_token_ids=(0, 0))))
        # Reading one of the LLM's pass times measures all of them.
        self.costs.table_ms(0, 0)
        return self

    def close(self) -> None:
        """Ends the drafting thread and the connections to drafter nodes."""
        self._draft_thread.close()
        if self.nodes is not None:
            self.nodes.close()

    # -- one round --

    def round(self, active: Sequence[ActiveRequest], num_queued: int = 0) -> Iterator[Event]:
        """Runs one round of some or all active requests. `num_queued`: requests in the queue, for
        the scheduler."""
        start = time.perf_counter()
        switch = pipeline_switch(active, self.costs)
        modes = pipeline_modes(active, switch)
        pool, schedule = self._draft_pool, self._schedule
        if schedule is not self._steps.schedule:
            schedule.take_over(active, pool.states)
            self._steps.schedule = schedule
        self._steps.num_live = len(active)
        group, next_group = schedule.plan(active, modes, num_queued, pool.states)
        for request in (*group, *(next_group or ())):
            self._drafting.auditions.before_first_draft(request)
        if next_group is None:
            batch = pool.take(group, modes)
        else:
            batch = pool.take_planned(group, next_group)
        # Drafts may wait in the pool although their runs' modes have become `off`.
        serial = not batch.already_drafted and all(mode == "off" for mode in modes.values())

        device_round = self._device_round if serial and not schedule.active else None
        # `run` returns None, and fills in no drafts, if the round has to run step by step.
        result = device_round.run(batch.states) if device_round else None
        # Not measured in a device round: the host does not run between the stages.
        self._time_between_stages.begin(active, () if result else batch.states, start)
        if result is not None:
            # With `pipeline=auto` the next round may be pipelined and must not begin here.
            yield from self._device_events(result, batch.states, begin_next=not switch.runs)
        else:
            overlapped_work = nullcontext() if serial else self._background_drafting(batch, modes)
            yield from run_round(self._steps, batch, overlapped_work)
        self._time_between_stages.end()
        observe_switch(batch, switch, start)
        schedule.end_round(batch.states)

    def _device_events(
        self, result: RoundResult, states: Sequence[RoundState], *, begin_next: bool
    ) -> Iterator[Event]:
        """With `begin_next` the next round begins before the events are built."""
        record, steps = self._recorder, self._steps
        # Drafts are merged only now: the device has verified all their nodes, duplicates included.
        steps.make_trees(states)
        result.fill_verdicts()
        update_weights(states)
        commits = [steps.commit_one(state, len(states)) for state in states]
        running = [state.request for state in states if not state.request.sequence.finish_reason]
        if begin_next and running and self._device_round is not None:
            # `round` will plan the same rounds: a policy's choice stays until its next `observe`.
            self._device_round.begin([next_round(active) for active in running])
        for build_event in (record.drafted_event, record.combined_event, record.verified_event):
            for state in states:
                yield count_event(state, build_event(state))
        for state, commit in zip(states, commits, strict=True):
            yield from steps.complete_round(state, commit)

    @contextmanager
    def _background_drafting(self, batch: RoundBatch, modes: Mapping[str, str]) -> Iterator[None]:
        # First the drafts for other requests: a draft ahead is only a guess.
        jobs: list[Job] = []
        if batch.to_draft_during_pass:
            jobs.append(lambda _: self._drafting.draft(batch.to_draft_during_pass))
        ahead = [state for state in batch.states if modes[state.request.run_id] == "ahead"]
        if ahead:
            jobs.append(lambda pass_ended: self._drafting.draft_ahead(ahead, pass_ended))
        # Before the block, so that the nodes draft during the LLM's pass.
        self._drafting.begin_remote_ahead(ahead)
        with self._draft_thread.run_during(jobs):
            yield
        self._drafting.end_remote_ahead(ahead)
        self._draft_pool.keep(batch)

    # -- admission and release, for `generate_many` and the worker --

    def prepare(self, request: Request) -> TokenSequence:
        """Checks a request and turns it into a sequence; no model runs."""
        return prepare(self.models, request)

    def run_started_event(self, active: ActiveRequest, queue_ms: float = 0.0) -> RunStarted:
        """The run's first event."""
        texts = self._recorder.texts(active.sequence.prompt_ids)
        event = run_started(active.sequence, self.models, texts, queue_ms)
        active.sequence.fold.observe(event)
        return event

    def admit(self, sequence: TokenSequence) -> ActiveRequest:
        """Makes a sequence an active request: opens its LLM row and starts its clock."""
        speculation = sequence.speculation
        # `auto` becomes a number before the run's first event, which records the configuration.
        max_tree_nodes = self._max_tree_nodes(speculation)
        if max_tree_nodes is not None:
            speculation = dataclasses.replace(speculation, max_tree_nodes=max_tree_nodes)
            sequence.speculation = speculation
        sequence.started = time.perf_counter()
        drafters = self._drafting.by_names(speculation.drafters)
        policy, weights = make_policy(speculation, self.costs), self._weights(speculation)
        ssms = [drafter.name for drafter in drafters if not is_model_free(drafter.name)]
        router = make_router(speculation, ssms, partial(self._time_of_round, ssms))
        # The row is opened last: making a policy may run passes, which may fail.
        active = ActiveRequest(
            sequence,
            self._llm.open_row(),
            drafters,
            policy,
            weights,
            max_tree_nodes,
            router=router,
            routed_ssms=frozenset(ssms) if router else frozenset(),
        )
        self._live_ids.add(sequence.run_id)
        self._torch_alone.take()
        return active

    def prefill(self, active: ActiveRequest) -> Iterator[None]:
        """Reads the prompt without its last token, the root of the first tree. Yields after each
        chunk: the caller may cancel there."""
        start = time.perf_counter()
        tokens = active.sequence.tokens[:-1]
        ranks = ranks_info(self._llm)
        size = STAGES_CHUNK if ranks is not None and ranks.split == "pp" else PREFILL_CHUNK
        for i in range(0, len(tokens), size):
            part = tokens[i : i + size]
            # The logits are not used: `last_only` computes only one token's.
            self._llm.forward([chain(active.row, part, last_only=True)])
            self._llm.commit(active.row, range(len(part)))
            yield
        if tokens:
            active.timings.append(Timed("llm", "prefill", start, time.perf_counter()))

    def first_choice_tokens(
        self, sequence: TokenSequence, names: Sequence[str], token_ids: Sequence[int], first: int
    ) -> dict[str, list[int]]:
        """The tokens that each SSM would draft at the positions of a text from `first` on. Call it
        between two rounds, in the thread that runs the rounds."""
        return self._drafting.ssm_pool.first_choice_tokens(sequence, names, token_ids, first)

    def release(self, active: ActiveRequest) -> None:
        """Closes the request's rows and drafters; safe to call in any state."""
        self._live_ids.discard(active.run_id)
        with ExitStack() as cleanup:
            if not self._live_ids:
                # Callbacks run in reverse order, and all run even if one raises.
                cleanup.callback(self._torch_alone.release)
                cleanup.callback(self._draft_thread.close)
            cleanup.callback(self._drafting.close, active)
            cleanup.callback(self._draft_pool.forget, active)
            self._llm.close_row(active.row)

    def _time_of_round(self, ssms: Sequence[str], name: str) -> RoundTime:
        """The predicted time of a round in which the SSM `name` drafts a chain."""
        costs = {ssm: self.costs.draft_costs(ssm) for ssm in ssms}
        timed = {ssm: one for ssm, one in costs.items() if one.start.value is not None}
        same_shape = [one for ssm, one in timed.items() if self._have_one_shape(ssm, name)]
        # The first level comes from the catch-up pass, whose time is in `start`.
        steps, audition = CHAIN_DEPTH - 1, costs[name].audition
        # Times of SSMs of another shape are scaled by the ratio of audition times.
        draft_ms = [
            (one.start.get() + steps * one.step_ms)
            * (1.0 if same_shape else _ratio(audition, one.audition))
            for one in same_shape or timed.values()
        ]
        mean_ms = statistics.fmean(draft_ms) if draft_ms else 0.0
        return RoundTime(self.costs.verify_ms(CHAIN_DEPTH), mean_ms)

    def _have_one_shape(self, one: str, other: str) -> bool:
        models = self.models.ssms
        if one in models and other in models:
            return has_shape_of(models[one], models[other])
        remote = {info.name: (info.device, info.parameters) for info in self.models.remote}
        return one in remote and remote[one] == remote.get(other)

    def _weights(self, config: SpeculationConfig) -> DrafterWeights:
        if not config.carry_over:
            return make_weights(config, config.drafters)
        key = (config.weights, config.eta, config.weight_bounds, *config.drafters)
        return self._carried_weights.setdefault(key, make_weights(config, config.drafters))

    def _max_tree_nodes(self, config: SpeculationConfig) -> int | None:
        """Returns None if the tree is uncut."""
        if config.max_tree_nodes == "uncut":
            return None
        if isinstance(config.max_tree_nodes, int):
            return config.max_tree_nodes
        if config.never_drafts:
            return 1  # plain decoding
        verify = self.costs.verify
        # A policy that finds the length weighs the cost of nodes itself: within affordable nodes,
        # the policy `trend` could not learn that longer drafts do not pay.
        set_by_user = length_policy(config.length).set_by_user
        return verify.affordable_nodes() if set_by_user else verify.largest_measured()


def _ratio(one: Meter, other: Meter) -> float:
    return one.get() / other.get() if one.get() > 0 and other.get() > 0 else 1.0
