"""Engine: the round loop of speculative inference, for one request or many at once.

Read `Engine.round` first. Knows models and drafters by their protocols, and no widget and no SQL.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from contextlib import ExitStack

from core.config import Request, SpeculationConfig
from core.config.mechanisms import length_policy
from core.cuda.fused_round import FusedRound, RoundResult
from core.drafters.weights import Weights, make_weights
from core.engine.admission import prepare
from core.engine.ahead_results import ahead_drafts, unused_at_end
from core.engine.drafting import Drafting
from core.engine.idle_time import IdleTime
from core.engine.overlap import (
    DraftPool,
    Job,
    Lane,
    RoundBatch,
    next_round,
    observe_switch,
    pipeline_modes,
    pipeline_switch,
    run_id_of,
)
from core.engine.record import Recorder
from core.engine.round_state import ActiveRequest, RoundState, round_outcome, update_weights
from core.engine.run_events import run_completed, run_started
from core.errors import EngineBusyError
from core.events import Event, RunStarted
from core.events.timing import Timed
from core.length import make_policy
from core.length.cost_model import Costs
from core.models.loading.load import LoadedModels
from core.models.protocol import Feed, chain
from core.models.threads import TorchAlone
from core.sequence import CommitResult, Sequence
from core.trees.combine import combine
from core.trees.sampling import Target
from core.trees.tree import ROOT
from core.trees.verify import Verdict, VerifyInput, verdict_of_tokens, verify

__all__ = ["Engine"]

PREFILL_CHUNK = 512


class Engine:
    """Owns the models while a call runs; one call at a time, in the caller's thread.

    `on_device`: run rounds on the models' device with one copy of the results to the host, see
    FusedRound; None: if that is a GPU.
    """

    def __init__(self, models: LoadedModels, on_device: bool | None = None) -> None:
        self.models = models
        self.busy = threading.Lock()
        self._llm = models.llm
        on_gpu = models.llm.device.type == "cuda"
        self._drafting = Drafting(models)
        self._fused_round: FusedRound | None = None
        if on_gpu if on_device is None else on_device:
            self._fused_round = FusedRound(models.llm, self._drafting, capture=on_gpu)
        self._carried: dict[tuple[object, ...], Weights] = {}
        self._pools = DraftPool()
        self._lane = Lane(models.llm.device)
        self._idle_time = IdleTime()
        self._admitted: set[str] = set()
        self._torch_alone = TorchAlone((models.llm, *models.ssms.values()))
        self._recorder = Recorder(models.tokenizer)
        self.costs = Costs(models.llm)

    # -- the public face --

    def generate(self, request: Request) -> Iterator[Event]:
        """The events of one request; closing the iterator cancels within a round."""
        return self.generate_many([request])

    def generate_many(self, requests: Many[Request]) -> Iterator[Event]:
        """Several requests decoded together; events are told apart by `run_id`.

        Raises EngineBusyError if another call is running, ConfigError before any work.
        """
        if not self.busy.acquire(blocking=False):
            raise EngineBusyError(
                "engine is busy: one call at a time; use a Worker for many callers"
            )
        live: list[ActiveRequest] = []
        with ExitStack() as leaving:
            leaving.callback(self.busy.release)
            for sequence in [self.prepare(request) for request in requests]:
                live.append(self.admit(sequence))
                leaving.callback(self.release, live[-1])
                yield self.started(live[-1])
                for _ in self.prefill(live[-1]):
                    pass
            while running := [one for one in live if not one.sequence.finish_reason]:
                yield from self.round(running)

    def close(self) -> None:
        """Ends the drafting thread; the engine may be used again."""
        self._lane.close()

    # -- one round: what everybody reads first --

    def round(self, live: Many[ActiveRequest]) -> Iterator[Event]:
        """Draft, combine, verify, commit: one round of every live request, in one LLM pass."""
        record = self._recorder
        began = time.perf_counter()
        auto = pipeline_switch(live, self.costs)
        modes = pipeline_modes(live, auto)
        up = self._pools.take(live, modes)
        turns = up.turns

        fused = self._run_fused(up, modes)
        if fused is not None:
            yield from self._fused_events(fused, turns, begin_next=not auto.runs)
            observe_switch(up, auto, began)
            return

        self._drafting.draft(up.fresh)
        for turn in turns:
            yield self._observed(turn, record.drafted(turn))

        self._combine(turns)
        for turn in turns:
            yield self._observed(turn, record.combined(turn))

        with self._lane.beside(self._jobs(up, modes)):
            self._verify(turns)
        self._pools.keep(up)
        for turn in turns:
            yield self._observed(turn, record.verified(turn))

        update_weights(turns)
        lone = turns[0] if len(live) == 1 == len(turns) else None
        self._idle_time.fill(lone, began)
        for turn in turns:
            yield from self._completed(turn, self._commit(turn))
        self._idle_time.end(lone)
        observe_switch(up, auto, began)

    def _run_fused(self, up: RoundBatch, modes: Mapping[str, str]) -> RoundResult | None:
        """The round's result if it ran fused; None if it has to run step by step."""
        fused = self._fused_round
        if fused is None or any(mode != "off" for mode in modes.values()) or up.drafted:
            return None
        return fused.run(up.turns)

    def _fused_events(
        self, result: RoundResult, turns: Many[RoundState], *, begin_next: bool
    ) -> Iterator[Event]:
        """The events of a fused round; with `begin_next` the next round runs meanwhile."""
        record = self._recorder
        self._combine(turns)
        result.fill_verdicts()
        update_weights(turns)
        self._idle_time.end(None)
        cuts = [self._commit(turn) for turn in turns]
        left = [turn.live for turn in turns if not turn.live.sequence.finish_reason]
        if begin_next and left and self._fused_round is not None:
            self._fused_round.begin([next_round(live) for live in left])
        for tell in (record.drafted, record.combined, record.verified):
            for turn in turns:
                yield self._observed(turn, tell(turn))
        for turn, cut in zip(turns, cuts, strict=True):
            yield from self._completed(turn, cut)

    def _jobs(self, up: RoundBatch, modes: Mapping[str, str]) -> list[Job]:
        """What the drafters do while the LLM verifies: draft for others, or for the next round."""
        jobs: list[Job] = []
        if up.meanwhile:
            jobs.append(lambda _: self._drafting.draft(up.meanwhile))
        ahead = [turn for turn in up.turns if modes[run_id_of(turn.live)] == "ahead"]
        if ahead:
            jobs.append(lambda done: self._drafting.draft_ahead(ahead, done))
        return jobs

    def _combine(self, turns: Many[RoundState]) -> None:
        for turn in turns:
            start = time.perf_counter()
            rule = turn.speculation.combine
            turn.combined = combine(rule, turn.drafts, turn.ballot, turn.keep)
            turn.timed.append(Timed("combine", "combine", start, time.perf_counter()))

    def _verify(self, turns: Many[RoundState]) -> None:
        start = time.perf_counter()
        logits = self._llm.forward([self._feed(turn) for turn in turns])
        for turn, rows in zip(turns, logits, strict=True):
            turn.target = Target(rows, turn.live.sequence.sampling)
        if self._fused_round is not None:
            self._fused_round.fill_target_tokens(turns, self._case)
        for turn in turns:
            if turn.target_tokens is None:
                _ = turn.target.argmax  # waits for the device: here the pass has ended
        forwarded = time.perf_counter()
        for turn in turns:
            turn.timed.append(Timed("llm", "forward", start, forwarded))
            start_verify = time.perf_counter()
            turn.verdict = self._verdict(turn)
            turn.timed.append(Timed("verify", "verify", start_verify, time.perf_counter()))

    def _verdict(self, turn: RoundState) -> Verdict:
        sequence = turn.live.sequence
        if turn.target_tokens is not None:
            return verdict_of_tokens(turn.tree, turn.target_tokens, sequence.eos_ids)
        return verify(sequence.speculation.verify, self._case(turn))

    @staticmethod
    def _case(turn: RoundState) -> VerifyInput:
        sequence = turn.live.sequence
        return VerifyInput(
            turn.tree,
            turn.target,
            turn.root_position,
            sequence.noise,
            sequence.eos_ids,
            {index: draft.q for index, draft in turn.drafts.items()},
            distinct=sequence.speculation.draft == "sampled",
        )

    def _feed(self, turn: RoundState) -> Feed:
        """The root, then the tree under it; node i is the row's pending node i + 1."""
        tree = turn.tree
        root = turn.live.sequence.tokens[-1]
        return Feed(
            turn.live.row, [root, *tree.token_ids], [ROOT, *(parent + 1 for parent in tree.parents)]
        )

    def _commit(self, turn: RoundState) -> CommitResult:
        """Everybody takes over what the round came to."""
        start = time.perf_counter()
        live, sequence, verdict = turn.live, turn.live.sequence, turn.verdict
        if not turn.kv_committed:
            self._llm.commit(live.row, [0, *(node + 1 for node in verdict.path)])
        own = () if verdict.own_token_id is None else (verdict.own_token_id,)
        committed = (*(turn.tree.token_ids[node] for node in verdict.path), *own)
        cut = sequence.commit(committed)
        turn.timed += [t for seen in turn.foreseen.values() for t in seen.timed]
        following = ahead_drafts(turn, committed)
        if cut.finish_reason:
            turn.ahead += unused_at_end(turn, following)
        else:
            live.ahead_drafts = following
            self._drafting.commit(turn, committed)
        turn.timed.append(Timed("commit", "commit", start, time.perf_counter()))
        live.policy.observe(round_outcome(turn, committed))
        turn.timed = [*live.timed, *turn.timed]
        live.timed.clear()
        return cut

    def _completed(self, turn: RoundState, cut: CommitResult) -> Iterator[Event]:
        """The round's last event, and the run's where it has ended."""
        live, sequence = turn.live, turn.live.sequence
        kv = (self._llm.length(live.row), self._llm.slots)
        event = self._recorder.completed(turn, cut, kv)
        live.notes.clear()
        sequence.round += 1
        yield self._observed(turn, event)
        if sequence.finish_reason:
            yield run_completed(sequence)

    @staticmethod
    def _observed(turn: RoundState, event: Event) -> Event:
        turn.live.sequence.fold.observe(event)
        return event

    # -- a request's way in and out, for `generate_many` and the worker --

    def prepare(self, request: Request) -> Sequence:
        """Checks a request and turns it into a sequence; no model runs."""
        return prepare(self.models, request)

    def started(self, live: ActiveRequest, queue_ms: float = 0.0) -> RunStarted:
        """The run's first event."""
        texts = self._recorder.texts(live.sequence.prompt_ids)
        event = run_started(live.sequence, self.models, texts, queue_ms)
        live.sequence.fold.observe(event)
        return event

    def admit(self, sequence: Sequence) -> ActiveRequest:
        """Gives a prepared sequence its place: an LLM row, drafters, a length policy; its clock
        starts here."""
        speculation = sequence.speculation
        nodes = self._max_tree_nodes(speculation)
        if nodes is not None:
            speculation = dataclasses.replace(speculation, max_tree_nodes=nodes)
            sequence.speculation = speculation
        sequence.started = time.perf_counter()
        # What may fail first: a policy may begin by timing passes of the LLM.
        drafters = self._drafting.named(speculation.drafters)
        policy, weights = make_policy(speculation, self.costs), self._weights(speculation)
        live = ActiveRequest(sequence, self._llm.open_row(), drafters, policy, weights, nodes)
        self._admitted.add(sequence.run_id)
        self._torch_alone.take()
        return live

    def prefill(self, live: ActiveRequest) -> Iterator[None]:
        """Reads the prompt but its last token, a chunk a step, so that it can be cancelled."""
        start = time.perf_counter()
        tokens = live.sequence.tokens[:-1]
        for i in range(0, len(tokens), PREFILL_CHUNK):
            part = tokens[i : i + PREFILL_CHUNK]
            self._llm.forward([chain(live.row, part, last_only=True)])
            self._llm.commit(live.row, range(len(part)))
            yield
        if tokens:
            live.timed.append(Timed("llm", "prefill", start, time.perf_counter()))
        self._drafting.audition(live)

    def release(self, live: ActiveRequest) -> None:
        """Takes back the rows; safe to call in any state."""
        self._admitted.discard(live.sequence.run_id)
        with ExitStack() as leaving:
            if not self._admitted:
                leaving.callback(self._torch_alone.give_back)
                leaving.callback(self._lane.close)
            leaving.callback(self._drafting.close, live)
            leaving.callback(self._pools.forget, live)
            self._llm.close_row(live.row)

    def _weights(self, config: SpeculationConfig) -> Weights:
        """Even ones, or with `carry_over` those that earlier runs of these drafters left by this
        rule."""
        if not config.carry_over:
            return make_weights(config, config.drafters)
        key = (config.weights, config.eta, config.weight_bounds, *config.drafters)
        return self._carried.setdefault(key, make_weights(config, config.drafters))

    def _max_tree_nodes(self, config: SpeculationConfig) -> int | None:
        if config.max_tree_nodes == "uncut":
            return None
        if isinstance(config.max_tree_nodes, int):
            return config.max_tree_nodes
        if config.never_drafts:
            return 1  # plain decoding
        verify = self.costs.verify
        # A length that is found by measured times weighs what nodes cost itself: it is bounded by
        # what was measured alone. Cut to what is affordable, `trend` could never learn that more
        # is not.
        given = length_policy(config.length).given
        return verify.affordable_nodes() if given else max(verify.ms)
