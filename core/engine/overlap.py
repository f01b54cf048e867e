"""Pipelining (Minions 3.4): who is verified in a round, and for whom the drafters work meanwhile.

With `pipeline=across` the live requests take turns: while the LLM verifies one group, the drafters
draft for the next. A drafted request waits in the pool of intermediate results; drafting pauses
while that pool holds as many as the LLM takes at once. With `ahead` they work for the next round of
the request that is being verified (`core.engine.drafting`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Many
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from core.config.mechanisms import NGRAM, combine_rule
from core.drafters.ahead import PassEnded
from core.engine.drafting import hidden_ms
from core.engine.round_state import ActiveRequest, RoundState
from core.events import Ahead
from core.events.parts import Timed
from core.length.cost_model import Costs, Switch
from core.metrics import LLM_LANE, union_ms

__all__ = [
    "PipelineSwitch",
    "Job",
    "Lane",
    "DraftPool",
    "RoundBatch",
    "pipeline_switch",
    "next_round",
    "pipeline_modes",
    "run_id_of",
    "observe_switch",
]

ALONE = (
    "no other request is being served, so there is nobody to draft for meanwhile; pipeline=ahead "
    "overlaps within one request"
)
Job = Callable[[PassEnded], None]
"""What the drafting thread does beside a pass; `PassEnded` tells it that the pass has ended."""


@dataclass(frozen=True, slots=True)
class RoundBatch:
    """`drafted` and `fresh` turns are verified now, `fresh` ones after drafting; `meanwhile` are
    drafted beside the LLM's pass."""

    drafted: tuple[RoundState, ...]
    fresh: tuple[RoundState, ...]
    meanwhile: tuple[RoundState, ...] = ()

    @property
    def states(self) -> tuple[RoundState, ...]:
        return (*self.drafted, *self.fresh)


class DraftPool:
    """The pool of intermediate results, by run. The running requests are the live ones that are not
    in it, the pending ones wait in the worker's queue."""

    def __init__(self) -> None:
        self._drafted: dict[str, RoundState] = {}

    def take(self, live: Many[ActiveRequest], modes: Mapping[str, str]) -> RoundBatch:
        """Whose turn it is, by the runs' modes. What is taken leaves the pool."""
        across = [one for one in live if modes[run_id_of(one)] == "across"]
        others = [one for one in live if modes[run_id_of(one)] != "across"]
        batch = (len(across) + 1) // 2 if len(across) > 1 else len(across)
        drafted = [turn for one in across if (turn := self._drafted.get(run_id_of(one)))][:batch]
        # A switch may have changed a run's mode while its draft waited.
        drafted += [turn for one in others if (turn := self._drafted.get(run_id_of(one)))]
        for turn in drafted:
            del self._drafted[run_id_of(turn.live)]
        others = [one for one in others if run_id_of(one) not in map(run_id_of, _lives(drafted))]
        up = {run_id_of(turn.live) for turn in drafted} | self._drafted.keys()
        running = [one for one in across if run_id_of(one) not in up]
        # Nothing to verify yet: the first group is drafted as in the plain loop.
        first = [] if drafted else running[:batch]
        room = max(0, batch - len(self._drafted))
        following = running[len(first) :][:room]
        return RoundBatch(
            tuple(drafted),
            tuple(map(next_round, [*others, *first])),
            tuple(map(next_round, following)),
        )

    def keep(self, batch: RoundBatch) -> None:
        """What was drafted beside a pass is verified in a later one."""
        passes = [t for turn in batch.states[:1] for t in turn.timed if t.lane == LLM_LANE]
        for turn in batch.meanwhile:
            saved = tuple(_saved(turn, index, passes) for index in turn.drafts)
            turn.ahead += saved
            turn.hidden_ms = sum(one.saved_ms for one in saved)
            self._drafted[run_id_of(turn.live)] = turn

    def forget(self, live: ActiveRequest) -> None:
        """The request is gone."""
        self._drafted.pop(run_id_of(live), None)


class Lane:
    """One thread beside the engine's own, for drafting; it lives from the first job to `close`. On
    CUDA its work has a stream of its own."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._executor: ThreadPoolExecutor | None = None
        on_cuda = device is not None and device.type == "cuda"
        self._stream: Any = _stream(device) if on_cuda else None

    @contextmanager
    def beside(self, jobs: Many[Job]) -> Iterator[None]:
        """Runs `jobs` one after the other while the block runs, and waits for them; raises what
        they raised."""
        if not jobs:
            yield
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drafting")
        done = threading.Event()
        if self._stream is not None:  # what was drafted so far is read there
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        future = self._executor.submit(_run, jobs, done, self._stream)
        try:
            yield
        finally:
            done.set()
            future.result()
            if self._stream is not None:  # what was drafted meanwhile is read here
                torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def close(self) -> None:
        """Ends the thread; the next job begins another."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


