"""SSMs that drafted at once: the page draws them so, and counts their time once in every sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.events import Event, RoundCompleted, RunStats, Span
from tests.synthetic import DRAFTERS, Mechanisms, synthetic_run
from tests.together import together
from tests.ui.shown import shown
from ui.learn.lessons.measured import measured_row
from ui.run.slower import slower_because
from ui.run.times import add_spans, time_of
from ui.run.view import reduce_all

APART = synthetic_run(20, seed=5, mechanisms=Mechanisms("union", "goodput"))
SHARED = together(APART)
UNDER_WAY = APART[:-1], SHARED[:-1]


def of_rounds(events: Sequence[Event]) -> list[RoundCompleted]:
    return [event for event in events if isinstance(event, RoundCompleted)]


def test_three_that_share_ten_milliseconds_take_ten() -> None:
    spans = tuple(Span(name, "draft", 5.0, 15.0, 1 / 3) for name in DRAFTERS)
    event = replace(of_rounds(APART)[1], spans=(*spans, Span("llm", "forward", 15.0, 21.0)))
    assert time_of(event).ms == pytest.approx(10 + 6)
    assert dict(add_spans((), event)) == pytest.approx({"draft": 10.0, "llm": 6.0, "busy": 16.0})


def test_a_rounds_time_is_what_it_is_one_after_another() -> None:
    for event, other in zip(of_rounds(SHARED), of_rounds(APART), strict=True):
        assert time_of(event).ms == pytest.approx(time_of(other).ms)
        assert time_of(event).whole_ms == pytest.approx(time_of(other).whole_ms)


def test_the_stages_shares_of_a_run_are_those_of_the_true_time() -> None:
    found, true = (shown(events, 3)["timeline"] for events in (SHARED, APART))
    assert found["share"] == pytest.approx(true["share"], abs=2e-3)
    assert sum(found["share"].values()) == pytest.approx(found["total"], rel=1e-3)


def test_what_lengths_have_yielded_is_by_the_true_time() -> None:
    found, true = (shown(events, 12)["lengths"]["lately"] for events in (SHARED, APART))
    assert found == pytest.approx(true, rel=1e-3)


def test_a_bar_is_as_long_as_it_took_and_says_what_is_counted() -> None:
    value = shown(SHARED, 3)["timeline"]
    for event in of_rounds(SHARED):
        bars = value["bars"][str(event.round)]
        assert len(bars) == len(event.spans)
        for bar, span in zip(bars.values(), event.spans, strict=True):
            assert value["lanes"][bar["lane"]] == span.lane
            ends = span.start_ms, span.end_ms
            assert (bar["start"], bar["end"]) == pytest.approx(ends, abs=1e-3)
            assert ("own" in bar) == (span.name in ("draft", "catch_up"))
            assert bar.get("own", span.ms) == pytest.approx(span.ms, abs=1e-3)
    plain = shown(APART, 3)["timeline"]["bars"]
    assert not [bar for bars in plain.values() for bar in bars.values() if "own" in bar]


def test_a_run_under_way_has_the_figures_of_the_true_time() -> None:
    true, found = (reduce_all(events).stats for events in UNDER_WAY)
    assert found.draft_ms == pytest.approx(true.draft_ms)
    assert told(found) == told(true)


def told(stats: RunStats) -> str:
    """Why it is slower than a plain decoding that is twice as fast."""
    return slower_because(stats, 2 * stats.tokens_per_second)


def test_a_pass_of_a_lesson_is_what_of_it_was_the_runs() -> None:
    event = of_rounds(APART)[-1]
    halves = [replace(span, share=0.5) for span in event.spans if span.name == "forward"]
    events = [
        replace(e, spans=(*(s for s in e.spans if s.name != "forward"), *halves, *halves))
        if isinstance(e, RoundCompleted)
        else e
        for e in APART
    ]
    (half,) = halves
    row = measured_row("both", reduce_all(events))
    assert row.pass_ms == pytest.approx(half.end_ms - half.start_ms)
