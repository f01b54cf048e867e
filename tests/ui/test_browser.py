"""A visitor's runs in Live and Sessions, in a real Chromium."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from storage import RunQuery, RunStore
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui import sites
from tests.ui.browser.looks import at_rest, frames, turn_to
from tests.ui.fakes import recorded, script_of
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, OpenSite, Served
from ui.form.form import EXAMPLES
from ui.run.view import reduce_all
from ui.server.context import Context
from ui.words.messages import run_lines

pytestmark = pytest.mark.browser

TABS = ("live", "sessions")

FILLED = """() => ["tree", "inspector", "figures", "strip"]
  .every((name) => document.querySelector(`#live-${name}`).innerText.trim())"""
BOARD = """(where) => ["figures", "strip"].map((name) =>
  document.querySelector(`#${where}-${name} .ss-body`).innerText
    .replace(/\\n(clock\\n)?time\\npasses/, ""))"""
TOPS = """(ids) => Object.fromEntries(ids.map((id) =>
  [id, Math.round(document.getElementById(id).getBoundingClientRect().top + scrollY)]))"""
PICTURES = ("figures", "strip", "tree", "scrubber", "dock", "inspector")
PLACES = [*(f"live-{name}" for name in PICTURES), "preset", "prompt"]


def places(page: Any) -> list[dict[str, int]]:
    results = []
    for width, height in ((1920, 1080), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        at_rest(page)
        results.append(page.evaluate(TOPS, PLACES))
    page.set_viewport_size({"width": 1280, "height": 900})
    return results


def test_a_run_is_shown_replayed_deleted_measured_and_proved_and_nothing_moves(
    short: Served, browser_page: OpenPage
) -> None:
    url, context = short
    page = sites.wait_ready(browser_page(url))
    page.evaluate("() => document.fonts.ready.then(() => true)")
    tops = places(page)
    page.locator("#live-figures .ss-tools").hover()  # shows the buttons, which fold into one
    page.click("#live-race")
    sites.wait_notice(page, "there is no run yet")
    assert places(page) == tops, "an error moves nothing"
    page.click("#example-dialogue")
    sites.wait_notice(page, "Finished: ")
    sites.wait_drawn(page)
    page.wait_for_function(FILLED)
    count = str(len(reduce_all(synthetic_run(8)).tokens))
    page.locator("#live-figures").get_by_text(count).first.wait_for()
    sites.shot(page, "run-1280-light")
    board = page.evaluate(BOARD, "live")
    page.locator("#live-strip [data-round='2'], #live-strip [data-r='2']").first.click()
    page.locator("#live-tree").get_by_text("Round 3").wait_for()
    sites.dock(page, "who").locator("#live-proposals").get_by_text("Round 3").first.wait_for()
    sites.dock(page, "why")
    page.click("#live-follow")
    page.locator("#live-tree").get_by_text("Round 8").wait_for()

    replay_and_delete(page, context, board)
    turn_to(page, "Live")
    sites.ran_again(page, context)
    page.locator("#live-figures .ss-tools").hover()  # shows the buttons, which fold into one
    page.click("#live-race")
    page.locator("#live-figures .ss-race-same").get_by_text("same text").wait_for()
    sites.wait_notice(page, "Identical: plain decoding with the same seed writes the same")
    page.locator("#live-figures .ss-race-speed").get_by_text("3 repeats").wait_for()
    assert places(page) == tops, "figures, a proof and a baseline move nothing"
    sites.number_box(sites.open_drawer(page), "sampling-top_p").fill("7")
    page.locator("#live-validity").get_by_text("top_p is 7").wait_for()


def replay_and_delete(page: Any, context: Context, board: list[str]) -> None:
    sites.open_latest_run(page)
    assert EXAMPLES[0][1][:20] in page.locator("#sessions-runs").inner_text()
    assert context.store.runs(RunQuery()).total == 1
    becomes(page, BOARD, board, "sessions")
    facts = page.locator("#sessions-runs .sp-run-facts").first
    assert "ssm-dialogue" in facts.inner_text()
    lines = "(one) => one.offsetHeight / parseFloat(getComputedStyle(one).fontSize)"
    assert facts.evaluate(lines) < 2, "settings and drafters on one line"
    columns = page.locator("#sessions-scrubber .ss-columns")
    columns.press("Home")
    sites.wait_notice(page, "you are at round 1 of 8", "sessions")
    for _ in range(2):
        columns.press("ArrowRight")
    sites.wait_notice(page, "you are at round 3 of 8", "sessions")
    later = "() => document.querySelectorAll('#sessions-strip .ss-round[data-later]').length"
    becomes(page, later, 5)
    page.click("#sessions-follow")
    sites.wait_notice(page, "Finished: ", "sessions")
    page.click("#sessions-rewind")
    sites.wait_notice(page, "Engine finished, you are at round", "sessions")
    sites.speed(page, "full", "sessions")
    sites.wait_notice(page, "Finished: ", "sessions")
    sites.run_tools(page).click("#sessions-delete")
    page.locator("#sessions-sure").wait_for()
    assert context.store.runs(RunQuery()).total == 1
    page.click("#sessions-sure")
    page.locator("#sessions-runs").get_by_text("No runs yet").wait_for()
    page.locator("#sessions-notice").get_by_text("Runs open here").wait_for()
    page.locator("#sessions-scrubber").wait_for(state="hidden")
    assert context.store.runs(RunQuery()).total == 0


def num_stopped(worker: Any) -> int:
    return len(worker.runs) if all(run.is_cancelled for run in worker.runs) else -1


def pressed_at_once(page: Any, button: str) -> None:
    page.evaluate(
        """(button) => { document.querySelector(`#live-${button}`).click();
      document.querySelector("#live-stop").click(); }""",
        button,
    )


def test_stop_keeps_what_was_written_and_is_never_lost(
    long: Served, browser_page: OpenPage
) -> None:
    page = sites.wait_ready(browser_page(long[0]))
    worker: Any = long[1].hub.worker
    for times in range(1, 4):
        pressed_at_once(page, "run")
        sites.until(page, lambda times=times: num_stopped(worker) == times)
        sites.wait_notice(page, "Stopped: ")
    page.click("#live-run")
    sites.wait_notice(
        page, re.compile(r"Writing: [1-9]")
    )  # Run works after Stop; the race below needs a token
    page.locator("#live-stop").press("Enter")
    sites.wait_notice(page, "Stopped: ")
    sites.wait_drawn(page)
    page.locator("#live-figures .ss-state").get_by_text("cancelled", exact=True).wait_for()
    assert page.locator("#live-strip .ss-tok").count()
    assert num_stopped(worker) == 4
    desk = sites.desk_of(long[1])
    page.evaluate("() => document.querySelector('#live-race').click()")
    sites.until(page, lambda: desk.side is not None)
    before = num_stopped(worker)
    sites.wait_notice(page, "Plain decoding of the same request")
    page.evaluate("() => document.querySelector('#live-stop').click()")
    sites.until(page, lambda: num_stopped(worker) > before and desk.side is None)
    sites.wait_notice(page, "Plain decoding did not finish")
    runs = len(worker.runs)
    for key in ("r", "s"):  # both keys come before Stop replaces Run
        page.keyboard.press(key)
    sites.until(page, lambda: num_stopped(worker) == runs + 1)


def test_the_log_is_said_to_be_paused_as_long_as_it_is(
    short: Served, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(paused=True, reason="disk is full", waiting=7, dropped=0)
    monkeypatch.setattr(RunStore, "status", lambda _: status)
    page = sites.wait_ready(browser_page(short[0]))
    page.click("#live-run")
    sites.wait_notice(page, "7 events wait")
    sites.wait_notice(page, "Finished: ")
    status.waiting = 9
    sites.wait_notice(page, "9 events wait")
    status.paused = False
    page.locator("#live-notice").get_by_text("The log is paused").wait_for(state="detached")
    sites.wait_notice(page, "Finished: ")
    status.paused = True
    sites.sessions(page)
    page.locator("#sessions-said").get_by_text("9 events wait").wait_for()
    status.paused = False
    page.locator("#sessions-said").get_by_text("The log is paused").wait_for(state="detached")


def test_two_visitors_at_once_see_each_their_own_run(
    site: OpenSite, browser_page: OpenPage
) -> None:
    url, context = site(recorded(20), max_live=1, slowdown=20.0)
    one, two = sites.wait_ready(browser_page(url)), sites.wait_ready(browser_page(url))
    one.fill("#prompt textarea", "The first visitor")
    two.fill("#prompt textarea", "The second visitor")
    one.click("#live-run")
    sites.wait_notice(one, "Writing: ")
    two.click("#live-run")
    sites.wait_notice(two, "In the queue: 1st in line.")
    context.hub.worker.slowdown = 0.0
    for page in (one, two):
        sites.wait_notice(page, "Finished: ")
        sites.wait_drawn(page)
    assert "The first visitor" in sites.strip_text(one) and "second" not in sites.strip_text(one)
    assert "The second visitor" in sites.strip_text(two)
    prompts = {row.prompt for row in context.store.runs(RunQuery()).rows}
    assert prompts == {"The first visitor", "The second visitor"}


def test_hostile_text_is_text(site: OpenSite, browser_page: OpenPage) -> None:
    nasty = " ".join(HOSTILE_TEXTS) + "y" * 10_000
    url, context = site(script_of(10, hostile=True))
    page = sites.wait_ready(browser_page(url, dark=True))
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert int(re.findall(r"\d+", background)[0]) < 80, "dark, as the address asks for"
    page.fill("#prompt textarea", nasty.replace("\r", "").replace("\x00", ""))
    sites.ran(page)
    sites.shot(page, "hostile-live")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft"):
        page.locator("body").press(key)
    sites.open_latest_run(page)
    sites.shot(page, "hostile-sessions")
    assert page.evaluate("() => globalThis.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    assert not sites.overflows(page)
    assert context.store.runs(RunQuery()).total == 1


SPEED = "() => document.querySelector('#live-speed').value"


def test_the_keyboard_runs_steps_and_selects(short: Served, browser_page: OpenPage) -> None:
    page = sites.wait_ready(browser_page(short[0]))
    page.locator("#live-scrubber .ss-speed").wait_for()
    steps = page.locator("#live-scrubber .ss-steps").all_text_contents()
    assert steps == ["‹round›", "◂stage▸"], "what a button steps by is written next to it"
    sites.speed(page, "step")
    page.keyboard.press("r")
    sites.wait_notice(page, "Engine finished, you are at round 0 of 8")
    for stage in ("drafted", "combined", "verified"):
        page.keyboard.press(".")
        sites.wait_notice(page, f"you are at round 1 of 8, {stage}.")
    sites.shot(page, "step-verified")
    page.keyboard.press(".")
    sites.wait_notice(page, "you are at round 1 of 8.")
    page.keyboard.press(",")
    sites.wait_notice(page, "you are at round 1 of 8, verified.")
    for _ in range(6):
        page.keyboard.press(".")
    sites.wait_notice(page, "you are at round 3 of 8, drafted.")
    page.locator("body").press("ArrowLeft")
    page.locator("#live-tree").get_by_text("Round 2").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator("#live-tree").get_by_text("Round 3").wait_for()
    page.click("#live-rewind")
    sites.wait_notice(page, "Engine finished, you are at round 0 of 8")
    becomes(page, SPEED, "step")
    page.locator("#live-rewind").blur()
    page.keyboard.press(" ")
    sites.wait_notice(page, re.compile("you are at round [1-8] of 8"))
    page.keyboard.press(" ")
    page.locator("#live-play").get_by_text("▶").wait_for()
    page.keyboard.press("s")
    page.fill("#prompt textarea", "r s . ,")
    assert page.input_value("#prompt textarea") == "r s . ,", "in a text box keys are letters"


COMPONENT = """(id) =>
  window.gradio_config.components.find(({ props }) => props.elem_id === id).id"""


def test_steps_answers_that_were_overtaken_and_slow_motion(
    site: OpenSite, browser_page: OpenPage
) -> None:
    # So many rounds that, even on a busy machine, Step comes before the replay's end.
    url, context = site(recorded(40))
    page = sites.wait_ready(browser_page(url))
    sites.speed(page, "step")
    page.click("#live-run")
    sites.wait_notice(page, "Engine finished, you are at round 0 of 40")
    an_older_answer_is_not_shown(page)
    sites.speed(page, "full")
    sites.wait_notice(page, "Finished: ")
    becomes(page, SPEED, "full")
    page.click("#live-rewind")
    sites.wait_notice(page, re.compile(r"Engine finished, you are at round [1-9]\d* of 40"))
    page.click("#live-step")
    desk = sites.desk_of(context)
    player = desk.player
    sites.until(page, lambda: player.pace.mode == "step")
    here = run_lines(desk.frame())[0].text
    sites.wait_notice(page, here)
    at_rest(page)
    assert run_lines(desk.frame())[0].text == here, "the replay stands still"
    sites.speed(page, "full")
    sites.wait_notice(page, "Finished: ")


def an_older_answer_is_not_shown(page: Any) -> None:
    step = page.evaluate(COMPONENT, "live-scrubber")
    calls: list[Any] = []
    answers: dict[int, Any] = {}

    def hold_the_first(route: Any) -> None:
        if (route.request.post_data_json or {}).get("trigger_id") != step:
            return route.continue_()
        place = len(calls)
        calls.append(route)
        answers[place] = route.fetch()
        if place:
            route.fulfill(response=answers[place])

    page.route("**/run/predict**", hold_the_first)
    page.locator("button#live-step:enabled").wait_for()  # a disabled button ignores its key
    page.keyboard.press(".")
    sites.until(page, lambda: 0 in answers)  # else the server may take the second step first
    page.keyboard.press(".")
    sites.wait_notice(page, "you are at round 1 of 40, combined.")
    sites.until(page, lambda: len(answers) == 2)
    with page.expect_response("**/run/predict**"):
        calls[0].fulfill(response=answers[0])
    for _ in range(3):  # the older answer would be drawn by then
        frames(page)
    at_rest(page)
    sites.wait_notice(page, "you are at round 1 of 40, combined.")
    stage = page.locator("#live-tree .ss-stage[aria-current]")
    assert stage.get_attribute("data-stage") == "combine"
    page.unroute("**/run/predict**")
