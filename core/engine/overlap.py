"""Pipelining (Minions, arXiv 2402.15678, section 3.4): drafting while the LLM verifies.

`across`: drafts for other requests; the drafts wait in the DraftPool. `ahead`: drafts for the next
round of the requests that are being verified.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from core.config.mechanisms import can_begin_ahead, is_model_free
from core.drafters.ahead import CancelSignal
from core.engine.ahead_events import hidden_event
from core.engine.round_state import ActiveRequest, RoundState, next_round
from core.metrics import LLM_LANE, timings_union_ms
from core.speculation_length.cost_model import Costs, Switch

__all__ = [
    "PipelineSwitch",
    "Job",
    "DraftThread",
    "DraftPool",
    "RoundBatch",
    "pipeline_switch",
    "pipeline_modes",
    "observe_switch",
]

NO_OTHER_REQUEST = (
    "no other request is being served, so there is none to draft for during the LLM's pass; "
    "pipeline=ahead overlaps within one request"
)
Job = Callable[[CancelSignal], None]
"""Work for the drafting thread during an LLM pass; it may stop early once `CancelSignal` is set."""


@dataclass(frozen=True, slots=True)
class RoundBatch:
    """The states of one round: the LLM verifies `already_drafted` and `to_draft`, and
    `to_draft_during_pass` are drafted meanwhile."""

    already_drafted: tuple[RoundState, ...]
    to_draft: tuple[RoundState, ...]
    to_draft_during_pass: tuple[RoundState, ...] = ()

    @property
    def states(self) -> tuple[RoundState, ...]:
        return (*self.already_drafted, *self.to_draft)


class DraftPool:
    """Drafted states that wait for verification, by run (Minions' pool of intermediate results)."""

    def __init__(self) -> None:
        self._states: dict[str, RoundState] = {}

    @property
    def states(self) -> Mapping[str, RoundState]:
        """The states in the pool, by run."""
        return self._states

    def take_planned(
        self, group: Sequence[ActiveRequest], next_group: Sequence[ActiveRequest]
    ) -> RoundBatch:
        """The batch of a round that verifies `group` and drafts for `next_group` meanwhile. No
        request of `next_group` may have a draft in the pool."""
        to_draft = [one for one in group if one.run_id not in self._states]
        already_drafted = [self._states.pop(one.run_id) for one in group if one not in to_draft]
        return RoundBatch(
            tuple(already_drafted),
            tuple(map(next_round, to_draft)),
            tuple(map(next_round, next_group)),
        )

    def take(self, requests: Sequence[ActiveRequest], modes: Mapping[str, str]) -> RoundBatch:
        """The batch of the next round, by the runs' modes."""
        across = [one for one in requests if modes[one.run_id] == "across"]
        others = [one for one in requests if modes[one.run_id] != "across"]
        # Half of the `across` runs are verified while the other half is drafted (Minions 3.4).
        size = (len(across) + 1) // 2 if len(across) > 1 else len(across)
        ready = [state for one in across if (state := self._states.get(one.run_id))][:size]
        # A run's mode may have changed while its draft waited.
        ready += [state for one in others if (state := self._states.get(one.run_id))]
        for state in ready:
            del self._states[state.request.run_id]
        ready_ids = [state.request.run_id for state in ready]
        others = [one for one in others if one.run_id not in ready_ids]
        # A run never has two drafts in the pool: the second would start from an unknown text.
        with_draft = {state.request.run_id for state in ready} | self._states.keys()
        without_draft = [one for one in across if one.run_id not in with_draft]
        first = [] if ready else without_draft[:size]
        room = max(0, size - len(self._states))
        next_group = without_draft[len(first) :][:room]
        return RoundBatch(
            tuple(ready),
            tuple(map(next_round, [*others, *first])),
            tuple(map(next_round, next_group)),
        )

    def keep(self, batch: RoundBatch) -> None:
        """Adds the states drafted during this round's pass."""
        # One state is enough: the states of a batch share the LLM's pass.
        passes = [t for state in batch.states[:1] for t in state.timings if t.lane == LLM_LANE]
        for state in batch.to_draft_during_pass:
            events = tuple(hidden_event(state, index, passes) for index in state.drafts)
            state.ahead_events += events
            state.hidden_ms = sum(one.saved_ms for one in events)
            self._states[state.request.run_id] = state

    def forget(self, request: ActiveRequest) -> None:
        """Drops the state of a request that has ended."""
        self._states.pop(request.run_id, None)


class DraftThread:
    """One thread for drafting during LLM passes, started by the first job and ended by `close`.

    docs/results.md, "Pipelining", compares a thread with a process.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._stream: Any = None
        if device is not None and device.type == "cuda":
            self._stream = torch.cuda.Stream(device=device)  # type: ignore[no-untyped-call]

    @contextmanager
    def run_during(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Runs `jobs` in order while the `with` block runs, then waits for their end. Raises a
        job's error."""
        if not jobs:
            yield
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drafting")
        pass_ended = threading.Event()
        if self._stream is not None:  # the jobs read drafts made on the caller's stream
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        future = self._executor.submit(_run_jobs, jobs, pass_ended, self._stream)
        try:
            yield
        finally:
            pass_ended.set()
            # Waits even if the block raised: a job may use a row that is about to be closed.
            future.result()
            if self._stream is not None:  # the next round reads the jobs' drafts here
                torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def close(self) -> None:
        """Ends the thread; the next job begins another."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


@dataclass(frozen=True, slots=True)
class PipelineSwitch:
    """`pipeline=auto` in one round. `kind`: `across` or `ahead`. `runs`: the runs to which the
    switch applies."""

    kind: str
    runs: tuple[ActiveRequest, ...]
    switch: Switch


def pipeline_switch(requests: Sequence[ActiveRequest], costs: Costs) -> PipelineSwitch:
    """The switch of `pipeline=auto` for this round: `across` with several requests that have this
    setting and a working SSM, else `ahead`."""
    runs = [
        one for one in requests if one.sequence.speculation.pipeline == "auto" and _has_ssms(one)
    ]
    kind = "across" if len(runs) > 1 else "ahead"
    if kind == "ahead":
        runs = [one for one in runs if _can_draft_ahead(one)]
    names = {drafter.name for one in runs for drafter in one.drafters}
    return PipelineSwitch(kind, tuple(runs), costs.pipeline_switch(kind, names))


def pipeline_modes(requests: Sequence[ActiveRequest], auto: PipelineSwitch) -> dict[str, str]:
    """The pipeline mode of each run in this round: `off`, `across` or `ahead`."""
    auto_mode = auto.kind if auto.switch.on else "off"
    modes = {}
    for one in requests:
        mode = one.sequence.speculation.pipeline
        if mode == "auto":
            mode = auto_mode if one in auto.runs else "off"
        fits = _can_draft_ahead(one) if mode == "ahead" else _has_ssms(one)
        modes[one.run_id] = mode if fits else "off"
    across = [one for one in requests if modes[one.run_id] == "across"]
    if len(across) == 1:
        modes[across[0].run_id] = "off"
        if across[0].sequence.round == 0 and across[0] not in auto.runs:
            across[0].notes.append(NO_OTHER_REQUEST)
    return modes


def observe_switch(batch: RoundBatch, auto: PipelineSwitch, start: float) -> None:
    """Updates the switch of `pipeline=auto` with a round's milliseconds and drafted steps per
    request. `start`: when the round began, by time.perf_counter."""
    states = (*batch.states, *batch.to_draft_during_pass)
    if not auto.runs or not any(state.drafts for state in states):
        return
    spans = [
        t for state in states for t in state.timings if t.start >= start and t.name != "prefill"
    ]
    # The union, not the sum: the gain of overlapping work is measured.
    ms = timings_union_ms(spans)
    steps = sum(max(d.depths, default=0) for state in batch.states for d in state.drafts.values())
    on_and_off_ms = auto.switch.observe(ms / len(batch.states), steps / len(batch.states))
    if on_and_off_ms is not None:
        with_it, without = on_and_off_ms
        decision = "on" if auto.switch.on else "off"
        for one in auto.runs:
            one.notes.append(
                f"drafting {auto.kind} takes {with_it:.1f} ms a round, {without:.1f} without: "
                f"{decision}"
            )


def _can_draft_ahead(request: ActiveRequest) -> bool:
    speculation = request.sequence.speculation
    return _has_ssms(request) and can_begin_ahead(speculation.draft, speculation.combine)


def _has_ssms(request: ActiveRequest) -> bool:
    """Model-free drafters do not count: they take too little time to be worth overlapping."""
    if request.sequence.speculation.never_drafts:
        return False
    working = (
        drafter for i, drafter in enumerate(request.drafters) if i not in request.lost_drafters
    )
    return any(not is_model_free(drafter.name) for drafter in working)


def _run_jobs(jobs: Sequence[Job], pass_ended: CancelSignal, stream: Any) -> None:
    with nullcontext() if stream is None else torch.cuda.stream(stream):
        for job in jobs:
            job(pass_ended)
