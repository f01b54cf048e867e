"""Pipeline, tree and legend in a real Chromium: one unit, one meaning, no label on another."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from bench.page.looks import at_rest
from tests.ui.components.conftest import turn
from tests.ui.components.gallery import scenes

pytestmark = pytest.mark.browser

Show = Callable[..., Any]


def told(page: Any, part: str) -> str:
    return str(page.locator(f"#picture-timeline .ss-ahead-{part}").inner_text())


TOUCHING = """() => {
  const svg = document.querySelector(".ss-ahead-times svg");
  const texts = [...svg.querySelectorAll(".ss-mini-end, .ss-mini-title")];
  const boxes = texts.map((node) => [node.textContent, node.getBBox()]);
  const apart = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x
    || a.y + a.height <= b.y + 1 || b.y + b.height <= a.y + 1;
  return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => !apart(a, b)).map(([other]) => `${one} on ${other}`));
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_what_is_cut_is_marked_and_told_and_its_numbers_do_not_touch(
    show: Show, width: int
) -> None:
    rounds = scenes()["peaks"]()["timeline"]["rounds"]
    page = show("peaks")
    page.set_viewport_size({"width": width, "height": 900})
    at_rest(page)
    chart = page.locator("#picture-timeline .ss-ahead-times")
    page.wait_for_function(
        "document.querySelector('.ss-ahead-times svg').clientWidth"
        " === document.querySelector('.ss-ahead-times').clientWidth"
    )
    assert page.evaluate(TOUCHING) == []
    cut = {int(n): one["ms"] for n, one in rounds.items() if one["ms"] > 100 - 1}
    marks = chart.locator(".ss-mini-peak title").all_text_contents()
    assert sorted(marks) == sorted(f"round {n + 1}, measured: {ms:.0f}" for n, ms in cut.items())
    printed = chart.locator(".ss-mini-end").all_text_contents()
    assert 2 <= len(printed) < len(cut) and f"{max(cut.values()):.0f}" in printed


PLOT = "document.querySelector('.ss-timeline .ss-plot')"


def test_there_is_a_mark_for_each_hit_however_many_bars_it_took(show: Show) -> None:
    """SYNTHETIC drafts made ahead, each of them in two bars."""
    value = scenes()["split"]()["timeline"]
    page = show("split")
    page.wait_for_function(f"{PLOT}?.data")
    page.get_by_role("button", name="Show every round").click()
    bars = sum(len(own) for own in value["bars"].values())
    page.wait_for_function(f"{PLOT}.data[0].base.length === {bars}")
    marks = page.evaluate(f"{PLOT}.data[0].text")
    page.get_by_role("button", name="Show 5 rounds around").click()
    ahead = value["ahead"]
    assert marks.count("✓") == ahead["hits"] > 0
    assert marks.count("✗") == ahead["misses"] - ahead["unused"] > 0
    sums = told(page, "sums")
    misses = ahead["misses"] - ahead["unused"]
    assert f"{ahead['hits']} hits (✓), {misses} misses (✗) and {ahead['unused']} not used" in sums


def test_hatching_means_one_thing_and_fates_differ_by_shape(show: Show) -> None:
    page = show("ahead")
    page.wait_for_function(f"{PLOT}?.data")
    page.get_by_role("button", name="Show every round").click()
    seen = page.evaluate(
        f"{PLOT}.data[0].customdata.map((told, i) => "
        f"[told[1], told[6], {PLOT}.data[0].marker.pattern.shape[i]])"
    )
    page.get_by_role("button", name="Show 5 rounds around").click()
    shapes: dict[str, set[str]] = {}
    for stage, fate, shape in seen:
        shapes.setdefault(fate if stage == "ahead" else stage, set()).add(shape)
    assert all(len(own) == 1 for own in shapes.values()), shapes
    assert [name for name, own in shapes.items() if own & {"/", "\\"}] == ["catch up"]
    fates = [own for name, own in shapes.items() if name.startswith("<br>")]
    assert len(set.union(*fates)) == len(fates) == 3
    swatches = page.locator("#picture-timeline .ss-ahead-swatch").evaluate_all(
        "nodes => nodes.map((node) => getComputedStyle(node).backgroundImage)"
    )
    assert len(set(swatches)) == 3


