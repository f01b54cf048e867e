"""The time between a round's stages."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import core.engine.time_between_stages
from core.engine.round_state import ActiveRequest, RoundState
from core.engine.time_between_stages import TimeBetweenStages
from core.events import Event, RoundCompleted, RunCompleted, RunFailed, Verified
from core.events.parts import Timed
from core.speculation_length import RoundOutcome
from tests.core.engines import GREEDY, TREE, engine_of, request, tables

SLOW_READER = 0.02


def state(
    run: str, *stages: tuple[float, float], reading: tuple[float, float] | None = None
) -> Any:
    """Replaces a RoundState. `stages` and `reading`: (start, end) in seconds."""
    timings = [Timed("llm", "forward", *stage) for stage in stages]
    read = [Timed("ssm", "prefill", *reading)] if reading else []
    live = SimpleNamespace(run_id=run, timings=read)
    return SimpleNamespace(request=live, timings=timings, between_ms=-1.0)


def measure(between: TimeBetweenStages, state: RoundState, began: float) -> None:
    between.begin([state.request], [state], began)
    between.fill()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(
        core.engine.time_between_stages, "time", SimpleNamespace(perf_counter=lambda: now.s)
    )
    return now


def test_time_that_no_stage_takes_is_between_stages(clock: Any) -> None:
    one, clock.s = state("a", (10.1, 10.4), (10.3, 10.5), (10.35, 10.4), (10.6, 10.9)), 11.0
    measure(TimeBetweenStages(), one, 10.0)
    assert one.between_ms == pytest.approx(1000 * (1.0 - 0.4 - 0.3))


def test_reading_the_prompt_is_not_between_stages(clock: Any) -> None:
    one, clock.s = state("a", (10.7, 11.0), reading=(10.1, 10.6)), 11.0
    measure(TimeBetweenStages(), one, 10.0)
    assert one.between_ms == pytest.approx(200.0)


def test_a_draft_of_an_earlier_round_covers_no_time_of_this_round(clock: Any) -> None:
    one, clock.s = state("a", (8.0, 9.9), (10.0, 10.5)), 11.0
    measure(TimeBetweenStages(), one, 10.0)
    assert one.between_ms == pytest.approx(500.0)


@pytest.mark.parametrize(("run", "after_commit"), [("a", 0.25), ("b", 0.0)])
def test_what_follows_a_commit_counts_in_the_next_round_of_the_same_run(clock, run, after_commit):
    between, before, after = TimeBetweenStages(), state("a", (10.0, 11.0)), state(run, (14.0, 14.5))
    clock.s = 11.0
    measure(between, before, 10.0)
    clock.s = 11.25
    between.end()
    clock.s = 14.6  # between 11.25 and 14 another request was prefilled
    measure(between, after, 14.0)
    assert after.between_ms == pytest.approx(1000 * (0.1 + after_commit))
    between.begin((), (), 14.0)
    between.end()
    measure(between, after, 14.0)
    assert after.between_ms == pytest.approx(100.0)


def test_a_length_policy_observes_the_time_of_a_slow_reader() -> None:
    class RecordingPolicy:
        def __init__(self, live: ActiveRequest) -> None:
            self.policy, self.outcomes = live.policy, list[RoundOutcome]()

        def choose(self) -> Any:
            return self.policy.choose()

        def observe(self, outcome: RoundOutcome) -> None:
            self.outcomes.append(outcome)
            self.policy.observe(outcome)

    def median_round_ms(pause: float) -> float:
        engine = engine_of(*tables(1))
        live = engine.admit(engine.prepare(request()))
        recording = RecordingPolicy(live)
        live.policy = recording  # type: ignore[assignment]
        for _ in engine.prefill(live):
            pass
        event: Event
        while not live.sequence.finish_reason:
            for event in engine.round([live]):
                assert event.run_id == live.sequence.run_id
                time.sleep(pause)
        engine.release(live)
        results = sorted(one.round_ms for one in recording.outcomes)
        return results[len(results) // 2]

    assert median_round_ms(SLOW_READER) > median_round_ms(0.0) + 3 * 1000 * SLOW_READER * 0.9


@pytest.mark.parametrize("pipeline", ["off", "across", "ahead"])
def test_with_several_requests_no_time_between_stages_is_measured(pipeline: str) -> None:
    config = replace(TREE, pipeline=pipeline)
    events = list(engine_of(*tables(1)).generate_many([request(config=config) for _ in range(2)]))
    first_end = next(i for i, one in enumerate(events) if isinstance(one, RunCompleted))
    together = [one for one in events[:first_end] if isinstance(one, RoundCompleted)]
    assert together and all(one.between_ms == 0 for one in together)
    alone = list(engine_of(*tables(1)).generate(request(config=config)))
    assert all(one.between_ms > 0 for one in alone if isinstance(one, RoundCompleted))


def test_a_failing_request_does_not_change_one_that_has_finished() -> None:
    """A request's last events come before the commit of the next request."""
    engine = engine_of(*tables(1))
    commit, commits = engine.models.llm.commit, [0]
    results: list[Event] = []

    def failing(row: int, path: Any) -> None:
        commits[0] += any(isinstance(one, Verified) for one in results)
        if commits[0] == 2:
            raise RuntimeError("no")
        commit(row, path)

    short = replace(GREEDY, max_new_tokens=1)
    engine.models.llm.commit = failing  # type: ignore[method-assign]
    for event in engine.generate_many([request(sampling=short), request()]):
        results.append(event)
    completed, failed = results[-2:]
    assert isinstance(completed, RunCompleted)
    assert isinstance(failed, RunFailed) and failed.message == "no"
