"""The whole page on the bundled models in a real Chromium: what the panels show of lengths, lanes,
overlap and drafts made ahead equals what the store recorded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from core.config import PIPELINES
from tests.ui.charted import (
    check_columns,
    check_curve,
    check_lanes,
    check_lengths,
    round_times,
)
from tests.ui.decoded import (
    Recorded,
    close,
    decode,
    finished,
    number_in,
    prepare,
    recorded,
    select_round,
)
from tests.ui.sites import OpenPage, overflows, ready, said, shot
from ui.context import Context
from ui.pages.menus import pipeline_choices

pytestmark = pytest.mark.browser

LABELS = {name: label for label, name in pipeline_choices()}


def check_sums(page: Any, run: Recorded) -> None:
    """The sums of what was drafted ahead, and the overlap, are those of the events."""
    entries = [entry for completed in run.completed for entry in completed.ahead]
    told = page.locator("#live-timeline .ss-ahead-sums")
    if not entries:
        assert told.is_hidden() or "none to draft for" in told.inner_text()
        return
    words = told.inner_text()
    hits, saved = sum(entry.hit for entry in entries), sum(entry.saved_ms for entry in entries)
    if not any(entry.outcomes for entry in entries):
        beside = sum(entry.saved_ms >= 0.005 for entry in entries)
        which = ("it" if hits == 1 else f"{beside} of them") if beside else "none of the drafting"
        assert f"{hits} draft" in words and f"; {which} ran beside a pass over another" in words
        assert not beside or time_in(words, "hidden") == pytest.approx(saved, abs=0.06)
        return
    assert f"Drafted ahead: {hits} hit" in words
    unused = sum(entry.reason in ("unused", "ended") for entry in entries)
    assert f" {len(entries) - hits - unused} miss" in words
    assert (f" and {unused} not used" in words) == (unused > 0)
    wasted = sum(entry.wasted_ms for entry in entries)
    assert time_in(words, "saved") == pytest.approx(saved, abs=0.06)
    assert time_in(words, "wasted") == pytest.approx(wasted, abs=0.06)
    assert f"for {100 * run.stats.overlap_ratio:.0f} % of the LLM's time" in words


def time_in(words: str, before: str) -> float:
    """The milliseconds that stand before a word."""
    found = re.search(rf"([\d.]+) (ms|s) {before}", words)
    assert found, words
    return float(found[1]) * (1000 if found[2] == "s" else 1)


def check_round(page: Any, run: Recorded, number: int) -> None:
    """What came of the drafts made ahead for one round, drafter by drafter."""
    words = page.locator("#live-timeline .ss-ahead-round").inner_text()
    own = [entry for entry in run.completed[number].ahead if entry.reason != "ended"]
    guessed = any(entry.outcomes or not entry.hit for entry in own)
    begun = f", from drafts begun during round {number}" if guessed else ""
    head, _, told = words.partition(": ")
    assert head.startswith(f"Round {number + 1}{begun}")
    parts = told.split("; ")
    assert len(parts) == len(run.completed[number].ahead)
    for part, entry in zip(parts, run.completed[number].ahead, strict=True):
        assert part.startswith(f"{entry.drafter} ")
        if entry.outcomes:
            assert ("hit" in part) == entry.hit
            assert (f"({entry.outcomes} guess" in head) != (f"({entry.outcomes} guess" in part)
        if entry.hit and not entry.outcomes and entry.saved_ms < 0.005:
            assert part.removesuffix(".").endswith("not during a pass: nothing hidden")
        elif entry.hit:
            word = "saved" if entry.outcomes else "hidden"
            assert time_in(part, word) == pytest.approx(entry.saved_ms, abs=0.06)


def check_times(page: Any, run: Recorded, number: int) -> None:
    """Measured and predicted round times, of the selected round in words and of all as lines."""
    told = page.locator("#live-timeline .ss-ahead-predicted").inner_text()
    said_ms = re.search(r"predicted ([\d.]+) ms, measured ([\d.]+) ms", told)
    times = round_times(run)
    own = next(time for time in times if time[0] == number)
    assert said_ms and float(said_ms[1]) == pytest.approx(own[2], abs=0.06)
    assert float(said_ms[2]) == pytest.approx(own[1], abs=0.06)
    measured = [(time[0], time[1]) for time in times]
    predicted = [(time[0], time[2]) for time in times]
    check_curve(page, "#live-timeline .ss-ahead-times", [measured, predicted])


def test_best_shows_estimates_reason_and_prediction_as_recorded(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0]))
    decode(page, "best")
    run = recorded(real[1])
    assert run.started.config["speculation"]["length"] == "goodput"
    number = max(range(len(run.completed)), key=lambda r: len(run.completed[r].estimates))
    select_round(page, number)
    completed = run.completed[number]
    panel = page.locator("#live-lengths")
    reason = panel.locator(".ss-choice-said").inner_text()
    assert completed.length_reason.replace("->", "→") in reason
    columns = panel.locator(".ss-mini-col title").all_text_contents()
    assert len(columns) == len(completed.estimates) > 1
    for text, estimate in zip(columns, completed.estimates, strict=True):
        speed = 1000 * estimate.tokens / estimate.ms
        length, tokens = text.split(" tokens in ")[0].split(": ")
        assert length == f"length {estimate.length}" and close(tokens, estimate.tokens)
        assert number_in(text.split(", ")[1]) == pytest.approx(speed, abs=0.06)
    chosen = panel.locator(".ss-mini-chosen title").text_content()
    assert chosen.startswith(f"length {completed.next_speculation_length}:")
    check_sums(page, run)
    check_columns(
        page, "#live-lengths", [1000 * each.tokens / each.ms for each in completed.estimates]
    )
    check_lengths(page, run)
    check_times(page, run, number)
    check_lanes(page, run, number)
    shot(page, "best-1280-light")


@pytest.mark.parametrize("pipeline", [name for name in PIPELINES if name != "off"])
def test_a_request_by_itself_shows_what_was_drafted_beside_its_passes(
    real: tuple[str, Context], browser_page: OpenPage, pipeline: str
) -> None:
    page = ready(browser_page(real[0]))
    decode(page, "specinfer", pipeline=LABELS[pipeline])
    run = recorded(real[1])
    assert run.started.config["speculation"]["pipeline"] == pipeline
    check_sums(page, run)
    number = next((c.round for c in run.completed if c.ahead), len(run.completed) - 2)
    select_round(page, number)
    if run.completed[number].ahead:
        check_round(page, run, number)
    check_lanes(page, run, number)
    shot(page, f"pipeline-{pipeline}-1280-light")


def test_of_two_requests_at_once_the_overlap_is_the_recorded_one(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    first, second = (ready(browser_page(real[0], width=width)) for width in (1280, 390))
    prepare(first, "minions", tokens=400)
    first.get_by_label("ignore_eos").check()
    prepare(second, "minions", tokens=20)
    first.click("#live-run")
    said(first, "Writing: ")
    second.click("#live-run")
    finished(second)
    run = recorded(real[1])
    first.click("#live-stop")
    ahead = [completed.round for completed in run.completed if completed.ahead]
    assert ahead, "both drafted and verified at once"
    check_sums(second, run)
    select_round(second, ahead[-1])
    check_round(second, run, ahead[-1])
    assert not overflows(second)
    shot(second, "across-390-light")