def test_a_round_says_when_its_drafts_were_begun_and_what_the_brackets_mean(show: Show) -> None:
    page = show("ahead")
    alike = "Round 5, from drafts begun during round 4 (3 guesses, together 62 %): ssm-code "
    assert told(page, "round").startswith(alike)
    assert told(page, "round").count("together") == 1 < told(page, "round").count(";")
    assert told(page, "what").endswith(
        "In brackets: how many continuations were prepared for, and how likely the SSM that "
        "looked ahead held it that the LLM writes one of them."
    )
    key = page.locator("#picture-timeline .ss-ahead-key").inner_text()
    assert key.startswith("Outlined bars draft for the next round")
    between = page.locator("#picture-timeline .ss-share-word", has_text="between").first
    assert "nobody worked for this request" in between.get_attribute("title")
    turn(page, "unlike")
    assert told(page, "round") == (
        "Round 5, from drafts begun during round 4: ssm-code hit, 1.25 ms saved (4 guesses, "
        "together 28 %); ssm-dialogue hit, 1.25 ms saved (3 guesses, together 25 %); "
        "ssm-stories miss, nothing saved, 0.50 ms wasted (no guess was made in time)."
    )
    turn(page, "over")
    assert told(page, "round") == (
        "Round 5 (4 guesses, together 28 %): ssm-code drafted for a next round, but the text "
        "ended, 1.50 ms wasted."
    )
    turn(page, "across")
    assert told(page, "round").startswith("Round 5: ")


def test_auto_s_last_trial_is_the_verdict_and_sums_are_no_verdict(show: Show) -> None:
    page = show("tried")
    assert told(page, "verdict") == (
        "auto's last trial, after round 13: rounds are faster without drafting ahead, "
        "10.6 ms against 21.6 ms."
    )
    turn(page, "ahead")
    ahead = scenes()["ahead"]()["timeline"]["ahead"]
    assert ahead["wasted"] > ahead["saved"]
    assert told(page, "verdict") == (
        "More drafting time was wasted than saved "
        f"({ahead['wasted']:.1f} ms against {ahead['saved']:.1f} ms). "
        "Which way is faster it does not tell: compare with pipeline off, or let auto try both."
    )
    turn(page, "across")
    assert page.locator("#picture-timeline .ss-ahead-verdict").is_hidden()


def test_work_done_at_once_is_not_called_the_run_s_time(show: Show) -> None:
    def facts() -> tuple[str, float, float]:
        value = scenes()[scene]()["timeline"]
        said = page.locator("#picture-timeline .ss-words").inner_text()
        return said, value["total"], sum(value["share"].values())

    page, scene = show("verify"), "verify"
    said, total, stages = facts()
    assert stages == pytest.approx(total, rel=1e-3) and said.startswith(f"{total:.1f} ms measured")
    assert "most of it" in said and "at once" not in said
    scene = "ahead"
    turn(page, scene)
    said, total, stages = facts()
    assert stages > 1.05 * total
    assert said.startswith(
        f"{total:.1f} ms; shares are of the stages' {stages:.1f} ms, since drafters and LLM "
        "worked at once; most of it "
    )


def test_a_trial_won_with_nothing_used_is_told_as_chance(show: Show) -> None:
    page = show("chance")
    assert told(page, "sums").startswith("Drafted ahead: 0 hits (✓) and 17 misses (✗)")
    won = (
        "auto's last trial, after round 14: its rounds with drafting ahead were faster, "
        "104.8 ms against 121.8 ms, "
    )
    assert told(page, "verdict") == won + "by chance: nothing drafted ahead had been used."
    turn(page, "chance-elsewhere")
    assert told(page, "verdict") == won + "though nothing drafted ahead had been used in this run."
    turn(page, "alike")
    assert told(page, "verdict") == (
        "auto's last trial, after round 14: neither way is clearly faster, "
        "10.3 ms a round with drafting ahead, 10.2 ms without."
    )


VIEWPORT = """() => { const v = document.querySelector("#picture-tree .ss-viewport");
  const box = (node) => node.getBoundingClientRect();
  const own = v.querySelector(".ss-n-bonus");
  const letters = [...v.querySelectorAll(".ss-node-text")];
  const texts = letters.map((node) => Math.round(box(node).height));
  return { inside: box(own).right <= box(v).right && box(own).left >= box(v).left,
    left: v.scrollLeft, wide: v.scrollWidth > v.clientWidth + 1, smallest: Math.min(...texts),
    width: v.clientWidth }; }"""


def test_a_finished_round_shows_the_llms_own_token(show: Show) -> None:
    page = show("empty", fresh=True)
    page.add_style_tag(content="#picture-tree { max-width: 880px }")
    turn(page, "deep")
    seen = page.evaluate(VIEWPORT)
    assert 780 < seen["width"] < 880, "as wide as in the page at 1280"
    assert seen["inside"] and not seen["wide"] and seen["smallest"] >= 10
    turn(page, "deeper")
    seen = page.evaluate(VIEWPORT)
    assert seen["inside"] and seen["wide"] and seen["smallest"] >= 10
    page.evaluate("document.querySelector('.ss-viewport').scrollTo(90, 0)")
    turn(page, "deeper-verify")
    assert page.evaluate(VIEWPORT)["left"] == 90, "the visitor's own"
    turn(page, "deep")
    page.get_by_role("button", name="Zoom in").click()
    zoomed = page.locator("#picture-tree .ss-viewport").get_attribute("data-zoom")
    page.evaluate("document.querySelector('.ss-viewport').scrollTo(0, 0)")
    turn(page, "deeper")
    assert page.evaluate(VIEWPORT)["left"] == 0
    kept = page.locator("#picture-tree .ss-viewport").get_attribute("data-zoom")
    assert kept == zoomed