def next_round(live: ActiveRequest) -> RoundState:
    """A request's next round, its length chosen."""
    drafts, live.ahead_drafts = live.ahead_drafts, None
    return RoundState(live, live.policy.choose(), live.sequence.root_position, ahead_drafts=drafts)


@dataclass(frozen=True, slots=True)
class PipelineSwitch:
    """What `auto` has to choose from in a round, `across` or `ahead`, the runs for which it may,
    and its switch. Made once a round: a drafter lost within it must not turn to another switch."""

    kind: str
    runs: tuple[ActiveRequest, ...]
    switch: Switch


def pipeline_switch(live: Many[ActiveRequest], costs: Costs) -> PipelineSwitch:
    """Several requests overlap, one can only draft ahead."""
    runs = [one for one in live if one.sequence.speculation.pipeline == "auto" and _has_ssms(one)]
    kind = "across" if len(runs) > 1 else "ahead"
    if kind == "ahead":
        runs = [one for one in runs if _foresees(one)]
    names = {drafter.name for one in runs for drafter in one.drafters}
    return PipelineSwitch(kind, tuple(runs), costs.pipelining(kind, names))


def pipeline_modes(live: Many[ActiveRequest], auto: PipelineSwitch) -> dict[str, str]:
    """How each run is pipelined in this round: `off`, `across` or `ahead`; `auto` as its switch
    stands. A run that begins with nobody beside it is told so."""
    stands = auto.kind if auto.switch.on else "off"
    modes = {}
    for one in live:
        mode = one.sequence.speculation.pipeline
        if mode == "auto":
            mode = stands if one in auto.runs else "off"
        fits = _foresees(one) if mode == "ahead" else _has_ssms(one)
        modes[run_id_of(one)] = mode if fits else "off"
    across = [one for one in live if modes[run_id_of(one)] == "across"]
    if len(across) == 1:
        modes[run_id_of(across[0])] = "off"
        if across[0].sequence.round == 0 and across[0] not in auto.runs:
            across[0].notes.append(ALONE)
    return modes


def observe_switch(batch: RoundBatch, auto: PipelineSwitch, began: float) -> None:
    """Shows the switch of `auto` what a round that began at `began` took a request, and how many
    steps were drafted for it; notes what it decides."""
    turns = (*batch.states, *batch.meanwhile)
    if not auto.runs or not any(turn.drafts for turn in turns):
        return
    worked = [t for turn in turns for t in turn.timed if t.start >= began and t.name != "prefill"]
    ms = union_ms((t.start * 1000, t.end * 1000) for t in worked)
    drafted = sum(max(d.depths, default=0) for turn in batch.states for d in turn.drafts.values())
    found = auto.switch.observe(ms / len(batch.states), drafted / len(batch.states))
    if found is not None:
        with_it, without = found
        stands = "on" if auto.switch.on else "off"
        for one in auto.runs:
            one.notes.append(
                f"drafting {auto.kind} takes {with_it:.1f} ms a round, {without:.1f} without: "
                f"{stands}"
            )


def _foresees(live: ActiveRequest) -> bool:
    return _has_ssms(live) and combine_rule(live.sequence.speculation.combine).ahead


def _has_ssms(live: ActiveRequest) -> bool:
    """Whether there is work that is worth doing beside the LLM's: looking n-grams up is not."""
    if live.sequence.speculation.never_drafts:
        return False
    left = (drafter for i, drafter in enumerate(live.drafters) if i not in live.lost)
    return any(drafter.name != NGRAM for drafter in left)


def _run(jobs: Many[Job], done: PassEnded, stream: Any) -> None:
    with nullcontext() if stream is None else torch.cuda.stream(stream):
        for job in jobs:
            job(done)


def _stream(device: torch.device | None) -> Any:
    return torch.cuda.Stream(device=device)  # type: ignore[no-untyped-call]


def _saved(turn: RoundState, index: int, passes: list[Timed]) -> Ahead:
    """How much of a draft the LLM's pass hid. Nothing was guessed, so nothing is wasted."""
    name = turn.live.drafters[index].name
    hidden = hidden_ms(turn.drafts[index].timed, passes)
    return Ahead(name, 0, 1.0, hit=True, saved_ms=hidden, wasted_ms=0.0)


def _lives(turns: Many[RoundState]) -> list[ActiveRequest]:
    return [turn.live for turn in turns]


def run_id_of(live: ActiveRequest) -> str:
    return live.sequence.run_id
