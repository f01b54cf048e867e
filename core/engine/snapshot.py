"""Snapshot: the present state of a worker, as plain frozen values for a reader in any thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.events import Combined, Event, RoundCompleted, Scheduled, Span
from core.metrics import HOST_LANES, LLM_LANE, spans_union_ms, union_ms

__all__ = [
    "RECENT_ROUNDS",
    "Lane",
    "LiveRun",
    "RoundFacts",
    "RunRound",
    "ScheduleDecision",
    "Snapshot",
    "lanes_of",
    "live_run",
]

RECENT_ROUNDS = 16
"""The most rounds over which a lane's busy share is measured."""


@dataclass(frozen=True, slots=True)
class RunRound:
    """A run's part in a round. `started_ms`: when the run started, in milliseconds of
    time.perf_counter."""

    completed: RoundCompleted
    num_nodes: int
    started_ms: float


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """One round of a worker; times are in milliseconds of time.perf_counter. `runs`: by run id."""

    start_ms: float
    end_ms: float
    runs: dict[str, RunRound]

    @staticmethod
    def of(
        start: float, end: float, events: Sequence[Event], start_times: dict[str, float]
    ) -> RoundFacts:
        """The facts of a round with these events. `start_times`: when each run started, by run id.
        All times are in seconds of time.perf_counter."""
        nodes = {e.run_id: len(e.token_ids) for e in events if isinstance(e, Combined)}
        runs = {
            e.run_id: RunRound(e, nodes.get(e.run_id, 0), start_times[e.run_id] * 1000)
            for e in events
            if isinstance(e, RoundCompleted) and e.run_id in start_times
        }
        return RoundFacts(start * 1000, end * 1000, runs)


@dataclass(frozen=True, slots=True)
class Lane:
    """The LLM or a drafter. `busy`: the share of the time that its spans cover, from 0 to 1."""

    name: str
    busy: float


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A request that is being decoded. `max_tree_nodes`: None without a node budget.

    `round`: the number of the request's latest round within its run; -1 if the request was in none
    of the worker's recent rounds. `num_verified`, `num_accepted`: nodes in this round. `llm_ms`,
    `draft_ms`: times in this round, with prefills. `num_waited`: recent rounds after this round.
    """

    run_id: str
    num_tokens: int
    max_tokens: int
    round: int = -1
    num_verified: int = 0
    num_accepted: int = 0
    llm_ms: float = 0.0
    draft_ms: float = 0.0
    num_waited: int = 0
    scheduled: Scheduled | None = None
    max_tree_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleDecision:
    """A scheduler's last decision and its reason, made `passes` LLM passes ago."""

    decision: str
    reason: str
    passes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`num_waiting`: requests in the queue; `max_live`: the most requests decoded at once; `lanes`:
    the LLM's first."""

    schedule: str
    num_waiting: int
    max_live: int
    runs: tuple[LiveRun, ...] = ()
    lanes: tuple[Lane, ...] = ()
    decision: ScheduleDecision | None = None


def live_run(
    run_id: str,
    num_tokens: int,
    max_tokens: int,
    rounds: Sequence[RoundFacts],
    max_tree_nodes: int | None = None,
) -> LiveRun:
    """A run with the figures of its last round among the worker's last `rounds`."""
    for num_waited, facts in enumerate(reversed(rounds)):
        if (part := facts.runs.get(run_id)) is not None:
            event, by_model = part.completed, _by_model(part.completed.spans)
            return LiveRun(
                run_id=run_id,
                num_tokens=num_tokens,
                max_tokens=max_tokens,
                round=event.round,
                num_verified=part.num_nodes,
                num_accepted=event.num_accepted,
                llm_ms=spans_union_ms(by_model.pop(LLM_LANE, ())),
                draft_ms=spans_union_ms(span for spans in by_model.values() for span in spans),
                num_waited=num_waited,
                scheduled=event.scheduled,
                max_tree_nodes=max_tree_nodes,
            )
    return LiveRun(
        run_id, num_tokens, max_tokens, num_waited=len(rounds), max_tree_nodes=max_tree_nodes
    )


def lanes_of(rounds: Sequence[RoundFacts]) -> tuple[Lane, ...]:
    """The lanes of the LLM and of the drafters that worked in these rounds."""
    if not rounds:
        return ()
    start, end = rounds[0].start_ms, rounds[-1].end_ms
    busy: defaultdict[str, list[tuple[float, float]]] = defaultdict(list, {LLM_LANE: []})
    for part in (part for facts in rounds for part in facts.runs.values()):
        for lane, spans in _by_model(part.completed.spans).items():
            busy[lane] += [
                (max(start, part.started_ms + span.start_ms), part.started_ms + span.end_ms)
                for span in spans
                if part.started_ms + span.end_ms > start
            ]
    total_ms = max(end - start, 1e-9)
    # The union, not the sum: each request of a batch has a span over the whole pass.
    return tuple(Lane(name, min(1.0, union_ms(times) / total_ms)) for name, times in busy.items())


def _by_model(spans: Iterable[Span]) -> dict[str, list[Span]]:
    spans_by_model: dict[str, list[Span]] = {}
    for span in spans:
        if span.lane not in HOST_LANES:
            spans_by_model.setdefault(span.lane, []).append(span)
    return spans_by_model