MORE = """() => [...document.querySelectorAll("#picture-tree .ss-more")].map((node) =>
  node.hidden ? "" : node.textContent)"""


def test_a_tree_is_drawn_whole_while_it_is_legible_or_says_how_much_is_cut(show: Show) -> None:
    page = show("empty", fresh=True)
    page.add_style_tag(content="#picture-tree { max-width: 750px }")
    turn(page, "deep")
    seen = page.evaluate(VIEWPORT)
    assert seen["inside"] and not seen["wide"] and seen["width"] < 720
    token = page.evaluate("""() => { const v = document.querySelector("#picture-tree .ss-viewport");
      return v.dataset.zoom * v.querySelector(".ss-node-text").getAttribute("font-size"); }""")
    assert token >= 10 and page.evaluate(MORE) == ["", ""]
    turn(page, "deeper")
    before, after = page.evaluate(MORE)
    hidden = int(before.removeprefix("← ").removesuffix(" more"))
    assert 1 < hidden < 16 and after == ""
    page.evaluate("document.querySelector('.ss-viewport').scrollTo(0, 0)")
    page.wait_for_function(f"({MORE})()[1] === '{hidden} more →' && ({MORE})()[0] === ''")
    page.get_by_role("button", name="Fit the whole tree").click()
    assert page.evaluate(MORE) == ["", ""], "nothing is cut"


def test_a_panel_that_grows_narrow_keeps_the_llms_own_token_in_sight(show: Show) -> None:
    page = show("empty", fresh=True)
    turn(page, "deep")
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(f"({VIEWPORT})().width < 380")
    page.wait_for_function(f"({VIEWPORT})().inside")
    assert page.evaluate(VIEWPORT)["smallest"] >= 10


def test_the_legends_buttons_lie_on_nothing(show: Show) -> None:
    page = show("verify")
    page.set_viewport_size({"width": 390, "height": 900})
    at_rest(page)
    lowest = page.locator("#picture-legend .ss-tool").evaluate_all(
        "nodes => Math.max(...nodes.map((node) => node.getBoundingClientRect().bottom))"
    )
    first = page.locator("#picture-legend .ss-legend-item").first.bounding_box()
    assert first["y"] >= lowest


def test_drafting_across_requests_is_told_without_guesses(show: Show) -> None:
    value = scenes()["across"]()["timeline"]
    panel = show("across").locator("#picture-timeline")
    ahead = value["ahead"]
    assert panel.locator(".ss-ahead-sums").text_content() == (
        f"{ahead['hits']} drafts were ready before their round (✓); {ahead['beside']} of them ran "
        f"beside a pass over another request, {ahead['saved']:.1f} ms hidden."
    )
    assert (
        not panel.locator(".ss-ahead-what, .ss-ahead-key, .ss-mini-up").filter(visible=True).count()
    )


def test_what_drafting_ahead_came_to_is_told_as_a_verdict(show: Show) -> None:
    page = show("ahead")
    count = len(scenes()["ahead"]()["timeline"]["rounds"])
    usual = rf"in half of the {count} rounds the prediction was within \d+ % of the measured time"
    assert re.search(usual, told(page, "predicted"))
    turn(page, "tried")
    assert told(page, "verdict").startswith("auto's last trial, after round 13: rounds are faster")
    assert told(page, "trials").endswith(
        "Found after round 4, 7.00 ms a round with it and 10.2 ms without: on with it; "
        "round 13, 21.6 ms a round with it and 10.6 ms without: on without it."
    )


def test_an_early_draft_that_no_pass_hid_and_one_that_cannot_be_are_told_so(show: Show) -> None:
    page = show("early")
    assert told(page, "round") == (
        "Round 5: ssm-code drafted early, though not during a pass: nothing hidden; "
        "ssm-dialogue 1.25 ms hidden."
    )
    assert told(page, "sums") == (
        "2 drafts were ready before their round (✓); 1 of them ran beside a pass over another "
        "request, 1.25 ms hidden."
    )
    turn(page, "never")
    assert told(page, "sums").startswith("Nothing is drafted ahead: the SSMs choose every token")
    assert page.locator("#picture-timeline .ss-ahead-key").is_hidden()
