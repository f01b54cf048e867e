"""Worker.snapshot."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from core import Engine, Worker
from core.engine.snapshot import RoundFacts, ScheduleDecision, Snapshot, lanes_of, live_run
from core.events import Combined, Event, RoundCompleted, Span, Verified
from core.scheduling import FREE, BatchOutcome, LiveRequest, Plan
from tests.core.gated import GatedModel, all_of, both_running, release, request, until
from tests.synthetic import synthetic_run


def test_a_snapshot_agrees_with_the_events(worker: Worker, engine: Engine, llm: GatedModel) -> None:
    engine.schedule = "cosine"
    assert worker.snapshot() == Snapshot("cosine", 0, 2)
    by_round: dict[tuple[str, int], Any] = {}

    def tap(_: Event) -> None:
        for run in worker.snapshot().runs:
            by_round[run.run_id, run.round] = run

    llm.open.clear()
    runs = [worker.submit(request(seed=i), tap) for i in range(3)]
    until(lambda: both_running(worker, llm))
    now = worker.snapshot()
    assert (now.num_waiting, len(now.runs)) == (1, 2)
    assert all(run.max_tokens == 20 for run in now.runs)
    release(llm)
    events = [event for run in runs for event in all_of(run)]
    nodes = {(e.run_id, e.round): len(e.token_ids) for e in events if isinstance(e, Combined)}
    paths = {(e.run_id, e.round): len(e.path) for e in events if isinstance(e, Verified)}
    round_event = {(e.run_id, e.round): e for e in events if isinstance(e, RoundCompleted)}
    finished = {key: run for key, run in by_round.items() if run.round >= 0}
    assert {run_id for run_id, _ in finished} == {run.run_id for run in runs} and len(finished) > 6
    for key, run in finished.items():
        assert (run.num_verified, run.num_accepted) == (nodes[key], paths[key])
        assert run.scheduled is not None and run.scheduled == round_event[key].scheduled
        assert run.llm_ms == pytest.approx(
            sum(s.ms for s in round_event[key].spans if s.lane == "llm")
        )
    assert replace(worker.snapshot(), decision=None) == Snapshot("cosine", 0, 2)


class OneByOne:
    def __init__(self) -> None:
        self.plans = 0

    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        self.plans += 1
        group = ((self.plans - 1) % len(live),)
        decision = "fewer" if self.plans == 3 else ""
        return Plan(group, (FREE,) * len(live), None, f"plan {self.plans}", decision)

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        return None

    def observe(self, outcome: BatchOutcome) -> None:
        return None


def test_the_last_decision_stays_and_every_live_request_records_it(
    worker: Worker, engine: Engine, llm: GatedModel
) -> None:
    engine.schedule = "cosine"
    engine._schedule._scheduler = scheduler = OneByOne()
    llm.open.clear()
    runs = [worker.submit(request(seed=i)) for i in range(2)]
    until(lambda: both_running(worker, llm))
    assert worker.snapshot().decision is None
    release(llm)
    events = [[e for e in all_of(run) if isinstance(e, RoundCompleted)] for run in runs]
    for rounds in events:
        parts = [e.scheduled for e in rounds if e.scheduled is not None]
        decided = [(one.decision, one.reason) for one in parts if one.decision]
        assert decided == [("fewer", "plan 3")], "once in each request's rounds"
    last = ScheduleDecision("fewer", "plan 3", scheduler.plans - 3)
    assert worker.snapshot().decision == last and last.passes > 0
    engine.schedule = "each"
    assert worker.snapshot().decision is None


def rounds_of(*spans: tuple[Span, ...]) -> list[RoundFacts]:
    """The run starts 5 ms before its first round."""
    round_event = next(e for e in synthetic_run(1) if isinstance(e, RoundCompleted))
    events = [replace(round_event, round=i, spans=result) for i, result in enumerate(spans)]
    starts = {round_event.run_id: -0.005}
    return [
        RoundFacts.of(i / 100, (i + 1) / 100, [event], starts) for i, event in enumerate(events)
    ]


def test_the_busy_share_of_a_lane_counts_overlaps_once() -> None:
    rounds = rounds_of(
        (Span("llm", "prefill", 0.0, 5.0), Span("a", "draft", 5.0, 10.0), Span("b", "draft", 5, 8)),
        (
            Span("llm", "forward", 15.0, 23.0),
            Span("a", "ahead", 16.0, 20.0),
            Span("a", "x", 18, 21),
        ),
    )
    assert {lane.name: lane.busy for lane in lanes_of(rounds)} == {
        "llm": pytest.approx(8 / 20), "a": pytest.approx(10 / 20), "b": pytest.approx(3 / 20)
    }  # fmt: skip
    (run_id,) = rounds[0].runs
    last = live_run(run_id, 7, 9, rounds)
    assert (last.round, last.llm_ms, last.draft_ms, last.num_waited) == (1, 8.0, 5.0, 0)
    empty = RoundFacts(20.0, 30.0, {})
    assert live_run(run_id, 7, 9, [*rounds, empty]).num_waited == 1
    other = live_run("another", 0, 9, rounds)
    assert (other.round, other.num_waited) == (-1, len(rounds))
