"""The page's address and copied links, in a real Chromium."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.synthetic import synthetic_run
from tests.ui import sites
from tests.ui.browser.looks import at_rest, turn_to
from tests.ui.fakes import endless, recorded, request, with_request
from tests.ui.live_screen import ROUNDS, race
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, Stage
from tests.ui.test_browser_learn import copy_link, on_lesson, step_to
from tests.ui.test_browser_screen import at

pytestmark = pytest.mark.browser

QUERY = "() => Object.fromEntries(new URLSearchParams(location.search))"
THEME = {"__theme": "light"}
SHOWN = """(where) => {
  const all = (css, pick) => [...document.querySelectorAll(`#${where}-${css}`)].map(pick);
  return [
    all("scrubber .ss-at", (one) => one.textContent),
    all("tree .ss-stage[aria-current]", (one) => one.dataset.stage),
    all("tree .ss-node[aria-pressed=true]", (one) => one.dataset.key),
    all("strip .ss-text", (one) => one.innerText),
    // In a closed pane it may not be drawn yet.
    all("inspector .ss-sentence", (one) => one.offsetParent && one.textContent).filter(Boolean),
    all("dock", (one) => one.dataset.at),
  ];
}"""


@pytest.fixture
def whole(stages: Any) -> Stage:
    stage: Stage = stages(())
    stage.clear()
    stage.play(recorded(ROUNDS))
    return stage


@pytest.fixture
def opening(whole: Stage, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    first, *others = synthetic_run(ROUNDS)
    events = (with_request(first, request()), *others)
    source = SimpleNamespace(is_done=True, count=len(events), events=lambda *_: events)
    monkeypatch.setattr(whole.context.opening, "_source", source)
    return source


def query_is(page: Any, **fields: str) -> None:
    becomes(page, QUERY, THEME | fields)


LEFT_RUNNING = """Your run was stopped when this page was left or loaded anew; it is in Sessions.
 The form has this run's request: Run repeats it.""".replace("\n", "")
LEFT_QUEUED = "Your run was taken out of the queue when this page was left or loaded anew."


def test_a_page_loaded_anew_says_what_became_of_its_run_and_opens_a_link_to_the_opening_run(
    whole: Stage, opening: SimpleNamespace, browser_page: OpenPage
) -> None:
    page = sites.wait_ready(browser_page(whole.url, forgiven=sites.LEAVING))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    a_page_loaded_anew_says_what_became_of_its_run(page, whole)
    whole.clear()
    whole.play(recorded(ROUNDS))
    page.goto(f"{whole.url}?__theme=light")
    a_link_to_the_opening_run_shows_it_paused_at_its_place(page, whole, opening)


def a_page_loaded_anew_says_what_became_of_its_run(page: Any, whole: Stage) -> None:
    whole.play(endless, max_live=1, slowdown=10.0)
    another = whole.context.hub.start(request(), "another")
    page.click("#live-run")
    sites.wait_notice(page, "In the queue: ")
    page.locator(".sp-state-queued").wait_for()
    page.reload()
    sites.wait_notice(page, LEFT_QUEUED)
    another.cancel()
    page.locator("#prompt textarea").fill("w1 w2 w3")
    page.click("#live-run")
    sites.wait_notice(page, "Writing: ")
    run = sites.desk_of(whole.context).frame().run_id
    query_is(page, tab="live", run=run)
    page.reload()
    sites.wait_notice(page, LEFT_RUNNING)
    sites.wait_notice(page, "Stopped: ")
    assert page.locator("#prompt textarea").input_value() == "w1 w2 w3"
    assert page.evaluate("() => sessionStorage.getItem('specscope-left')") is None, "said once"
    sites.shot(page, "link-left")


def a_link_to_the_opening_run_shows_it_paused_at_its_place(
    page: Any, whole: Stage, opening: SimpleNamespace
) -> None:
    sites.wait_notice(page, "This is a recorded run")
    page.locator("#live-scrubber [data-r='3']").wait_for()
    copied = copy_link(page, "#live-copy")
    assert copied["run"] == "opening" and int(copied["round"]) >= 4
    assert page.evaluate(QUERY) == THEME, "it plays by itself"
    page.locator("#live-scrubber [data-r='2']").click()
    at(page, 3, "commit")
    page.locator("#live-tree .ss-node[data-key='1']").press("Enter")
    page.locator("#live-tree .ss-node[data-key='1'][aria-pressed=true]").wait_for()
    page.locator("#live-tree [data-stage=verify]").click()
    at(page, 3, "verify")
    count = page.locator("#live-scrubber .ss-column").count()
    place = {"tab": "live", "run": "opening", "round": "3", "stage": "verify", "node": "1"}
    place["shown"] = str(count)
    query_is(page, **place)
    seen = page.evaluate(SHOWN, "live")
    assert seen[1:3] == [["verify"], ["1"]] and len(seen[4]) == 1
    assert copy_link(page, "#live-copy") == place
    sites.shot(page, "link-opening")
    page.reload()
    becomes(page, SHOWN, seen, arg="live")
    query_is(page, **place)
    sites.shot(page, "link-opening-reloaded")
    sites.ran(page)
    run = sites.desk_of(whole.context).frame().run_id
    page.wait_for_function("(run) => location.search.includes(run)", arg=run)
    page.go_back()
    becomes(page, SHOWN, seen, arg="live")
    query_is(page, **place)
    opening.is_done = False
    page.reload()
    sites.wait_notice(page, "The recorded run of this link is still being made.")
    query_is(page, **place)
    opening.is_done = True
    becomes(page, SHOWN, seen, arg="live")
    query_is(page, **place)


