"""What of a round lies between its stages, on a made-up clock and as a length policy is told it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

import core.gaps
from core.events import Event
from core.gaps import Gaps
from core.length import RoundOutcome
from core.sequence import Timed
from core.turn import Live
from tests.core.engines import engine_of, request, tables

SLOW_READER = 0.02


def turn(run: str, *stages: tuple[float, float]) -> Any:
    """As much of a Turn as is looked at; stages from when to when, in seconds."""
    timed = [Timed("llm", "forward", start, end) for start, end in stages]
    live = SimpleNamespace(sequence=SimpleNamespace(run_id=run))
    return SimpleNamespace(live=live, timed=timed, between_ms=-1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(core.gaps, "time", SimpleNamespace(perf_counter=lambda: now.s))
    return now


def test_what_no_stage_takes(clock: Any) -> None:
    one, clock.s = turn("a", (10.1, 10.4), (10.3, 10.5), (10.35, 10.4), (10.6, 10.9)), 11.0
    Gaps().fill([one], 10.0)
    assert one.between_ms == pytest.approx(1000 * (1.0 - 0.4 - 0.3))


def test_a_draft_of_an_earlier_round_covers_nothing_of_this(clock: Any) -> None:
    one, clock.s = turn("a", (8.0, 9.9), (10.0, 10.5)), 11.0
    Gaps().fill([one], 10.0)
    assert one.between_ms == pytest.approx(500.0)


def test_what_follows_a_commit_counts_in_the_next_round_of_the_same(clock: Any) -> None:
    gaps = Gaps()
    for runs, since in ((("a",), 10.0), (("a",), 10.8), (("a", "b"), 12.0), (("a", "b"), 12.8)):
        began = since if since in (10.0, 12.0) else since + 0.5
        turns = [turn(run, (began, began + 0.25)) for run in runs]
        clock.s = began + 0.5
        gaps.fill(turns, began)
        whole = began + 0.5 - since - 0.25
        assert [one.between_ms for one in turns] == [pytest.approx(1000 * whole / len(runs))] * len(
            runs
        )
        for one in turns:
            one.timed.append(Timed("commit", "commit", began + 0.5, began + 0.8))
        gaps.committed(turns)
        clock.s = began + 0.8


def test_a_length_policy_is_told_what_a_slow_reader_takes() -> None:
    """Between a round's events; a quick reader takes less."""

    class Told:
        def __init__(self, live: Live) -> None:
            self.policy, self.outcomes = live.policy, list[RoundOutcome]()

        def choose(self) -> Any:
            return self.policy.choose()

        def observe(self, outcome: RoundOutcome) -> None:
            self.outcomes.append(outcome)
            self.policy.observe(outcome)

    def typical(pause: float) -> float:
        engine = engine_of(*tables(1))
        live = engine.admit(engine.prepare(request()))
        told = Told(live)
        live.policy = told  # type: ignore[assignment]
        for _ in engine.prefill(live):
            pass
        event: Event
        while not live.sequence.finish_reason:
            for event in engine.round([live]):
                assert event.run_id == live.sequence.run_id
                time.sleep(pause)
        engine.release(live)
        found = sorted(one.round_ms for one in told.outcomes)
        return found[len(found) // 2]

    assert typical(SLOW_READER) > typical(0.0) + 3 * 1000 * SLOW_READER * 0.9
