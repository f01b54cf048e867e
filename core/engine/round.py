"""One round: draft, combine, verify and commit, for the requests of a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch

from core.config.mechanisms import draft_kind, length_policy
from core.engine.ahead_events import ahead_drafts, unused_at_end
from core.engine.batch_schedule import BatchSchedule
from core.engine.drafting import Drafting
from core.engine.overlap import RoundBatch
from core.engine.round_events import RoundEventBuilder
from core.engine.round_state import RoundState, round_outcome, update_weights
from core.engine.route_evidence import embedding_similarity, observe_route
from core.engine.run_events import run_completed, run_failed
from core.engine.time_between_stages import TimeBetweenStages
from core.errors import MODEL_FAULTS
from core.events import Event
from core.events.parts import Timed
from core.models.layer_stream import stream_of
from core.models.protocol import CACHED, Feed, LanguageModel, rank_traffic
from core.sequence import CommitResult
from core.speculation_length.cost_model import Costs
from core.trees.combine import combine
from core.trees.sampling import Target, penalize_tree
from core.trees.verify import Verdict, VerifyInput, verdict_of_tokens, verify

__all__ = ["RoundSteps", "count_event", "run_round", "verify_input"]

TargetTokensFiller = Callable[[Sequence[RoundState], Callable[[RoundState], VerifyInput]], None]
"""Fills in `target_tokens` of the states whose target tokens can be computed together."""


class RoundSteps:
    """The four steps over one engine's models."""

    def __init__(
        self,
        llm: LanguageModel,
        drafting: Drafting,
        recorder: RoundEventBuilder,
        time_between_stages: TimeBetweenStages,
        fill_target_tokens: TargetTokensFiller | None,
        schedule: BatchSchedule,
        costs: Costs,
    ) -> None:
        self._llm = llm
        self._drafting = drafting
        self._recorder = recorder
        self._time_between_stages = time_between_stages
        self._fill_target_tokens = fill_target_tokens
        self.schedule = schedule
        self._costs = costs
        self._similarity = embedding_similarity(llm)
        # Live requests of the engine: if there is only one, its error is raised.
        self.num_live = 1

    def draft(
        self, to_draft: Sequence[RoundState], states: Sequence[RoundState]
    ) -> Iterator[Event]:
        """Drafts for `to_draft`; the other `states` already have drafts."""
        self._drafting.draft(to_draft)
        # For all states: a draft's event belongs to the round that verifies the draft.
        for state in states:
            yield count_event(state, self._recorder.drafted_event(state))

    def combine(self, states: Sequence[RoundState]) -> Iterator[Event]:
        """Merges each request's drafts into one token tree."""
        self.make_trees(states)
        for state in states:
            yield count_event(state, self._recorder.combined_event(state))

    def verify(
        self, states: Sequence[RoundState], overlapped_work: AbstractContextManager[None]
    ) -> Iterator[Event]:
        """The LLM's pass and the verdicts, while `overlapped_work` runs."""
        # Overlapped jobs end within this block: no drafter may run during `commit`.
        with overlapped_work:
            self.forward_and_verify(states)
        for state in states:
            if state.error is None:
                yield count_event(state, self._recorder.verified_event(state))
            else:
                yield run_failed(state.request.sequence, state.error)

    def commit(self, states: Sequence[RoundState]) -> Iterator[Event]:
        """Commits the accepted tokens and the LLM's own token."""
        with_verdict = [state for state in states if state.error is None]
        # Before any commit: requests that share weights update them by one batch of votes (Minions,
        # arXiv 2402.15678).
        update_weights(with_verdict)
        # Also before any commit: `commit_one` reports the time between stages.
        self._time_between_stages.fill()
        stream = stream_of(self._llm)
        loads = stream.take_times() if stream else ()
        traffic = rank_traffic(self._llm)
        for state in with_verdict:
            with self._isolate_failure(state):
                # The pass also had the requests without a verdict.
                result = self.commit_one(state, len(states))
            state.traffic = traffic
            if loads:
                # The stream also reads between two rounds: that time is cut off.
                round_start = min(timing.start for timing in state.timings)
                state.loads = [
                    Timed("layers", "load", max(start, round_start), end)
                    for start, end in loads
                    if end > round_start
                ]
            if state.error is None:
                yield from self.complete_round(state, result)
            else:
                yield run_failed(state.request.sequence, state.error)

    # -- parts of the steps; Engine also calls `make_trees`, `commit_one` and `complete_round` --

    def make_trees(self, states: Sequence[RoundState]) -> None:
        """Fills in `combined` of each state."""
        if self.schedule.active:
            self.schedule.make_trees(states)
            return
        for state in states:
            start = time.perf_counter()
            rule = state.speculation.combine
            state.combined = combine(rule, state.drafts, state.vote_weights, state.keep_node)
            state.timings.append(Timed("combine", "combine", start, time.perf_counter()))

    def forward_and_verify(self, states: Sequence[RoundState]) -> None:
        """The LLM's pass over all trees, then the verdicts."""
        self._forward(states)
        for state in states:
            if state.error is not None:
                continue
            start = time.perf_counter()
            with self._isolate_failure(state):
                state.verdict = _verdict(state)
            state.timings.append(Timed("verify", "verify", start, time.perf_counter()))

    def _forward(self, states: Sequence[RoundState]) -> None:
        start, remaining = time.perf_counter(), states
        try:
            # One pass over every request's tree: logits[i] is (1 + nodes, V), and row 0 predicts
            # the token after the root.
            logits = self._llm.forward([_feed(state) for state in states])
        except MODEL_FAULTS:
            if self.num_live == 1:
                raise
            logits = self._forward_alone(states)
            remaining = [state for state in states if state.error is None]
        for state, rows in zip(remaining, logits, strict=True):
            sequence = state.request.sequence
            with self._isolate_failure(state):
                tree_logits = penalize_tree(rows, sequence.sampling, sequence.tokens, state.tree)
                state.target = Target(tree_logits, sequence.sampling)
        remaining = [state for state in remaining if state.error is None]
        if self._fill_target_tokens is not None:
            self._fill_target_tokens(remaining, verify_input)
        for state in remaining:
            if state.target_tokens is None:
                with self._isolate_failure(state):
                    _ = state.target.argmax  # waits for the device: the span covers the pass
        end = time.perf_counter()
        for state in remaining:
            state.timings.append(Timed("llm", "forward", start, end))

    @contextmanager
    def _isolate_failure(self, state: RoundState) -> Iterator[None]:
        """Turns an error into the state's `error`; a lone request's error is raised."""
        try:
            yield
        except MODEL_FAULTS as error:
            if self.num_live == 1:
                raise
            state.error = error

    def _forward_alone(self, states: Sequence[RoundState]) -> list[torch.Tensor]:
        """Returns the logits of the passes that succeed."""
        for state in states:
            self._llm.commit(state.request.row, ())  # forgets nodes of the pass that failed
        logits: list[torch.Tensor] = []
        for state in states:
            try:
                logits += self._llm.forward([_feed(state)])
            except MODEL_FAULTS as error:
                state.error = error
        return logits

    def commit_one(self, state: RoundState, num_in_pass: int) -> CommitResult:
        """Commits one request's accepted path and the LLM's own token. `num_in_pass`: the number of
        requests in the LLM's pass."""
        start = time.perf_counter()
        request, sequence, verdict = state.request, state.request.sequence, state.verdict
        if not state.kv_committed:
            # Node 0 of the pass is the root, see `_feed`. The LLM's own token is not in the cache:
            # it is the next root.
            self._llm.commit(request.row, [0, *(node + 1 for node in verdict.path)])
        own_token = () if verdict.own_token_id is None else (verdict.own_token_id,)
        committed = (*(state.tree.token_ids[node] for node in verdict.path), *own_token)
        result = sequence.commit(committed)
        state.num_tokens = len(result.token_ids)
        # Drafting ahead ran in this round's time, whether or not the next round uses its drafts.
        state.timings += [span for draft in state.next_drafts.values() for span in draft.timings]
        next_drafts = ahead_drafts(state, committed)
        # A run that has ended is released next: its drafters need no commit.
        if result.finish_reason:
            state.ahead_events += unused_at_end(state, next_drafts)
        else:
            request.ahead_drafts = next_drafts
            self._drafting.commit(state, committed)
        state.timings.append(Timed("commit", "commit", start, time.perf_counter()))
        # `request.timings`, added below, do not count in the round's time.
        outcome = round_outcome(state, committed, num_in_pass)
        # A round in which the scheduler allowed no draft is no evidence for a policy.
        if state.grant.length != 0:
            request.policy.observe(outcome)
        reads_times = request.router is not None and request.router.reads_times
        if reads_times and not length_policy(state.speculation.length).records_costs:
            self._costs.observe_round(outcome)
        observe_route(state, committed, outcome.share_ms, self._similarity)
        state.timings = [*request.timings, *state.timings]
        request.timings.clear()
        return result

    def complete_round(self, state: RoundState, result: CommitResult) -> Iterator[Event]:
        """The round's last event, and the run's last event if the run has ended."""
        request, sequence = state.request, state.request.sequence
        if not sequence.finish_reason:
            # Before the event, which contains the next round's speculation length.
            self._drafting.auditions.before_first_draft(request)
        kv = (self._llm.length(request.row), self._llm.slots)
        event = self._recorder.round_completed_event(state, result, kv)
        # The event contains the notes, and each note is reported once.
        request.notes.clear()
        sequence.round += 1
        yield count_event(state, event)
        if sequence.finish_reason:
            yield run_completed(sequence)


