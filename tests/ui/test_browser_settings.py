"""The page in a real Chromium: settings, questions, deletion, reload, accessibility."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import ui.pages.live
from bench.page.looks import at_rest
from storage import RunQuery
from tests.ui.fakes import scripted
from tests.ui.sites import (
    LEAVING,
    OpenPage,
    OpenSite,
    appeared,
    choose,
    overflows,
    ran,
    ready,
    replayed,
    said,
    sessions,
    shot,
    text_box,
    until,
    usable,
)
from ui.context import Context

pytestmark = pytest.mark.browser


def test_a_reload_while_it_writes_breaks_nothing(
    long: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = long
    page = browser_page(url, forgiven=LEAVING)
    ready(page).click("#live-run")
    said(page, "Writing: ")
    page.reload()
    ready(page)
    sessions(page)
    page.click("#sessions-refresh")
    page.locator("#sessions-runs").get_by_text("cancelled").wait_for()
    assert context.hub.worker.runs[0].cancelled  # type: ignore[attr-defined]


def expanded(page: Any) -> Any:
    """The box of the expansion, which has come into sight and has its value."""
    box = text_box(page, "field-expansion")
    until(page, lambda: bool(box.input_value()))
    appeared(page)
    return box


def test_bad_settings_grey_run_and_say_why(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_text("Every setting of the engine").click()
    expanded(page).fill("1,zwei")
    page.locator("#live-validity").get_by_text("expansion is '1,zwei'").wait_for()
    page.wait_for_function("() => document.querySelector('#live-run').disabled")
    text_box(page, "field-expansion").fill("1,2")
    page.wait_for_function("() => !document.querySelector('#live-run').disabled")
    page.fill("#prompt textarea", "   ")
    page.click("#live-run")
    said(page, "prompt is '   '")
    shot(page, "bad-input")


def test_a_round_or_a_rate_that_is_not_there_is_the_nearest_one(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.locator("#live-playback input[type=number]").fill("0")
    page.locator("#live-playback input[type=number]").blur()
    ran(page)
    replayed(page)
    page.locator("#sessions-scrub input[type=number]").fill("3")
    said(page, "you are at round 3 of 8", "sessions")
    page.locator("#sessions-scrub input[type=number]").fill("99")
    said(page, "Finished: ", "sessions")


def test_measure_and_prove_answer_on_the_page(site: OpenSite, browser_page: OpenPage) -> None:
    url, _ = site(scripted(8))
    page = ready(browser_page(url))
    page.click("#live-prove")
    said(page, "there is no run yet")
    ran(page)
    page.click("#live-measure")
    page.locator("#live-figures").get_by_text("measured", exact=True).wait_for()
    page.click("#live-prove")
    said(page, "Identical: plain decoding with the same seed writes the same")


def test_a_run_is_deleted_only_when_asked_twice(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    page = ran(ready(browser_page(url)))
    replayed(page)
    page.click("#sessions-delete")
    assert context.store.runs(RunQuery()).total == 1
    page.click("#sessions-sure")
    page.locator("#sessions-runs").get_by_text("No run yet").wait_for()
    said(page, "Open a run from the list.", "sessions")
    number = page.locator("#sessions-scrub input[type=number]")
    until(page, lambda: number.input_value() == "0")
    page.locator("#sessions-scrub input[type=range][max='1']").wait_for()
    assert context.store.runs(RunQuery()).total == 0


@pytest.mark.parametrize("dark", [False, True])
def test_our_own_parts_are_accessible(
    short: tuple[str, Context], browser_page: OpenPage, axe: Any, dark: bool
) -> None:
    page = ran(ready(browser_page(short[0], dark=dark)))
    assert axe(page, "#header", "#live-notice", ".sp-keys", "#live-playback") == []
    replayed(page)
    assert axe(page, "#sessions-runs", "#sessions-said") == []


def test_a_refused_prompt_is_forgotten_when_it_is_mended(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.fill("#prompt textarea", " ")
    page.click("#live-run")
    said(page, "prompt is ' '")
    page.fill("#prompt textarea", "Better")
    page.locator("#live-notice").get_by_text("prompt is").wait_for(state="detached")


def test_stop_ends_a_proof(site: OpenSite, browser_page: OpenPage) -> None:
    url, context = site(scripted(120), speed=0.01)
    worker: Any = context.hub.worker
    page = ran(ready(browser_page(url)))
    worker.speed = 20.0
    page.click("#live-prove")
    said(page, "Plain decoding of the same request")
    page.click("#live-stop")
    said(page, "Plain decoding did not finish")
    assert worker.runs[-1].cancelled


def test_large_type_is_kept(short: tuple[str, Context], browser_page: OpenPage) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_role("button", name="Large type").click()
    page.locator("html.ss-large").wait_for()
    page.goto(short[0])
    ready(page)
    page.locator("html.ss-large").wait_for()
    page.get_by_role("button", name="Large type", pressed=True).wait_for()
    at_rest(page)
    assert not overflows(page)


def test_own_presets_stay_in_the_browser(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_text("Every setting of the engine").click()
    expanded(page).fill("2,2")
    page.get_by_text("A preset of your own").click()
    usable(page, text_box(page, "own-name")).fill("wide")
    page.click("#own-save")
    page.locator("#live-validity").get_by_text("Saved in this browser as wide.").wait_for()
    page.goto(short[0])
    ready(page)
    choose(page, "preset", "wide")
    page.get_by_text("Every setting of the engine").click()
    expansion = text_box(page, "field-expansion")
    until(page, lambda: expansion.input_value().replace(" ", "") == "2,2")  # by the server
    ran(page)
    asked = short[1].hub.worker.requests[-1]  # type: ignore[attr-defined]
    assert asked.speculation.expansion == (2, 2)
    page.get_by_text("A preset of your own").click()
    page.click("#own-delete")
    page.locator("#live-validity").get_by_text("Deleted from this browser: wide.").wait_for()
    assert expansion.input_value().replace(" ", "") == "2,2"
    page.goto(short[0])
    ready(page).locator("#preset input").click()
    page.get_by_role("option", name="minions").wait_for()
    assert page.get_by_role("option", name="wide").count() == 0


def test_what_saving_says_outlasts_a_check_that_is_out(
    short: tuple[str, Context], browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_text("A preset of your own").click()
    name = usable(page, text_box(page, "own-name"))
    usual, checked = ui.pages.live.checked, threading.Event()

    def late(values: Any) -> Any:
        time.sleep(0.8)
        checked.set()
        return usual(values)

    monkeypatch.setattr(ui.pages.live, "checked", late)
    name.fill("late")
    page.click("#own-save")
    until(page, checked.is_set)
    page.wait_for_timeout(500)  # the check's answer would have been drawn by now
    said = page.locator("#live-validity").get_by_text("Saved in this browser as late.")
    said.wait_for()
    page.wait_for_timeout(300)
    assert said.is_visible()


def test_what_changes_nothing_is_greyed_and_says_why(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_text("Every setting of the engine").click()

    def greyed(field: str) -> bool:
        return bool(page.locator(f"#field-{field} :is(input, textarea)").first.is_disabled())

    def are_greyed(*fields: str, but: tuple[str, ...]) -> None:
        """Wait until these are and those are not: each field is told by itself."""
        until(page, lambda: all(map(greyed, fields)) and not any(map(greyed, but)))

    are_greyed("weights", "vote_nodes", but=("expansion",))
    page.locator("#field-weights").get_by_text("Not used: union weighs nobody").wait_for()
    choose(page, "field-combine", "vote")
    page.locator("#field-expansion").get_by_text("a vote is over sequences").wait_for()
    are_greyed("expansion", "vote_nodes", "eta", but=("weights",))
    choose(page, "field-weights", "paper")
    page.locator("#field-eta").get_by_text("A won vote multiplies").wait_for()
    are_greyed(but=("eta", "weight_bounds"))
    page.locator("#live-run:not([disabled])").wait_for()
