"""The form and the bar in a real Chromium: what is chosen is what is shown, and what runs."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from core.config import PRESETS, SpeculationConfig
from storage import RunStore
from tests.ui.sites import (
    OpenPage,
    appeared,
    choose,
    number_box,
    ran,
    ready,
    said,
    sessions,
    shows,
    text_box,
    unfolded,
    until,
)
from ui.context import Context
from ui.pages.form import OWN

pytestmark = pytest.mark.browser

OPENED = "specinfer"  # the preset that the page of these tests opens with


def shown(page: Any, name: str) -> str:
    return str(page.locator(f"#field-{name} input").first.input_value())


def asked(context: Context) -> Any:
    worker: Any = context.hub.worker
    return worker.requests[-1]


NUMBERS = (
    ("sampling-max_new_tokens", "900", None, "900"),
    ("sampling-max_new_tokens", "", "max_new_tokens is empty: a whole number from 1", "128"),
    ("sampling-temperature", "5", None, "5"),
    ("sampling-temperature", "101", "temperature is 101: 0 or a number from 0.001", "0"),
    ("sampling-temperature", "", "temperature is empty: 0 or a number from 0.001", "0"),
    ("sampling-top_p", "0.01", None, "0.01"),
    ("sampling-top_p", "7", "top_p is 7: a number above 0 to 1", "1"),
    ("sampling-top_p", "", "top_p is empty: a number above 0 to 1", "0.9"),
    ("sampling-top_k", "2.7", "top_k is 2.7: a whole number from 0", "3"),
    ("sampling-top_k", "", "top_k is empty: a whole number from 0", "0"),
    ("field-speculation_length", "", "speculation_length is empty: a whole number", "7"),
    ("field-speculation_length", "99", "speculation_length is 99: a whole number", "8"),
    ("field-max_speculation_length", "0", "max_speculation_length is 0: a whole number", "32"),
    ("field-record_top_k", "2.5", "record_top_k is 2.5: a whole number from 0 to 50", "50"),
)


def rounds_of_numbers() -> list[list[tuple[str, str, str | None, str]]]:
    """NUMBERS dealt out so that a field comes once a round."""
    rounds: list[list[tuple[str, str, str | None, str]]] = []
    for number in NUMBERS:
        free = (one for one in rounds if number[0] not in [name for name, *_ in one])
        into = next(free, None)
        if into is None:
            rounds.append(into := [])
        into.append(number)
    return rounds


def test_a_number_is_run_as_it_was_typed_or_refused_by_name(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0]))
    wanted: dict[str, str] = {}
    for numbers in rounds_of_numbers():
        for name, typed, refused, good in numbers:
            type_number(page, name, typed, refused, good)
            wanted[name] = good
        for name, good in wanted.items():
            assert number_box(page, name).input_value() == good, f"{name} shows another number"
        page.click("#live-run")
        for name, good in wanted.items():
            kind, field = name.split("-")
            wait_until_asked(short[1], kind, field, float(good))


def type_number(page: Any, name: str, typed: str, refused: str | None, good: str) -> None:
    """Type it and, where it is refused by name, what is good; until Run may be pressed."""
    box, wrong = number_box(page, name), page.locator("#live-validity")
    box.fill(typed)
    box.blur()
    if refused:
        wrong.get_by_text(refused).wait_for()
        page.locator("#live-run[disabled]").wait_for()
        assert box.input_value() == typed, f"{name} shows another number"
        box.fill(good)
        box.blur()
    page.wait_for_function("() => !document.querySelector('#live-run').disabled")
    # Gradio counts the seconds of a call in the box for a moment, unseen.
    page.wait_for_function("() => !document.querySelector('#live-validity').innerText.trim()")
    page.wait_for_timeout(100)
    assert box.input_value() == good, f"{name} shows another number"


def wait_until_asked(context: Context, kind: str, field: str, value: float) -> None:
    """Until the last request has the value: it is what runs."""
    worker: Any = context.hub.worker
    seen: object = None
    for _ in range(100):
        if worker.requests:
            request = worker.requests[-1]
            seen = getattr(request.sampling if kind == "sampling" else request.speculation, field)
            if seen == value:
                return
        time.sleep(0.05)
    raise AssertionError(f"{field} ran as {seen}, not as {value}")


def test_a_preset_means_what_it_says_at_every_temperature(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0]))
    worker: Any = short[1].hub.worker
    choose(page, "preset", "specinfer-paper")
    appeared(page)  # with what it means
    shows(page, "verify", "greedy")
    for times, (temperature, draft, verify) in enumerate(
        (("0.8", "sampled", "mss"), ("0", "topk", "greedy")), 1
    ):
        number_box(page, "sampling-temperature").fill(temperature)
        number_box(page, "sampling-temperature").blur()
        shows(page, "verify", verify)
        shows(page, "draft", draft)  # fields come one by one
        page.wait_for_function("() => !document.querySelector('#live-run').disabled")
        page.click("#live-run")
        page.locator("#live-figures").wait_for()
        # What was said of the first run may still stand there when the second is asked for.
        until(page, lambda times=times: len(worker.requests) == times)
        said(page, "Finished: ")
        request = asked(short[1])
        assert request.sampling.temperature == float(temperature)
        assert (request.speculation.draft, request.speculation.verify) == (draft, verify)
    appeared(page)
    until(page, lambda: page.locator("#preset input").input_value() == "specinfer-paper")


OWN_SHOWN = "() => document.querySelector('#preset input').value.startsWith('own')"


PREDICT = "**/run/predict**"


def asks_about(route: Any, value: str) -> bool:
    """Whether a request brings the server this value of a field."""
    return value in json.loads(route.request.post_data or "{}").get("data", ())


def at_rest(page: Any) -> Any:
    """The box of a field, once what its first appearance asked for is answered."""
    expansion = text_box(page, "field-expansion")
    expansion.fill("2,1")
    page.wait_for_function(OWN_SHOWN)
    appeared(page)
    return expansion


def test_a_question_on_the_settings_whose_answer_is_lost_is_asked_again(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0], forgiven=("500 (Internal Server Error)", "error")))
    expansion = at_rest(page)
    lost: list[Any] = []

    def lose_one(route: Any) -> None:
        if not lost and asks_about(route, "zwei"):
            lost.append(route)
            route.fulfill(status=500, body="{}")
        else:
            route.continue_()

    page.route(PREDICT, lose_one)
    expansion.fill("zwei")
    page.locator("#live-validity").get_by_text("expansion is 'zwei'").wait_for()
    assert lost
    page.unroute(PREDICT)


def test_an_older_answer_on_the_settings_never_comes_after_a_newer_one(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0]))
    expansion = at_rest(page)
    held: list[tuple[Any, Any]] = []

    def hold_the_first(route: Any) -> None:
        if not held and asks_about(route, "2,2"):
            held.append((route, route.fetch()))
        else:
            route.continue_()

    page.route(PREDICT, hold_the_first)
    expansion.fill("2,2")
    until(page, lambda: bool(held))
    number_box(page, "sampling-top_p").fill("5")
    page.wait_for_timeout(500)
    held[0][0].fulfill(response=held[0][1])
    page.wait_for_timeout(500)
    page.locator("#live-validity").get_by_text("top_p is 5").wait_for()
    page.locator("#live-run[disabled]").wait_for()
    page.unroute(PREDICT)


def test_a_field_of_ones_own_stays_when_the_temperature_changes(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0]))
    expansion = text_box(page, "field-expansion")
    expansion.fill("2,1")  # as pasted: Gradio tells of a change, not of an input
    page.wait_for_function(OWN_SHOWN)
    number_box(page, "sampling-temperature").fill("0.7")
    page.wait_for_timeout(700)
    assert expansion.input_value() == "2,1"
    expansion.press_sequentially(",1")
    number_box(page, "sampling-temperature").fill("0.8")
    page.wait_for_timeout(700)
    ran(page)
    assert asked(short[1]).speculation.expansion == (2, 1, 1)
    assert asked(short[1]).sampling.temperature == 0.8


def test_from_the_start_says_at_which_speed_it_plays(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ran(ready(browser_page(short[0])))
    bar = page.locator("#live-playback")
    assert bar.get_by_label("full speed").is_checked()
    page.click("#live-rewind")
    said(page, re.compile("you are at round [2-7] of 8"))
    assert bar.get_by_label("slow motion").is_checked()
    bar.get_by_label("full speed").check()
    said(page, "Finished: ")
    assert bar.get_by_label("full speed").is_checked()


def stopped(worker: Any) -> int:
    """How many runs there were, each of them stopped; -1 if one goes on."""
    return len(worker.runs) if all(run.cancelled for run in worker.runs) else -1


def test_stop_in_the_same_moment_as_run_is_not_lost(
    long: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(long[0]))
    worker: Any = long[1].hub.worker
    for times in range(1, 4):
        page.evaluate("""() => {
          document.querySelector("#live-run").click();
          document.querySelector("#live-stop").click();
        }""")
        until(page, lambda times=times: stopped(worker) == times)
        said(page, "Stopped: ")
    page.click("#live-run")
    said(page, re.compile(r"Writing: [1-9]"))  # a question needs a token
    assert not worker.runs[-1].cancelled, "Run after Stop runs"
    page.click("#live-stop")
    said(page, "Stopped: ")
    for question in ("measure", "prove"):
        before = stopped(worker)
        page.evaluate(
            """(question) => {
          document.querySelector(`#live-${question}`).click();
          document.querySelector("#live-stop").click();
        }""",
            question,
        )
        # What was said of the first question may still stand there when the second is asked.
        until(page, lambda before=before: stopped(worker) > before)
        said(page, "Plain decoding did not finish")
        assert worker.runs[-1].cancelled


def test_the_log_is_said_to_be_paused_as_long_as_it_is(
    short: tuple[str, Context], browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(paused=True, reason="disk is full", waiting=7, dropped=0)
    monkeypatch.setattr(RunStore, "status", lambda _: status)
    page = ready(browser_page(short[0]))
    page.click("#live-run")
    said(page, "7 events wait")
    said(page, "Finished: ")
    status.waiting = 9
    said(page, "9 events wait")
    status.paused = False
    page.locator("#live-notice").get_by_text("The log is paused").wait_for(state="detached")
    said(page, "Finished: ")
    status.paused = True
    sessions(page)
    page.locator("#sessions-said").get_by_text("9 events wait").wait_for()
    status.paused = False
    page.locator("#sessions-said").get_by_text("The log is paused").wait_for(state="detached")


def test_the_menu_names_a_preset_as_long_as_the_fields_are_what_it_means(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0]))
    menu = page.locator("#preset input")
    for temperature, presets in (("0", PRESETS), ("0.8", ("specinfer-paper", "minions"))):
        number_box(page, "sampling-temperature").fill(temperature)
        for preset in presets:
            choose(page, "preset", preset)
            appeared(page)
            until(page, lambda preset=preset: menu.input_value() == preset)
            number_box(page, "field-record_top_k").fill("7")
            page.wait_for_function(
                "() => document.querySelector('#preset input').value.startsWith('own')"
            )


NAMES_SAID = """() => { const menu = document.querySelector("#preset input");
window.said = []; clearInterval(window.saying);
const look = () => window.said.at(-1) === menu.value || window.said.push(menu.value);
window.saying = setInterval(look, 10); }"""


def test_with_the_settings_folded_a_preset_keeps_its_name_and_runs_at_any_temperature(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.get_by_text("Sampling", exact=True).click()
    menu = page.locator("#preset input")
    for temperature, presets in (
        ("0", ("minions", "best", "specinfer-paper")),
        ("0.8", ("best", "minions")),
    ):
        # What the fields mean now follows the temperature, which asks the server twice.
        number_box(page, "sampling-temperature").fill(temperature)
        appeared(page)
        named = OPENED if temperature == "0" else "specinfer-paper"
        until(page, lambda named=named: menu.input_value() == named)
        page.locator("#live-run:not([disabled])").wait_for()
        for preset in presets:
            choose(page, "preset", preset)
            page.evaluate(NAMES_SAID)
            appeared(page)
            page.locator("#live-run:not([disabled])").wait_for()
            assert page.evaluate("() => window.said") == [preset]
    ran(page)
    meant = SpeculationConfig.preset("minions", 0.8)
    assert asked(short[1]).speculation.combine == meant.combine
    assert asked(short[1]).speculation.length == meant.length


def test_a_field_put_back_gives_the_preset_its_name_again(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0]))
    box, named = (
        number_box(page, "field-speculation_length"),
        "(name) => document.querySelector('#preset input').value === name",
    )
    was = box.input_value()
    for number, name in ((str(int(was) + 1), OWN), (was, OPENED)):
        box.fill(number)
        page.wait_for_function(named, arg=name)


def test_a_prompt_that_cannot_be_seen_runs_and_is_shown(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = unfolded(browser_page(short[0]))
    page.fill("#prompt textarea", "\u200b")
    ran(page)
    page.locator("#live-strip .ss-prompt").get_by_text("⟨ZWSP⟩", exact=True).wait_for()