def run_round(
    steps: RoundSteps, batch: RoundBatch, overlapped_work: AbstractContextManager[None]
) -> Iterator[Event]:
    """Runs the four steps. `overlapped_work`: drafting during the LLM's pass."""
    yield from steps.draft(batch.to_draft, batch.states)
    yield from steps.combine(batch.states)
    yield from steps.verify(batch.states, overlapped_work)
    yield from steps.commit(batch.states)


def count_event(state: RoundState, event: Event) -> Event:
    """Adds the event to its run's statistics, and returns the event."""
    state.request.sequence.fold.observe(event)
    return event


def verify_input(state: RoundState) -> VerifyInput:
    """The input of the request's verification rule."""
    sequence = state.request.sequence
    return VerifyInput(
        state.tree,
        state.target,
        state.root_position,
        sequence.noise,
        sequence.eos_ids,
        {index: draft.q for index, draft in state.drafts.items()},
        distinct=draft_kind(sequence.speculation.draft).distinct,
    )


def _verdict(state: RoundState) -> Verdict:
    sequence = state.request.sequence
    if state.target_tokens is not None:
        return verdict_of_tokens(state.tree, state.target_tokens, sequence.eos_ids)
    return verify(sequence.speculation.verify, verify_input(state))


def _feed(state: RoundState) -> Feed:
    """The root, then the tree: node i of the tree becomes node i + 1 of the pass."""
    tree = state.tree
    root = state.request.sequence.tokens[-1]
    parents = [CACHED, *(parent + 1 for parent in tree.parents)]
    return Feed(state.request.row, [root, *tree.token_ids], parents)
