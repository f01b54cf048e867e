"""Two runs side by side in the Sessions tab, in a real Chromium."""

from __future__ import annotations

import re
from typing import Any

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from storage import RunQuery
from tests.ui import decoded, sites
from tests.ui.fakes import script_of
from tests.ui.past import about, open_run, record_run
from tests.ui.reading import becomes, in_looks
from tests.ui.sites import Axe, OpenPage, OpenSite
from ui.server.context import Context

pytestmark = pytest.mark.browser

TABS = ("live", "sessions")

# The tops of both halves, read together, since the page may still be scrolling.
TOPS = """() => ["one", "two"].map((half) =>
  document.querySelector(`#pair-${half}-strip`).getBoundingClientRect().top)"""
NUMBER = "() => document.querySelector('#pair-scrub input[type=number]').value"


def test_two_runs_stand_side_by_side_are_moved_together_and_one_is_thinned(
    site: OpenSite, browser_page: OpenPage, axe: Axe
) -> None:
    url, context = site(script_of(8))
    first = record_run(context)
    plain = SpeculationConfig(drafters=(), speculation_length=0)
    second = record_run(context, Request("Once", SamplingParams(max_new_tokens=33), plain))
    page = sites.wait_ready(browser_page(url, still=True))
    choosing_can_be_left(page, first, second)
    open_run(page, second)
    assert not page.locator("#pair-one-strip").count(), "not on the page until asked for"
    page.click("#sessions-compare")
    page.locator("#sessions-choose").get_by_text("Choose the second run").wait_for()
    page.locator("#sessions-runs .sp-selected[inert]").wait_for()
    page.locator(".sp-open").nth(1).click()
    page.locator("#pair-said .sp-line").first.wait_for()
    page.locator("#pair-tables").get_by_text("Settings that differ").wait_for()
    for half in ("one", "two"):
        for picture in ("figures", "strip", "tree", "proposals", "lengths", "timeline"):
            page.locator(f"#pair-{half}-{picture} .ss-panel").wait_for()
        page.locator(f"#pair-{half}-timeline .js-plotly-plot").first.wait_for()
    names = page.locator("#pair-tables tbody th").all_inner_texts()
    assert "Tokens / s" in names and "drafters" in names and "expansion" not in names
    counts, times = (page.locator("#pair-tables table").nth(at) for at in (0, 1))
    ratios = counts.locator(".sp-pair-ratio").all_inner_texts()
    assert ratios and all(re.fullmatch(r"[\d.]+x|–", ratio) for ratio in ratios)
    assert times.locator("caption").inner_text() == "Times, of one run each"
    assert "Tokens / s" in times.inner_text() and not times.locator(".sp-pair-ratio").count()
    for look in in_looks(page, (390, True), (1280, False)):
        sites.shot(page, f"sessions-pair-{look}")
        one, two = page.evaluate(TOPS)
        assert (one == two) == look.startswith("1280"), (
            "on a narrow page the halves are below each other"
        )
        assert not sites.overflows(page), look
        assert axe(page, "#pair-tables", "#pair-playback") == [], look
    assert axe(page, "#sessions-pair") == []
    both_are_moved(page)
    sites.shot(page, "sessions-pair-moved")
    page.click("#pair-close")
    page.locator("#sessions-pair").wait_for(state="hidden")
    sites.wait_notice(page, "Finished: ", "sessions")
    how_many_runs_stay_is_asked_twice(page, context, axe)


def choosing_can_be_left(page: Any, other: str, newest: str) -> None:
    open_run(page, newest)
    sites.run_tools(page).click("#sessions-compare")
    page.get_by_role("button", name="Cancel comparing").click()
    page.get_by_role("button", name="Compare with…").wait_for()
    page.locator("#sessions-runs .sp-selected:not([inert])").wait_for()
    page.locator(".sp-open").nth(1).click()
    about(page, other)
    assert page.locator("#sessions-pair").is_hidden()


def both_are_moved(page: Any) -> None:
    box = page.locator("#pair-scrub input[type=number]")
    last = box.input_value()
    decoded.click_round(page, 2, "pair-one")
    for half in ("one", "two"):
        strip = page.locator(f"#pair-{half}-strip")
        strip.locator(".ss-round[data-r='2'][aria-pressed=true]").first.wait_for()
    becomes(page, NUMBER, "3")
    assert last != "3"
    page.locator("#pair-two-tree").get_by_text("Round 3", exact=True).wait_for()
    page.locator("#pair-two-tree .ss-stage[data-stage=combine]").click()
    for half in ("one", "two"):
        tree = page.locator(f"#pair-{half}-tree")
        tree.locator(".ss-stage[data-stage=combine][aria-current=step]").wait_for()
        tree.get_by_text("Round 3", exact=True).wait_for()
    becomes(page, NUMBER, "3")
    page.click("#pair-step")
    page.locator("#pair-one-tree .ss-stage[data-stage=verify][aria-current=step]").wait_for()
    page.click("#pair-rewind")
    becomes(page, NUMBER, "0")
    page.click("#pair-round-next")
    becomes(page, NUMBER, "1")
    box.fill("3")
    box.press("Enter")
    for half in ("one", "two"):
        page.locator(f"#pair-{half}-tree").get_by_text("Round 3", exact=True).wait_for()
    rate = page.locator("#pair-rate input[type=number]")
    rate.fill("20")
    rate.press("Enter")
    assert page.locator("#pair-playback .sp-buttons button:visible").count() == 7
    page.click("#pair-play")
    becomes(page, NUMBER, last)
    page.locator("#pair-play").wait_for()  # Play has replaced Pause again
    box.fill("2")
    box.press("Enter")
    page.locator("#pair-one-tree").get_by_text("Round 2", exact=True).wait_for()


def how_many_runs_stay_is_asked_twice(page: Any, context: Context, axe: Axe) -> None:
    page.get_by_text("What the run log keeps").click()
    page.locator("#sessions-keep-set").wait_for()
    sites.text_box(page, "sessions-keep").fill("1")
    page.click("#sessions-keep-set")
    page.locator("#sessions-kept").get_by_text("Sure?").wait_for()
    sites.shot(page, "sessions-retention")
    assert axe(page, "#sessions-retention") == []
    page.click("#sessions-keep-sure")
    page.locator("#sessions-kept").get_by_text("The last 1 run is kept in full").wait_for()
    assert context.store.retention() == 1
    sites.until(page, lambda: sum(run.thinned for run in context.store.runs(RunQuery()).rows) == 1)
    page.click("#sessions-refresh")
    page.locator("#sessions-runs .sp-thinned").wait_for()
    page.locator(".sp-open").nth(1).click()
    about(page, "Of this run only text, figures and accepted tokens are kept")
    sites.shot(page, "sessions-thinned")
    context.store.set_retention(None)
