"""The bundled models in a real Chromium: panels against recorded events, and a lesson."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from core import Engine, Request, SamplingParams
from core.config import SpeculationConfig
from core.events import RoundCompleted
from storage import RunQuery
from tests.ui import decoded, sites
from tests.ui.browser.looks import turn_to
from tests.ui.decoded import check_columns, check_curve, check_lanes, check_lengths, round_times
from tests.ui.gates import gated_passes
from tests.ui.reading import becomes, read
from ui.form.menus import pipeline_choices
from ui.run.charts import choice_value
from ui.run.frame import Frame
from ui.run.reasons import length_reason
from ui.run.view import detail_of, reduce_all
from ui.server.context import Context
from ui.server.session import TabSession

pytestmark = pytest.mark.browser

TABS = ("learn",)

LABELS = {name: label for label, name in pipeline_choices()}
GLYPHS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})


FIGURES = """(keys) => keys.map((key) =>
  document.querySelector(`#live-figures [data-key=${key}] .ss-figure-value`).textContent)"""
ROUND = """() => {
  const one = (css) => document.querySelector(css)?.innerText ?? null;
  const all = (css) => [...document.querySelectorAll(css)].map((node) => node.textContent);
  const chip = (node) => ({
    text: node.querySelector(".ss-chip-text").textContent,
    mass: node.querySelector(".ss-chip-mass").textContent,
    score: node.querySelector(".ss-chip-score").textContent,
    won: "won" in node.dataset, dropped: "dropped" in node.dataset,
    accepted: "accepted" in node.dataset,
  });
  return {
    chips: [...document.querySelectorAll("#live-proposals .ss-votes tbody tr")]
      .map((row) => [...row.querySelectorAll(".ss-chip")].map(chip)),
    weights: all("#live-proposals .ss-weight-number"),
    dropped: document.querySelectorAll("#live-tree .ss-n-dropped").length,
    winner: one("#live-proposals tr[data-won] .ss-who"),
    vote: one("#live-proposals .ss-vote-said"),
    dial: one("#live-proposals .ss-dial-words"),
    choice: one("#live-lengths .ss-choice-said"),
    columns: all("#live-lengths .ss-mini-col title"),
    chosen: all("#live-lengths .ss-mini-chosen title"),
    ahead: one("#live-timeline .ss-ahead-round"),
    predicted: one("#live-timeline .ss-ahead-predicted"),
  };
}"""


def run_by(page: Any, context: Context, press: Callable[[], object]) -> decoded.Recorded:
    before = count_completed(context)
    press()
    sites.until(page, lambda: count_completed(context) > before)
    events = decoded.latest_run(context)
    stats = events.stats
    keys = ("tokens_per_second", "num_rounds", "num_new_tokens")
    expected = [f"{stats.tokens_per_second:.1f}", str(stats.num_rounds), str(stats.num_new_tokens)]
    becomes(page, FIGURES, expected, keys)
    decoded.wait_finished(page)
    return events


def count_completed(context: Context) -> int:
    context.store.flush()
    return int(context.store.runs(RunQuery(status="completed")).total)


def round_of(page: Any, number: int) -> dict[str, Any]:
    decoded.select_round(page, number)
    return dict(page.evaluate(ROUND))


def check_grid(shown: dict[str, Any], run: decoded.Recorded, number: int) -> None:
    tree, drafted = run.combined[number], run.drafted[number]
    assert tree.rule == "vote"
    names, rows = run.started.drafters, shown["chips"]
    lost = dict(zip(tree.dropped, tree.dropped_masses, strict=True))
    assert sum(map(len, rows)) == sum(len(draft.token_ids) for draft in drafted.drafts)
    for draft in drafted.drafts:
        row = rows[names.index(draft.drafter)]
        order = sorted(range(len(draft.token_ids)), key=lambda j: (draft.depths[j], j))
        for chip, j in zip(row, order, strict=True):
            assert chip["text"].startswith(draft.texts[j].translate(GLYPHS)[:3])
            assert decoded.close(chip["score"].split()[-1], draft.scores[j])
            assert chip["dropped"] == ((draft.drafter, j) in tree.dropped)
            if (draft.drafter, j) in lost:
                assert decoded.close(chip["mass"], lost[draft.drafter, j])
    won = [chip for row in rows for chip in row if chip["won"]]
    assert len(won) == (len(tree.token_ids) if tree.winner else 0)
    assert sum(chip["accepted"] for chip in won) == (
        len(run.verified[number].path) if tree.winner else 0
    )
    for text, name in zip(shown["weights"], names, strict=True):
        assert decoded.close(text.split(" ")[0], tree.weights[name])
        assert decoded.close(text.split(" ")[-1], run.completed[number].weights[name])


def check_dropped(shown: dict[str, Any], run: decoded.Recorded, number: int) -> None:
    tree, drafted = run.combined[number], run.drafted[number]
    paths: dict[tuple[str, int], tuple[int, ...]] = {}
    for draft in drafted.drafts:
        for j, token_id in enumerate(draft.token_ids):
            above = paths.get((draft.drafter, draft.parents[j]), ())
            paths[draft.drafter, j] = (*above, token_id)
    assert shown["dropped"] == len({paths[pair] for pair in tree.dropped})


def check_weights_line(page: Any, run: decoded.Recorded) -> None:
    label = page.locator("#live-proposals .ss-mini-svg").get_attribute("aria-label")
    rounds = [(number, tree.weights) for number, tree in enumerate(run.combined) if tree.weights]
    assert f"Weights over {len(rounds)} rounds" in label
    for name, weight in rounds[-1][1].items():
        assert f"{name} {weight:.2f}" in label
    names = run.started.drafters
    lines = [[(number, weights[name]) for number, weights in rounds] for name in names]
    check_curve(page, "#live-proposals", lines)


def told_reason(completed: RoundCompleted) -> str:
    said = length_reason(completed.length_reason, completed.speculation_length)
    return said.replace("->", "→")


def check_vote(shown: dict[str, Any], run: decoded.Recorded, number: int) -> None:
    tree = run.combined[number]
    assert shown["winner"].split("\n")[-1] == tree.winner
    assert shown["vote"].startswith(f"{tree.winner} won")
    if "agree on token" in shown["vote"]:
        assert tree.masses[0] == pytest.approx(sum(tree.weights.values()))
    else:
        assert f" {tree.masses[0]:.2f}" in shown["vote"]
    assert told_reason(run.completed[number]) in shown["choice"]


def check_sums(page: Any, run: decoded.Recorded) -> None:
    entries = [entry for completed in run.completed for entry in completed.ahead]
    told = page.locator("#live-timeline .ss-ahead-sums")
    if not entries:
        assert told.is_hidden() or "there was none" in told.inner_text()
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
    match = re.search(rf"([\d.]+) (ms|s) {before}", words)
    assert match, words
    return float(match[1]) * (1000 if match[2] == "s" else 1)


def check_ahead(shown: dict[str, Any], run: decoded.Recorded, number: int) -> None:
    own = [entry for entry in run.completed[number].ahead if entry.reason != "ended"]
    guessed = any(entry.outcomes or not entry.hit for entry in own)
    begun = f", from drafts begun during round {number}" if guessed else ""
    head, _, told = shown["ahead"].partition(": ")
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


def check_times(page: Any, shown: dict[str, Any], run: decoded.Recorded, number: int) -> None:
    words = re.search(r"predicted ([\d.]+ m?s), measured ([\d.]+ m?s)", shown["predicted"])
    times = round_times(run)
    own = next(time for time in times if time[0] == number)
    assert words, shown["predicted"]
    for text, expected_ms in zip(words.groups(), (own[2], own[1]), strict=True):
        unit = 1 if text.endswith("ms") else 1000  # on a busy machine the first round takes seconds
        shown_ms = float(text.split()[0]) * unit
        assert shown_ms == pytest.approx(expected_ms, abs=0.06 * unit)
    measured = [(time[0], time[1]) for time in times]
    predicted = [(time[0], time[2]) for time in times]
    check_curve(page, "#live-timeline .ss-ahead-times", [measured, predicted])


def check_estimates(page: Any, shown: dict[str, Any], run: decoded.Recorded, number: int) -> None:
    completed = run.completed[number]
    assert told_reason(completed) in shown["choice"]
    assert len(shown["columns"]) == len(completed.estimates) > 1
    speeds = [1000 * estimate.tokens / estimate.ms for estimate in completed.estimates]
    for text, estimate, speed in zip(shown["columns"], completed.estimates, speeds, strict=True):
        length, tokens = text.split(" tokens in ")[0].split(": ")
        assert length == f"length {estimate.length}" and decoded.close(tokens, estimate.tokens)
        assert decoded.number_in(text.split(", ")[1]) == pytest.approx(speed, abs=0.06)
    assert shown["chosen"][0].startswith(f"length {completed.next_speculation_length}:")
    check_columns(page, "#live-lengths", speeds)


LENGTH_SAID = """() => [".ss-choice-why", ".ss-choice-offers button"].map((css) => {
  const all = [...document.querySelectorAll(`#live-lengths ${css}`)];
  return all.filter((one) => one.checkVisibility()).map((one) => one.textContent).join(", ");
})"""


def length_said(context: Context, board: str = "live") -> str:
    frame = sites.desk_of(context, board).frame()
    context.store.flush()
    events = context.store.events(frame.run_id)
    detail = detail_of(events, frame.selected_round)
    return str(choice_value(Frame(view=reduce_all(events), detail=detail))["why"])


def test_a_newcomer_takes_a_lesson_and_live_shows_the_events_of_its_runs(
    real: sites.Served, bundled: Engine, browser_page: sites.OpenPage
) -> None:
    url, context = real
    page = sites.wait_ready(browser_page(url))
    a_newcomer_goes_through_lesson_1(page)
    turn_to(page, "Live")
    decoded.prepare(page, "specinfer", tokens=24, pipeline=LABELS["ahead"])
    ahead = run_by(page, context, lambda: page.click("#live-run"))
    assert ahead.started.config["speculation"]["pipeline"] == "ahead"
    fixed = length_said(context)
    assert ", fixed: speculation_length is 8 in every round" in fixed
    becomes(page, LENGTH_SAID, [fixed, "Run minions, Run best"])
    drafts_ahead_are_those_of_the_events(page, ahead)

    offer = page.get_by_role("button", name="Run best", exact=True)
    best = run_by(page, context, lambda: offer.press("Enter"))
    assert best.started.config["speculation"]["length"] == "goodput"
    assert page.input_value("#preset input").startswith("best (")
    assert re.match(r"Round \d+, goodput: ssm-.* drafted \d+ deep", length_said(context))
    becomes(page, LENGTH_SAID, [length_said(context), ""])
    lengths_and_times_are_those_of_the_events(page, best)

    # After a run of the prompt, a chosen preset runs at once.
    minions = run_by(page, context, lambda: sites.choose(page, "preset", "minions"))
    assert minions.started.config["speculation"]["combine"] == "vote"
    assert ", trend: " in length_said(context)
    becomes(page, LENGTH_SAID, [length_said(context), ""])
    votes_are_those_of_the_events(page, minions)
    drafts_beside_other_requests_are_those_of_the_events(page, context, bundled.models.llm)


def drafts_ahead_are_those_of_the_events(page: Any, run: decoded.Recorded) -> None:
    check_sums(page, run)
    number = next((c.round for c in run.completed if c.ahead), len(run.completed) - 2)
    shown = round_of(page, number)
    if run.completed[number].ahead:
        check_ahead(shown, run, number)
    check_lanes(page, run, number)
    sites.shot(page, "ahead-1280-light")


def lengths_and_times_are_those_of_the_events(page: Any, run: decoded.Recorded) -> None:
    number = max(range(len(run.completed)), key=lambda r: len(run.completed[r].estimates))
    shown = round_of(page, number)
    check_estimates(page, shown, run, number)
    check_sums(page, run)
    check_lengths(page, run)
    check_times(page, shown, run, number)
    check_lanes(page, run, number)
    sites.shot(page, "best-1280-light")


def votes_are_those_of_the_events(page: Any, run: decoded.Recorded) -> None:
    check_weights_line(page, run)
    for number in (decoded.with_draft(run, dropping=True)[0], decoded.with_draft(run)[-1]):
        shown = round_of(page, number)
        check_grid(shown, run, number)
        check_dropped(shown, run, number)
        check_vote(shown, run, number)
    sites.shot(page, "minions-1280-light")


def drafts_beside_other_requests_are_those_of_the_events(
    page: Any, context: Context, llm: Any
) -> None:
    long = Request(
        "The old lighthouse keeper",
        SamplingParams(200, ignore_eos=True),
        SpeculationConfig.preset("minions"),
    )
    desk = sites.desk_of(context)
    earlier = run_shown(desk)

    def run_beside() -> None:
        page.click("#live-run")
        sites.until(page, lambda: run_shown(desk) != earlier)
        gate.closed = False

    with gated_passes(llm) as gate:
        gate.closed = True  # or the other request may end before the page begins its own
        other = context.hub.start(long, "")
        both = run_by(page, context, run_beside)
    other.cancel()
    ahead = [completed.round for completed in both.completed if completed.ahead]
    assert ahead, "some drafts were made while another request was verified"
    check_sums(page, both)
    check_ahead(round_of(page, ahead[-1]), both, ahead[-1])
    sites.shot(page, "across-1280-light")


def run_shown(desk: TabSession) -> str:
    assert desk.player is not None
    return desk.player.source.run_id


ROWS = """(count) => {
  const rows = [...document.querySelectorAll(".sp-measured tbody tr")];
  const cells = rows.map((row) => [...row.cells].map((cell) => cell.innerText));
  return rows.length === count && !cells.flat().some((text) => text.includes("…")) && cells;
}"""


def a_newcomer_goes_through_lesson_1(page: Any) -> None:
    turn_to(page, "Learn")
    page.locator(".sp-measured tfoot tr").nth(2).wait_for()
    page.click("#learn-run")
    one, eight = read(page, ROWS, 2)
    assert one[1] == "1" and eight[1] == "8"
    one_ms, eight_ms = (float(row[2].split()[0]) for row in (one, eight))
    page.locator("#learn-number input").fill(f"{eight_ms / one_ms:.1f}")
    page.click("#learn-check")
    page.locator("#learn-verdict").get_by_text("Right. 8 tokens took as long as ").wait_for()
    page.click("#learn-try")
    assert read(page, ROWS, 3)[2][1] == "16"
    page.locator("#learn-strip .ss-tok").first.wait_for()
    sites.shot(page, "learn-bundled")
