"""The settings form in a real Chromium."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

import ui.live.tab
from bench.page.browser import WAIT_MS
from core.config import SpeculationConfig
from tests.ui import sites
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, Served, number_box, wait_form_settled
from ui.form.form import OWN
from ui.server.context import Context

pytestmark = pytest.mark.browser

TABS = ("live",)
OPENED = "specinfer"  # the preset that the page opens with
PRESET = "() => document.querySelector('#preset input').value.split(' (')[0]"
CAN_RUN = "() => !document.querySelector('#live-run').disabled"
# `innerText` leaves out the hidden seconds that Gradio counts in the box.
REASON = "() => document.querySelector('#live-validity').innerText.trim()"


def last_request(context: Context) -> Any:
    worker: Any = context.hub.worker
    return worker.requests[-1]


def wait_refusal(page: Any, words: str) -> None:
    page.locator("#live-validity").get_by_text(words).wait_for()
    page.locator("#live-run[disabled]").wait_for()


# Each entry: a number box, a refused text, the reason of the refusal, and an accepted text.
NUMBERS = (
    ("sampling-max_new_tokens", "", "max_new_tokens is empty: it must be a whole number", "900"),
    ("sampling-temperature", "101", "temperature is 101: it must be 0 or a number", "5"),
    ("sampling-top_p", "7", "top_p is 7: it must be a number above 0 to 1", "0.01"),
    ("sampling-top_k", "2.7", "top_k is 2.7: it must be a whole number from 0", "3"),
    ("field-speculation_length", "99", "speculation_length is 99: it must be a whole", "7"),
    ("field-record_top_k", "2.5", "record_top_k is 2.5: it must be a whole number", "50"),
)
BOXES = """(ids) => Object.fromEntries(ids.map((id) =>
  [id, document.querySelector(`#${id} input[type=number]`).value]))"""


CHANGED = """() => ({ changed: document.documentElement.hasAttribute("data-changed"),
  said: getComputedStyle(document.querySelector("#live-run"), "::after").content })"""


def run_says_that_the_settings_are_not_those_of_the_run_shown(page: Any, context: Context) -> None:
    temperature = number_box(page, "sampling-temperature")
    becomes(page, CHANGED, {"changed": False, "said": "none"})
    for change in ("0.8", "0.5"):
        temperature.fill(change)
        temperature.blur()
        becomes(page, CHANGED, {"changed": True, "said": '"settings changed"'})
        temperature.fill("0")
        temperature.blur()
        becomes(page, CHANGED, {"changed": False, "said": "none"})
    page.locator("#prompt textarea").fill("Another prompt")
    becomes(page, CHANGED, {"changed": True, "said": '"settings changed"'})
    sites.ran_again(page, context)
    becomes(page, CHANGED, {"changed": False, "said": "none"})


def a_number_is_run_as_typed_or_refused_by_name(page: Any, context: Context) -> None:
    for name, typed, reason, good in NUMBERS:
        box = number_box(page, name)
        box.fill(typed)
        box.blur()
        wait_refusal(page, reason)
        assert box.input_value() == typed, f"{name} shows another number"
        box.fill(good)
        box.blur()
        page.wait_for_function(CAN_RUN)
        becomes(page, REASON, "")
    expected = {name: good for name, *_, good in NUMBERS}
    assert wait_form_settled(page).evaluate(BOXES, list(expected)) == expected
    page.click("#live-run")
    sites.until(page, lambda: asked_as(context, expected))
    the_reason_of_a_refusal_is_near_the_field(page)


def asked_as(context: Context, expected: dict[str, str]) -> bool:
    worker: Any = context.hub.worker
    if not worker.requests:
        return False
    request = worker.requests[-1]
    parts = {"sampling": request.sampling, "field": request.speculation}
    given = {name: getattr(parts[(at := name.split("-"))[0]], at[1]) for name in expected}
    return given == {name: float(number) for name, number in expected.items()}


def test_run_says_that_settings_changed_and_a_preset_keeps_its_name_until_it_changes(
    short: Served, browser_page: OpenPage
) -> None:
    url, context = short
    page = sites.ran(sites.unfold_settings(browser_page(url)))
    run_says_that_the_settings_are_not_those_of_the_run_shown(page, context)
    sites.choose(page, "preset", "specinfer-paper")
    sites.shows(page, "verify", "greedy")
    for temperature, draft, verify in (("0.8", "sampled", "mss"), ("0", "topk", "greedy")):
        sites.number_box(page, "sampling-temperature").fill(temperature)
        sites.number_box(page, "sampling-temperature").blur()
        sites.shows(page, "verify", verify)
        sites.shows(page, "draft", draft)
        sites.ran_again(sites.wait_form_settled(page), context)
        request = last_request(context)
        assert request.sampling.temperature == float(temperature)
        assert (request.speculation.draft, request.speculation.verify) == (draft, verify)
    becomes(page, PRESET, "specinfer-paper")
    for temperature, presets in (("0", ("autoregressive", "best")), ("0.8", ("minions",))):
        sites.number_box(page, "sampling-temperature").fill(temperature)
        sites.wait_form_settled(page)
        for preset in presets:
            sites.choose(page, "preset", preset)
            becomes(sites.wait_form_settled(page), PRESET, preset)
            sites.number_box(page, "field-record_top_k").fill("7")
            becomes(page, PRESET, OWN)
    sites.number_box(page, "sampling-temperature").fill("0")
    sites.choose(sites.wait_form_settled(page), "preset", OPENED)
    was = sites.number_box(sites.wait_form_settled(page), "field-speculation_length").input_value()
    for number, name in ((str(int(was) + 1), OWN), (was, OPENED)):
        sites.number_box(page, "field-speculation_length").fill(number)
        becomes(page, PRESET, name)


NAMES_SAID = """() => { const menu = document.querySelector("#preset input");
  window.said = []; cancelAnimationFrame(window.saying);
  const look = () => { if (window.said.at(-1) !== menu.value) window.said.push(menu.value);
    window.saying = requestAnimationFrame(look); };
  look(); }"""


def test_with_the_settings_folded_a_preset_keeps_its_name_and_runs_at_any_temperature(
    short: Served, browser_page: OpenPage
) -> None:
    page = sites.wait_ready(browser_page(short[0]))
    for temperature, opened, presets in (
        ("0", OPENED, ("minions", "specinfer-paper")),
        ("0.8", "specinfer-paper", ("best", "minions")),
    ):
        # A preset's fields depend on the temperature.
        sites.number_box(page, "sampling-temperature").fill(temperature)
        becomes(sites.wait_form_settled(page), PRESET, opened)
        page.wait_for_function(CAN_RUN)
        for preset in presets:
            sites.choose(page, "preset", preset)
            page.evaluate(NAMES_SAID)
            sites.wait_form_settled(page).wait_for_function(CAN_RUN)
            assert [name.split(" (")[0] for name in page.evaluate("() => window.said")] == [preset]
    sites.ran(page)
    meant = SpeculationConfig.preset("minions", 0.8)
    assert last_request(short[1]).speculation.combine == meant.combine
    assert last_request(short[1]).speculation.length == meant.length


EXPANSION = """() => document.querySelector("#field-expansion :is(input, textarea)")
  ?.value.replaceAll(" ", "")"""


def open_fields(page: Any) -> None:
    sites.open_drawer(page)
    page.get_by_text("Every setting of the engine").click()
    sites.text_box(page, "field-expansion").wait_for()
    page.wait_for_function(EXPANSION)
    sites.wait_form_settled(page)


def test_own_presets_stay_in_the_browser_and_what_saving_says_outlasts_a_check(
    short: Served, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, context = short
    # `page.goto` leaves the page, perhaps with open streams.
    page = sites.wait_ready(browser_page(url, forgiven=sites.LEAVING))
    open_fields(page)
    sites.text_box(page, "field-expansion").fill("2,2")
    page.get_by_text("A preset of your own").click()
    name = sites.text_box(page, "own-name")
    name.fill("wide")
    sites.wait_form_settled(page).click("#own-save")
    validity = page.locator("#live-validity")
    validity.get_by_text("Saved in this browser as wide.").wait_for()
    saved_while_a_check_is_out(page, monkeypatch)

    page.goto(url)
    sites.wait_ready(page)
    sites.choose(page, "preset", "wide")
    open_fields(page)
    becomes(page, EXPANSION, "2,2")
    sites.ran(page)
    assert last_request(context).speculation.expansion == (2, 2)
    page.get_by_text("A preset of your own").click()
    name.wait_for()
    sites.wait_form_settled(page).click("#own-delete")
    validity.get_by_text("Deleted from this browser: wide.").wait_for()
    becomes(page, EXPANSION, "2,2")
    page.goto(url)
    sites.wait_ready(page).locator("#preset input").click()
    page.get_by_role("option", name="minions").wait_for()
    assert page.get_by_role("option", name="wide").count() == 0


def saved_while_a_check_is_out(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, out, go = ui.live.tab.check_form, threading.Event(), threading.Event()

    def late(values: Any) -> Any:
        out.set()
        assert go.wait(WAIT_MS / 1000)
        return usual(values)

    monkeypatch.setattr(ui.live.tab, "check_form", late)
    sites.text_box(page, "own-name").fill("late")
    sites.until(page, out.is_set)
    # Stop the clock: the click waits for the check, but at most MOST_MS (after_settled.js).
    page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
    page.click("#own-save")
    go.set()
    words = page.locator("#live-validity").get_by_text("Saved in this browser as late.")
    words.wait_for()
    page.evaluate("() => { delete performance.now; }")
    sites.wait_form_settled(page)  # the check's answer is shown by now
    assert words.is_visible()
    monkeypatch.undo()


GREYED = """(fields) => fields.map((name) =>
  document.querySelector(`#field-${name} :is(input, textarea)`).disabled)"""


def are_greyed(page: Any, *fields: str, but: tuple[str, ...]) -> None:
    becomes(page, GREYED, [True] * len(fields) + [False] * len(but), [*fields, *but])


def test_fields_that_are_wrong_idle_or_of_ones_own_and_numbers_as_typed(
    short: Served, browser_page: OpenPage
) -> None:
    url, context = short
    page = sites.unfold_settings(browser_page(url))
    fields_that_are_wrong_idle_or_of_ones_own(page, context)
    sites.choose(wait_form_settled(page), "preset", OPENED)
    becomes(wait_form_settled(page), PRESET, OPENED)
    a_number_is_run_as_typed_or_refused_by_name(page, context)


def fields_that_are_wrong_idle_or_of_ones_own(page: Any, context: Context) -> None:
    page.fill("#prompt textarea", "   ")
    page.click("#live-run")
    sites.wait_notice(page, "The prompt is empty.")
    sites.shot(page, "bad-input")
    page.fill("#prompt textarea", "Better")
    page.locator("#live-notice").get_by_text("prompt is").wait_for(state="detached")

    are_greyed(page, "weights", "vote_nodes", but=("expansion",))
    page.locator("#field-weights").get_by_text("Not used: union reads no weights").wait_for()
    sites.choose(page, "field-combine", "vote")
    page.locator("#field-expansion").get_by_text("vote chooses among sequences").wait_for()
    are_greyed(page, "expansion", "vote_nodes", "eta", but=("weights",))
    sites.choose(sites.wait_form_settled(page), "field-weights", "paper")
    page.locator("#field-eta").get_by_text("A won vote multiplies").wait_for()
    are_greyed(page, but=("eta", "weight_bounds"))
    page.locator("#live-run:not([disabled])").wait_for()

    sites.choose(sites.wait_form_settled(page), "preset", OPENED)
    becomes(sites.wait_form_settled(page), PRESET, OPENED)
    expansion = sites.text_box(page, "field-expansion")
    expansion.fill("1,zwei")
    wait_refusal(page, "expansion is '1,zwei'")
    expansion.fill("2,1")  # as pasted: Gradio's event is a change, not an input
    page.wait_for_function(CAN_RUN)
    becomes(page, PRESET, OWN)
    sites.number_box(page, "sampling-temperature").fill("0.7")
    becomes(sites.wait_form_settled(page), EXPANSION, "2,1")
    expansion.press_sequentially(",1")
    sites.number_box(page, "sampling-temperature").fill("0.8")
    page.fill("#prompt textarea", "\u200b")
    sites.ran(sites.wait_form_settled(page))
    page.locator("#live-strip .ss-prompt").get_by_text("⟨ZWSP⟩", exact=True).wait_for()
    assert last_request(context).speculation.expansion == (2, 1, 1)
    assert last_request(context).sampling.temperature == 0.8


PREDICT = "**/run/predict**"


def asks_about(route: Any, value: object) -> bool:
    return value in json.loads(route.request.post_data or "{}").get("data", ())


def test_a_lost_answer_is_asked_for_again_and_an_older_one_never_comes_after_a_newer_one(
    short: Served, browser_page: OpenPage
) -> None:
    page = sites.unfold_settings(
        browser_page(short[0], forgiven=("500 (Internal Server Error)", "error"))
    )
    expansion = sites.text_box(page, "field-expansion")
    lost: list[Any] = []

    def lose_one(route: Any) -> None:
        if not lost and asks_about(route, "zwei"):
            lost.append(route)
            route.fulfill(status=500, body="{}")
        else:
            route.continue_()

    page.route(PREDICT, lose_one)
    expansion.fill("zwei")
    wait_refusal(page, "expansion is 'zwei'")
    assert lost
    page.unroute(PREDICT)

    held: list[tuple[Any, Any]] = []
    newer: list[Any] = []

    def hold_the_first(route: Any) -> None:
        if asks_about(route, 6.5):
            newer.append(route)
        if not held and asks_about(route, "2,2"):
            held.append((route, route.fetch()))
        else:
            route.continue_()

    sites.wait_form_settled(page).route(PREDICT, hold_the_first)
    expansion.fill("2,2")
    sites.until(page, lambda: bool(held))
    # Otherwise the held answer counts as lost after LOST_MS (ui/shared/assets/settled.js).
    page.evaluate("() => clearTimeout(window.specscopeSettled.late)")
    sites.number_box(page, "sampling-top_p").fill("6.5")
    page.wait_for_function("() => window.specscopeSettled.again")
    assert not newer, "the second question waits for the first one's answer"
    held[0][0].fulfill(response=held[0][1])
    wait_refusal(page, "top_p is 6.5")
    wait_refusal(sites.wait_form_settled(page), "top_p is 6.5")
    page.unroute(PREDICT)


IN_SIGHT = """() => ["#live-validity .sp-error", "#field-record_top_k input"].every((what) => {
  const box = document.querySelector(what)?.getBoundingClientRect();
  return box?.height > 0 && box.top >= 0 && box.bottom <= innerHeight; })"""


def the_reason_of_a_refusal_is_near_the_field(page: Any) -> None:
    field = number_box(page, "field-record_top_k")
    reason = page.locator("#live-validity").get_by_text("record_top_k is 99")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        field.fill("5")
        reason.wait_for(state="detached")
        wait_form_settled(page)
        field.evaluate("(node) => node.scrollIntoView({ block: 'center' })")
        field.fill("99")
        reason.wait_for()
        page.wait_for_function(IN_SIGHT)