CHOSEN_CLOCK = "() => document.querySelector('#live-figures .ss-clock').dataset.chosen ?? null"
DOCK = "(where) => document.querySelector(`#${where}-dock`).dataset.at"


def test_links_open_the_docks_pane_the_races_clock_and_a_lesson(
    whole: Stage, browser_page: OpenPage
) -> None:
    page = race(sites.wait_ready(browser_page(whole.url, forgiven=sites.LEAVING)))
    a_link_opens_the_docks_pane_and_the_races_clock(page, whole)
    a_link_opens_a_lesson_with_its_run_and_back_goes_through_lessons(page, whole)


def a_link_opens_the_docks_pane_and_the_races_clock(page: Any, whole: Stage) -> None:
    run = sites.desk_of(whole.context).frame().run_id
    page.locator("#live-scrubber [data-r='4']").click()
    place = {"tab": "live", "run": run, "round": "5"}
    query_is(page, **place)
    sites.dock(page, "when")
    query_is(page, **place, dock="when")
    page.locator("#live-figures .ss-clock").get_by_text("passes").click()
    query_is(page, **place, dock="when", clock="passes")
    page.reload()
    at(page, 5, "commit")
    becomes(page, DOCK, "when", arg="live")
    becomes(page, CHOSEN_CLOCK, "passes")
    query_is(page, **place, dock="when", clock="passes")
    sites.dock(page, "when")
    query_is(page, **place, dock="closed", clock="passes")
    sites.open_latest_run(page)
    page.locator("#sessions-scrubber [data-r='4']").click()
    sites.dock(page, "length", "sessions")
    query_is(page, run=run, round="5", dock="length")
    page.go_back()  # first to the list of Sessions, then to Live
    page.go_back()
    query_is(page, **place, dock="closed", clock="passes")
    becomes(page, DOCK, "", arg="live")
    page.goto(f"{whole.url}?__theme=light&run={run}&round=99&stage=verify&dock=length")
    becomes(page, DOCK, "length", arg="sessions")
    words = "round is '99': it must be a number from 1 to 12 (shown instead: round "
    page.locator("#link-said").get_by_text(words).wait_for()
    stage = "() => document.querySelector('#sessions-tree [aria-current]').dataset.stage"
    becomes(page, stage, "verify")
    sites.shot(page, "link-wrong")


LESSON_OF = "() => new URLSearchParams(location.search).get('lesson')"


def a_link_opens_a_lesson_with_its_run_and_back_goes_through_lessons(
    page: Any, whole: Stage
) -> None:
    """The link's stage is wrong, so the usual stage is shown."""
    turn_to(page, "Learn")
    step_to(page, 3)
    page.click("#learn-run")
    sites.wait_notice(page, "Finished: ", "learn")
    sites.wait_drawn(page, "learn")
    page.locator("#learn-scrubber [data-r='4']").click()
    run = sites.desk_of(whole.context, "learn").frame().run_id
    place = {"lesson": "3", "run": run, "round": "5"}
    query_is(page, **place)
    page.locator("#learn-scrubber .ss-at").get_by_text("Round 5 of ").wait_for()
    at_rest(page)
    seen = page.evaluate(SHOWN, "learn")
    step_to(page, 4)
    query_is(page, lesson="4")
    page.go_back()
    on_lesson(page, 3)
    becomes(page, LESSON_OF, "3")
    page.goto(f"{whole.url}?{urlencode(THEME | place | {'stage': 'judge'})}")
    on_lesson(page, 3)
    sites.wait_notice(page, "stage is 'judge': it must be one of draft", "learn")
    becomes(page, SHOWN, seen, arg="learn")
    query_is(page, **place)
    sites.shot(page, "link-lesson")
