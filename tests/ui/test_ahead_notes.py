"""The page's times, hits, misses and notes for drafting ahead and for SSMs in shared passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from core.config import COMBINES
from core.config.mechanisms import combine_rule
from core.events import Event, RoundCompleted, RunStats, Span
from lab.figures import Estimate
from tests.core.engines import rounds_of
from tests.synthetic import DRAFTERS, VOTE_AHEAD, Mechanisms, synthetic_run
from tests.together import share_passes
from tests.ui.fakes import pictures_at
from ui.learn.lessons.measured import measured_row
from ui.run.frame import Frame
from ui.run.slower import slower_because
from ui.run.times import add_spans, time_of
from ui.run.values import picture_values
from ui.run.view import reduce_all
from ui.words.messages import run_lines


def pipeline_run(pipeline: str) -> list[Event]:
    return synthetic_run(20, seed=5, mechanisms=Mechanisms(pipeline=pipeline))


def with_rounds(
    events: Sequence[Event], change: Callable[[RoundCompleted], dict[str, Any]]
) -> list[Event]:
    return [replace(e, **change(e)) if isinstance(e, RoundCompleted) else e for e in events]


@pytest.mark.parametrize("pipeline", ["ahead", "auto", "across"])
def test_sums_of_drafting_ahead_are_those_of_the_events(pipeline: str) -> None:
    events = pipeline_run(pipeline)
    value = pictures_at(events, 3)["timeline"]
    by_round = {e.round: e.ahead for e in rounds_of(events) if e.ahead}
    assert value["hits"].keys() == {str(number) for number in by_round}
    all_entries = tuple(entry for entries in by_round.values() for entry in entries)
    for sums, entries in (
        (value["ahead"], all_entries),
        *((value["hits"][str(number)], entries) for number, entries in by_round.items()),
    ):
        assert sums["hits"] == sum(e.hit for e in entries)
        assert sums["misses"] == sum(not e.hit for e in entries)
        assert sums["unused"] == sum(e.reason in ("unused", "ended") for e in entries)
        assert sums["saved"] == pytest.approx(sum(e.saved_ms for e in entries), abs=1e-3)
        assert sums["wasted"] == pytest.approx(sum(e.wasted_ms for e in entries), abs=1e-3)
        assert sums["guessed"] == (pipeline != "across")
    assert value["ahead"]["hits"] > 0 and (value["ahead"]["misses"] > 0) == (pipeline != "across")
    assert value["pipeline"] == pipeline


def test_a_draft_that_no_pass_hid_is_not_counted_as_made_during_one() -> None:
    def change(e: RoundCompleted) -> dict[str, Any]:
        return {"ahead": tuple(replace(a, saved_ms=0.004) if e.round % 4 else a for a in e.ahead)}

    events = with_rounds(pipeline_run("across"), change)
    sums = pictures_at(events, 3)["timeline"]["ahead"]
    entries = [one for event in rounds_of(events) for one in event.ahead]
    assert sums["beside"] == sum(one.saved_ms > 0.004 for one in entries)
    assert 0 < sums["beside"] < sums["hits"] == len(entries)


def test_a_round_gives_the_reason_of_each_miss() -> None:
    events, reasons = pipeline_run("ahead"), set()
    for event in rounds_of(events):
        own = pictures_at(events, event.round)["timeline"]["round"]
        assert [(one["d"], one["why"], one["hit"]) for one in own.values()] == [
            (str(DRAFTERS.index(one.drafter)), one.reason, one.hit) for one in event.ahead
        ]
        reasons |= {one.reason for one in event.ahead}
    assert reasons == {"", "wrong", "unused", "ended"}


def test_overlap_and_time_are_those_of_the_runs_figures_though_stages_add_up_to_more() -> None:
    for pipeline in ("off", "across", "ahead"):
        events = pipeline_run(pipeline)
        stats, value = events[-1].stats, pictures_at(events, 3)["timeline"]
        assert value["overlap"] == pytest.approx(stats.overlap_ratio, abs=1e-4)
        assert (value["overlap"] > 0) == (pipeline != "off")
        assert value["total"] == pytest.approx(stats.total_ms, abs=1e-3)
        exceeds = sum(value["share"].values()) > 1.005 * value["total"]
        assert pipeline == "across" or exceeds == (pipeline == "ahead")


def test_without_drafting_ahead_nothing_is_reported() -> None:
    value = picture_values(Frame(view=reduce_all(synthetic_run(3))))["timeline"]
    assert value["ahead"] == value["hits"] == {} and value["pipeline"] == "off"
    assert (
        value["share"]["ahead"]
        == 0
        < pictures_at(pipeline_run("ahead"), 3)["timeline"]["share"]["ahead"]
    )


def test_drafting_ahead_is_a_hit_or_a_miss_as_the_next_round_reports() -> None:
    seen_fates = set()
    for pipeline in ("ahead", "auto"):
        events = pipeline_run(pipeline)
        bars = pictures_at(events, 3)["timeline"]["bars"]
        hits = {
            (e.round, a.drafter): a.hit
            for e in rounds_of(events)
            for a in e.ahead
            if a.reason not in ("unused", "ended")
        }
        for event in rounds_of(events):
            for k, span in enumerate(event.spans):
                fate = bars[str(event.round)][str(k)]["a"]
                hit = hits.get((event.round + 1, span.lane))
                expected = "open" if hit is None else "hit" if hit else "miss"
                assert fate == (expected if span.name == "ahead" else "")
                seen_fates.add(fate)
    assert seen_fates == {"", "hit", "miss", "open"}


def test_a_draft_made_during_another_requests_pass_is_a_hit_in_its_own_round() -> None:
    events = pipeline_run("across")
    bars = pictures_at(events, 3)["timeline"]["bars"]
    for event in rounds_of(events):
        early = {entry.drafter for entry in event.ahead}
        for k, span in enumerate(event.spans):
            drafted = span.lane in early and span.name == "draft"
            assert bars[str(event.round)][str(k)]["a"] == ("hit" if drafted else "")


def test_a_note_is_shown_from_the_end_of_its_round_on() -> None:
    events = synthetic_run(9, seed=5, mechanisms=VOTE_AHEAD)
    end = next(i for i, e in enumerate(events) if isinstance(e, RoundCompleted) and e.round == 5)
    failed = "drafter ssm-stories failed (SyntheticFailure: SYNTHETIC failure)"
    words = f"Round 6: {failed}; the run goes on without it."
    for count, shown in ((end, False), (end + 1, True), (len(events), True)):
        frame = Frame(view=reduce_all(events[:count]), known=count, run_id="x", at_end=True)
        assert (words in [line.text for line in run_lines(frame)]) == shown
        assert bool(picture_values(frame)["strip"]["notes"]) == shown
        assert ("warn" in [line.kind for line in run_lines(frame) if line.text == words]) == shown


def test_many_notes_do_not_flood_the_notice() -> None:
    events = with_rounds(synthetic_run(9), lambda e: {"notes": (f"note {e.round}",)})
    frame = Frame(view=reduce_all(events), known=len(events), run_id="x", at_end=True)
    notes = [line.text for line in run_lines(frame) if "note" in line.text]
    rounds = ["Round 7: note 6.", "Round 8: note 7.", "Round 9: note 8."]
    assert notes == ["6 earlier notes not shown here.", *rounds]


def test_trials_of_auto_are_reported_in_order_with_their_consequences() -> None:
    notes = {
        3: "drafting ahead takes 21.6 ms a round, 10.6 without: off",
        7: "drafting ahead takes 7.0 ms a round, 10.2 without: on",
    }
    run = synthetic_run(9, mechanisms=Mechanisms(pipeline="auto"))
    events = with_rounds(run, lambda e: {"notes": (notes[e.round],)} if e.round in notes else {})
    frame = Frame(view=reduce_all(events), known=len(events), run_id="x", at_end=True)
    lines = [line for line in run_lines(frame) if "trial" in line.text]
    assert {line.kind for line in lines} == {"info"}, "nothing went wrong"
    marked = picture_values(frame)["strip"]["notes"].keys()
    assert not marked & {"3", "7"}, "neither round has a mark"
    texts, words = [line.text for line in lines], "a trial of drafting ahead ends"
    assert texts == [
        f"Round 4: {words}: 21.6 ms a round with it, 10.6 without; the run goes on without it.",
        f"Round 8: {words}: 7.0 ms a round with it, 10.2 without; the run goes on with it.",
    ]
    assert picture_values(frame)["timeline"]["trials"] == {
        "3": {"kind": "ahead", "ms": 21.6, "without": 10.6, "on": False} | guesses_of(events, 3),
        "7": {"kind": "ahead", "ms": 7.0, "without": 10.2, "on": True} | guesses_of(events, 7),
    }


def guesses_of(events: list[Event], until: int) -> dict[str, int]:
    """`asked`: the rounds up to `until` with uncertain drafts. `used`: the uncertain drafts that
    were hits."""
    by_event = [event.ahead for event in rounds_of(events) if event.round <= until]
    uncertain = [[entry for entry in entries if not entry.is_certain] for entries in by_event]
    used = sum(entry.hit for entries in uncertain for entry in entries)
    return {"asked": sum(bool(entries) for entries in uncertain), "used": used}


@pytest.mark.parametrize("combine", COMBINES)
def test_a_combine_rule_that_cannot_draft_ahead_is_named(combine: str) -> None:
    events = synthetic_run(12, seed=5, mechanisms=Mechanisms(combine, "goodput", "ahead"))
    assert pictures_at(events, 3)["timeline"]["never"] == (
        "" if combine_rule(combine).ahead else combine
    )


@pytest.mark.parametrize("pipeline", ["off", "ahead", "across"])
def test_the_measured_time_is_the_one_that_length_rules_learn_from(pipeline: str) -> None:
    run = synthetic_run(20, seed=5, mechanisms=Mechanisms("union", "goodput", pipeline))
    events = [replace(e, between_ms=1.5) if isinstance(e, RoundCompleted) else e for e in run]
    rounds, hidden = pictures_at(events, 3)["timeline"]["rounds"], 0.0
    for event in rounds_of(events):
        own = [s for s in event.spans if s.name not in ("prefill", "ahead")]
        round_value = rounds[str(event.round)]
        certain = sum(a.saved_ms for a in event.ahead if a.is_certain)
        assert round_value["hid"] == pytest.approx(certain, abs=1e-3)
        assert round_value["ms"] == pytest.approx(
            sum(s.ms for s in own) + 1.5 - round_value["hid"], abs=2e-3
        )
        ends = min(s.start_ms for s in own), max(s.end_ms for s in own)
        assert round_value["all"] == pytest.approx(ends[1] - ends[0], abs=1e-3)
        hidden += round_value["hid"]
    assert (hidden > 0) == (pipeline == "across")


def test_a_pause_that_is_another_requests_turn_is_no_part_of_the_measured_time() -> None:
    events = synthetic_run(3, mechanisms=Mechanisms("union", "goodput", "off"))
    paused = with_rounds(events, lambda e: {"spans": tuple(map(delay_commit, e.spans))})
    (short, long) = (pictures_at(run, 1)["timeline"]["rounds"]["1"] for run in (events, paused))
    assert long["ms"] == pytest.approx(short["ms"])
    assert long["all"] == pytest.approx(short["all"] + 30)


def delay_commit(span: Span) -> Span:
    late = 30.0 if span.lane == "commit" else 0.0
    return replace(span, start_ms=span.start_ms + late, end_ms=span.end_ms + late)


def test_a_playback_has_ended_only_at_its_end() -> None:
    events = pipeline_run("across")
    early = Frame(view=reduce_all(events[:9]), known=len(events), ended=True)
    late = Frame(view=reduce_all(events), known=len(events), ended=True, at_end=True)
    assert [picture_values(f)["timeline"]["ended"] for f in (early, late)] == [False, True]


@cache
def apart_run() -> list[Event]:
    return synthetic_run(20, seed=5, mechanisms=Mechanisms("union", "goodput"))


@cache
def shared_run() -> list[Event]:
    return share_passes(apart_run())


def test_sums_over_shared_passes_are_those_over_separate_ones() -> None:
    for event, other in zip(rounds_of(shared_run()), rounds_of(apart_run()), strict=True):
        assert time_of(event).ms == pytest.approx(time_of(other).ms)
        assert time_of(event).whole_ms == pytest.approx(time_of(other).whole_ms)
    result, expected = (
        pictures_at(events, 3)["timeline"] for events in (shared_run(), apart_run())
    )
    assert result["share"] == pytest.approx(expected["share"], abs=2e-3)
    assert sum(result["share"].values()) == pytest.approx(result["total"], rel=1e-3)
    result, expected = (
        pictures_at(events, 12)["lengths"]["lately"] for events in (shared_run(), apart_run())
    )
    assert result == pytest.approx(expected, rel=1e-3)
    expected, result = (reduce_all(run[:-1]).stats for run in (apart_run(), shared_run()))
    assert result.draft_ms == pytest.approx(expected.draft_ms)
    assert why_half_as_fast(result) == why_half_as_fast(expected)
    spans = tuple(Span(name, "draft", 5.0, 15.0, 1 / 3) for name in DRAFTERS)
    event = replace(rounds_of(apart_run())[1], spans=(*spans, Span("llm", "forward", 15.0, 21.0)))
    assert time_of(event).ms == pytest.approx(10 + 6)
    assert dict(add_spans((), event)) == pytest.approx({"draft": 10.0, "llm": 6.0, "busy": 16.0})


def test_a_bar_has_the_length_of_its_span_and_the_time_that_is_counted() -> None:
    value = pictures_at(shared_run(), 3)["timeline"]
    for event in rounds_of(shared_run()):
        bars = value["bars"][str(event.round)]
        assert len(bars) == len(event.spans)
        for bar, span in zip(bars.values(), event.spans, strict=True):
            assert value["lanes"][bar["lane"]] == span.lane
            ends = span.start_ms, span.end_ms
            assert (bar["start"], bar["end"]) == pytest.approx(ends, abs=1e-3)
            assert ("own" in bar) == (span.name in ("draft", "catch_up"))
            assert bar.get("own", span.ms) == pytest.approx(span.ms, abs=1e-3)
    plain = pictures_at(apart_run(), 3)["timeline"]["bars"]
    assert not [bar for bars in plain.values() for bar in bars.values() if "own" in bar]


def why_half_as_fast(stats: RunStats) -> str:
    return slower_because(stats, Estimate(0.5, 0.5, 0.5, 1))


def test_a_lesson_counts_the_runs_share_of_a_pass() -> None:
    event = rounds_of(apart_run())[-1]
    halves = [replace(span, share=0.5) for span in event.spans if span.name == "forward"]
    others = lambda e: (s for s in e.spans if s.name != "forward")  # noqa: E731
    events = with_rounds(apart_run(), lambda e: {"spans": (*others(e), *halves, *halves)})
    (half,) = halves
    row = measured_row("both", reduce_all(events))
    assert row.pass_ms == pytest.approx(half.end_ms - half.start_ms)
