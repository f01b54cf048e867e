"""The page in a real Chromium: what a visitor does and sees.

Every test also fails if the page logs an error or asks another host for anything (conftest).
Screenshots go to artifacts/, which git ignores.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.page.looks import at_rest
from storage import RunQuery
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui.fakes import recorded, scripted
from tests.ui.sites import (
    LEAVING,
    OpenPage,
    OpenSite,
    drawn,
    overflows,
    ran,
    ready,
    replayed,
    said,
    shot,
    stands_still,
    strip_text,
    until,
)
from ui.context import Context
from ui.pages.form import EXAMPLES
from ui.view import reduce_all

pytestmark = pytest.mark.browser


def test_a_run_from_the_first_example_to_pictures_and_into_sessions(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    page = ready(browser_page(url))
    page.click("#example-dialogue")
    ran(page)
    view = reduce_all(synthetic_run(8))
    for picture in ("tree", "proposals", "inspector", "lengths", "timeline", "legend", "figures"):
        assert page.locator(f"#live-{picture}").inner_text().strip(), picture
    page.locator("#live-lengths .js-plotly-plot").first.wait_for()
    page.locator("#live-timeline .js-plotly-plot").first.wait_for()
    assert str(len(view.tokens)) in page.locator("#live-figures").inner_text()
    shot(page, "run-1280-light")
    replayed(page)
    assert EXAMPLES[0][1][:20] in page.locator("#sessions-runs").inner_text()
    assert context.store.runs(RunQuery()).total == 1


def test_replay_shows_the_same_pictures_round_by_round(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ran(ready(browser_page(short[0])))
    figures = page.locator("#live-figures").inner_text()
    live_text = strip_text(page)
    replayed(page)
    page.locator("#sessions-figures").get_by_text("tokens").first.wait_for()
    assert page.locator("#sessions-figures").inner_text() == figures
    until(page, lambda: strip_text(page, "sessions") == live_text)  # drawn once it is in sight
    names = page.locator("#sessions-runs td.sp-col-drafters span")
    assert "ssm-dialogue" in ", ".join(names.all_inner_texts())
    lines = "(names) => names.map((name) => name.getClientRects().length)"
    assert set(names.evaluate_all(lines)) == {1}, "no name is broken"
    scrub = page.locator("#sessions-scrub input[type=range]")
    scrub.focus()
    page.keyboard.press("Home")
    said(page, "you are at round 0 of 8", "sessions")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    said(page, "you are at round 3 of 8", "sessions")
    until(page, lambda: len(strip_text(page, "sessions")) < len(live_text))
    page.click("#sessions-rewind")
    said(page, "Engine finished, you are at round", "sessions")
    said(page, "Finished: ", "sessions")


def test_stop_keeps_what_was_written(long: tuple[str, Context], browser_page: OpenPage) -> None:
    url, context = long
    page = ready(browser_page(url, forgiven=LEAVING))
    page.click("#live-run")
    said(page, re.compile(r"Writing: [1-9]"))
    page.click("#live-stop")
    said(page, "Stopped: ")
    drawn(page)
    page.locator("#live-figures .ss-state").get_by_text("cancelled", exact=True).wait_for()
    assert page.locator("#live-strip .ss-tok").count()
    assert context.hub.worker.runs[0].cancelled  # type: ignore[attr-defined]
    page.click("#live-run")
    said(page, "Writing: ")
    page.locator(".sp-state-running").wait_for()
    # Going in earnest would abort the stream, which a browser logs as an error.
    page.evaluate("() => dispatchEvent(new Event('pagehide'))")
    page.click("#live-stop")
    said(page, "Stopped: ")
    page.reload()
    said(page, "Your run was stopped when this page was left or loaded anew; it is in Sessions.")
    page.reload()
    ready(page)
    page.wait_for_timeout(300)  # it would have been said by now
    assert not page.locator("#live-notice").get_by_text("left or loaded anew").count()


def test_two_visitors_at_once_see_each_their_own_run(
    site: OpenSite, browser_page: OpenPage
) -> None:
    url, context = site(recorded(60), max_live=1, speed=10.0)
    one, two = ready(browser_page(url)), ready(browser_page(url))
    one.fill("#prompt textarea", "The first visitor")
    two.fill("#prompt textarea", "The second visitor")
    one.click("#live-run")
    said(one, "Writing: ")
    two.click("#live-run")
    said(two, "In the queue: 1st in line.")
    context.hub.worker.speed = 0.1  # type: ignore[attr-defined]
    for page in (one, two):
        said(page, "Finished: ")
        drawn(page)
    assert "The first visitor" in strip_text(one) and "second" not in strip_text(one)
    assert "The second visitor" in strip_text(two)
    prompts = {row.prompt for row in context.store.runs(RunQuery()).rows}
    assert prompts == {"The first visitor", "The second visitor"}


def test_hostile_text_is_text(site: OpenSite, browser_page: OpenPage) -> None:
    nasty = " ".join(HOSTILE_TEXTS) + "y" * 10_000
    url, context = site(scripted(10, hostile=True))
    page = ready(browser_page(url))
    page.fill("#prompt textarea", nasty.replace("\r", "").replace("\x00", ""))
    ran(page)
    shot(page, "hostile-live")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft"):
        page.locator("body").press(key)
    replayed(page)
    shot(page, "hostile-sessions")
    assert page.evaluate("() => globalThis.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    assert not overflows(page)
    assert context.store.runs(RunQuery()).total == 1


@pytest.mark.parametrize(("dark", "widths"), [(False, (390, 1920)), (True, (390, 1280, 1920))])
def test_every_width_in_light_and_dark(
    short: tuple[str, Context], browser_page: OpenPage, dark: bool, widths: tuple[int, ...]
) -> None:
    page = ran(ready(browser_page(short[0], width=widths[0], dark=dark)))
    page.locator("#live-timeline .js-plotly-plot").first.wait_for()
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", background)[0])
    assert (red < 80) == dark
    fits_everywhere(page, widths, "run", dark)
    replayed(page)
    fits_everywhere(page, widths, "sessions", dark)


def fits_everywhere(page: Any, widths: tuple[int, ...], name: str, dark: bool) -> None:
    """The page at each width, as a window is made wider."""
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        shot(page, f"{name}-{width}-{'dark' if dark else 'light'}")  # drawn by then
        assert not overflows(page), width
    page.set_viewport_size({"width": widths[0], "height": 900})


def test_the_keyboard_runs_steps_and_selects(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.locator("#live-playback").get_by_text("step", exact=True).click()
    page.keyboard.press("r")
    said(page, "Engine finished, you are at round 0 of 8")
    for stage in ("drafted", "combined", "verified"):
        page.keyboard.press(".")
        said(page, f"you are at round 1 of 8, {stage}.")
    shot(page, "step-verified")
    page.keyboard.press(".")
    said(page, "you are at round 1 of 8.")
    page.keyboard.press(",")
    said(page, "you are at round 1 of 8, verified.")
    for _ in range(6):
        page.keyboard.press(".")
    said(page, "you are at round 3 of 8, drafted.")
    page.keyboard.press("ArrowLeft")  # the chosen speed has the focus, and no use for the arrows
    page.locator("#live-tree").get_by_text("Round 2").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator("#live-tree").get_by_text("Round 3").wait_for()
    speeds = page.locator("#live-playback")
    page.click("#live-rewind")
    said(page, "Engine finished, you are at round 0 of 8")
    assert speeds.get_by_label("step", exact=True).is_checked()
    speeds.get_by_label("step", exact=True).focus()
    for key in ("Shift+Tab", "Space"):
        page.keyboard.press(key)
    assert speeds.get_by_label("slow motion").is_checked(), "chosen by keys alone"
    together = "radios => radios.forEach((radio) => { radio.name = 'speed' })"
    speeds.locator("input[type=radio]").evaluate_all(together)
    page.keyboard.press("ArrowLeft")
    assert speeds.get_by_label("full speed").is_checked(), "in one group the arrows choose"
    page.keyboard.press("s")
    page.fill("#prompt textarea", "r s . ,")
    assert page.input_value("#prompt textarea") == "r s . ,", "keys are letters where one types"


COMPONENT = """(id) =>
  window.gradio_config.components.find(({ props }) => props.elem_id === id).id"""


def test_an_answer_that_was_overtaken_is_not_shown(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.locator("#live-playback").get_by_text("step", exact=True).click()
    page.click("#live-run")
    said(page, "Engine finished, you are at round 0 of 8")
    step = page.evaluate(COMPONENT, "live-step")
    asked: list[Any] = []
    answers: dict[int, Any] = {}

    def hold_the_first(route: Any) -> None:
        if (route.request.post_data_json or {}).get("trigger_id") != step:
            return route.continue_()
        place = len(asked)
        asked.append(route)
        answers[place] = route.fetch()
        if place:
            route.fulfill(response=answers[place])

    page.route("**/run/predict**", hold_the_first)
    page.locator("button#live-step:enabled").wait_for()  # a key of a button that waits is no key
    page.keyboard.press(".")
    until(page, lambda: bool(asked))
    until(page, lambda: 0 in answers)  # else the server may take the second step first
    page.keyboard.press(".")
    said(page, "you are at round 1 of 8, combined.")
    until(page, lambda: len(answers) == 2)
    with page.expect_response("**/run/predict**"):
        asked[0].fulfill(response=answers[0])
    page.wait_for_timeout(300)  # it would have been drawn by now
    said(page, "you are at round 1 of 8, combined.")
    at_rest(page)
    assert (
        page.locator("#live-tree .ss-stage[aria-current]").get_attribute("data-stage") == "combine"
    )
    page.unroute("**/run/predict**")


def test_slow_motion_says_where_it_is_and_play_goes_on(
    site: OpenSite, browser_page: OpenPage
) -> None:
    # Rounds enough for a busy machine: they pass at two a second whether it draws them or not.
    url, _ = site(recorded(40))
    page = ready(browser_page(url))
    page.locator("#live-playback").get_by_text("slow motion").click()
    page.click("#live-run")
    said(page, re.compile(r"Engine finished, you are at round \d+ of 40"))
    page.click("#live-step")
    stands_still(page, page.locator("#live-notice .sp-shell").inner_text)
    page.locator("#live-playback").get_by_text("full speed").click()
    said(page, "Finished: ")


def test_a_click_selects_the_round_everywhere(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ran(ready(browser_page(short[0])))
    page.locator("#live-strip [data-round='2'], #live-strip [data-r='2']").first.click()
    page.locator("#live-tree").get_by_text("Round 3").wait_for()
    page.locator("#live-proposals").get_by_text("Round 3").wait_for()
    page.click("#live-follow")
    page.locator("#live-tree").get_by_text("Round 8").wait_for()
