"""Routed and fused drafts of the bundled models, and the regret, in a real Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui import decoded, routed, sites
from tests.ui.browser.looks import at_rest, turn_to
from tests.ui.reading import becomes, in_looks, read
from ui.server.context import Context

pytestmark = pytest.mark.browser

TABS = ("sessions", "learn")

REGRET = """() => [...document.querySelectorAll("#live-routing .ss-regret-rows tbody tr")]
  .map((row) => row.innerText.split("\\t"))"""


def test_strip_and_provenance_are_the_recorded_ones_in_learn_live_and_sessions(
    real: sites.Served, browser_page: sites.OpenPage
) -> None:
    url, context = real
    page = sites.wait_ready(browser_page(url))
    the_lesson_shows_who_drafts(page, context)
    turn_to(page, "Live")
    assert not page.locator("#live-routing .ss-panel").is_visible(), "no run yet, nothing chosen"
    decoded.prepare(page, "specinfer", tokens=24, routing="credit", draft="fused_credit")
    page.click("#live-run")
    decoded.wait_finished(page)
    run = decoded.latest_run(context)
    speculation = run.started.config["speculation"]
    assert (speculation["routing"], speculation["draft"]) == ("credit", "fused_credit")
    routed.check_strip(page, run, "live")
    number = next(n for n in decoded.with_draft(run) if len(set(routed.trunk_of(run, n))) == 2)
    routed.check_round(page, run, number, "live")
    the_inspector_says_whose(page, run, number)
    regret_is_counted(page, context, run)
    for look in in_looks(page, (390, False), (1280, False)):
        sites.shot(page, f"routed-{look}")
        assert not sites.overflows(page), look
    sites.open_latest_run(page)
    decoded.wait_all_drawn(page)
    routed.check_strip(page, run, "sessions")
    decoded.click_round(page, number, "sessions")
    routed.check_round(page, run, number, "sessions")


def the_inspector_says_whose(page: Any, run: decoded.Recorded, number: int) -> None:
    names, tree = run.started.drafters, run.combined[number]
    page.locator("#live-tree .ss-node[data-key='0']").click()
    whose = tree.origins[0]
    sentence = page.locator("#live-inspector .ss-sentence")
    sentence.get_by_text(f"{'ABCDE'[names.index(whose)]} ({whose})").wait_for()


def regret_is_counted(page: Any, context: Context, run: decoded.Recorded) -> None:
    # Press the button by a key, since the dock shows only a part of this pane.
    page.locator("#live-routing").get_by_role("button", name="Count afterwards").press("Enter")
    page.locator("#live-routing .ss-regret-said").wait_for()
    rows = read(page, REGRET)
    desk = sites.desk_of(context)
    assert desk.regret is not None
    assert len(rows) == 1 + 1 + 5 + 1 and rows[0][1] == str(desk.regret.routed.passes)
    assert rows[-1][1] == str(desk.regret.oracle.passes)
    assert desk.regret.routed.tokens == run.stats.num_new_tokens


CHART_SEEN = """() => {
  const chart = document.querySelector("#learn-routing .ss-mini").getBoundingClientRect();
  const pane = document.querySelector("#learn-dock .sp-pane-who").getBoundingClientRect();
  return chart.height > 80 && chart.top >= pane.top - 1 && chart.bottom <= pane.bottom + 1;
}"""


def the_lesson_shows_who_drafts(page: Any, context: Context) -> None:
    turn_to(page, "Learn")
    page.locator(".sp-step").nth(8).click()
    page.locator(".sp-lesson-title").get_by_text("Who drafts what").wait_for()
    page.locator("#learn-strip .ss-panel").wait_for()
    page.click("#learn-run")
    sites.wait_notice(page, "Finished: ", "learn", sites.RUN_MS)
    decoded.wait_all_drawn(page)
    run = decoded.latest_run(context)
    routed.check_strip(page, run, "learn")
    for look in in_looks(page, (1280, False), (1920, False)):
        becomes(page, CHART_SEEN, True)
        sites.shot(page, f"lesson-routing-{look}")
    at_rest(page)
    scores = {one.drafter: one.score for one in run.completed[-1].routing}
    page.get_by_label(max(scores, key=lambda name: scores[name]), exact=True).check()
    page.click("#learn-check")
    page.locator("#learn-verdict").get_by_text("Right. ").wait_for()
    names = page.locator("#learn-routing .ss-routing-name").all_text_contents()
    assert names == [*run.started.drafters]
