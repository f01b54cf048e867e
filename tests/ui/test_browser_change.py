"""Run on change in a real Chromium: one run for many presses, the run before as a pale line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui.sites import OpenPage, choose, number_box, ran, said, shot, unfolded, until
from ui.context import Context

pytestmark = pytest.mark.browser

QUIET_MS = 1000  # far longer than the page waits for a hand that moves


def requests(context: Context) -> list[Any]:
    worker: Any = context.hub.worker
    return list(worker.requests)


# Within the page, whose timers also tell when the hand is still: a slow machine slows both.
PRESSES = """async (box, presses) => {
  for (let i = 0; i < presses; i += 1) {
    box.stepDown();
    box.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((next) => setTimeout(next, 20));
  }
}"""


def count(page: Any, name: str, presses: int) -> None:
    """Down, step by step, as with an arrow that is pressed again and again."""
    number_box(page, f"sampling-{name}").evaluate(PRESSES, presses)


PALE_LINE = """() => document.querySelector('#live-lengths .js-plotly-plot')
  ?.data?.some(({ name }) => name === 'before')"""


def test_a_number_counted_down_runs_once_and_only_where_it_is_asked_for(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    page = unfolded(browser_page(url))
    ran(page)
    count(page, "top_p", 10)
    page.wait_for_timeout(QUIET_MS)
    assert len(requests(context)) == 1, "off: a changed control runs nothing"
    page.get_by_label("Run on change").check()
    page.wait_for_timeout(QUIET_MS)
    count(page, "max_new_tokens", 20)
    page.locator("#live-figures").get_by_text("before:").first.wait_for()
    said(page, "Finished: ")
    page.wait_for_timeout(QUIET_MS)
    asked = requests(context)
    assert len(asked) == 2 and asked[1].sampling.top_p < 1
    page.locator("#live-lengths").get_by_text("The pale line is the run before").wait_for()
    page.wait_for_function(PALE_LINE)
    shot(page, "run-on-change")


def test_a_preset_runs_and_a_prompt_when_it_is_left(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    page = unfolded(browser_page(url))
    page.get_by_label("Run on change").check()
    page.fill("#prompt textarea", "Another prompt")
    page.wait_for_timeout(QUIET_MS)
    assert requests(context) == [], "not while it is typed"
    page.locator("#prompt textarea").blur()
    said(page, "Finished: ")
    choose(page, "preset", "sequence")
    page.locator("#live-figures").get_by_text("before:").first.wait_for()
    page.wait_for_timeout(QUIET_MS)
    asked = requests(context)
    assert [request.prompt for request in asked] == ["Another prompt"] * 2
    assert asked[1].speculation.expansion == (1,)


def test_a_change_stops_the_run_at_hand_and_a_wrong_one_does_not(
    long: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = long
    worker: Any = context.hub.worker
    page = unfolded(browser_page(url))
    page.get_by_label("Run on change").check()
    page.click("#live-run")
    said(page, "Writing: ")
    number_box(page, "sampling-top_p").fill("7")
    page.locator("#live-validity").get_by_text("top_p is 7").wait_for()
    page.wait_for_timeout(QUIET_MS)
    assert len(worker.runs) == 1 and not worker.runs[0].cancelled
    number_box(page, "sampling-top_p").fill("0.5")
    until(page, lambda: len(worker.runs) == 2)
    page.wait_for_timeout(QUIET_MS)
    assert len(worker.runs) == 2 and worker.runs[0].cancelled and not worker.runs[1].cancelled
    page.click("#live-stop")
    said(page, "Stopped: ")


NOTHING = {"__type__": "update"}
SLOW_MS = 1500  # far longer than the page waits for a hand that is still


def presets_asked(route: Any) -> bool:
    """Whether a request asks what a preset's fields are."""
    data = (route.request.post_data_json or {}).get("data") or []
    return data[:1] in (["sequence"], ["minions"])


def test_fields_that_come_one_by_one_run_once(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = short
    page = unfolded(browser_page(url))
    ran(page)
    answers: list[int] = []

    def only_the_first_fields(route: Any) -> None:
        if not presets_asked(route):
            return route.continue_()
        answer = route.fetch()
        told = answer.json()
        # What was chosen and the drafters; the other fields are as good as still on their way.
        told["data"] = [*told["data"][:2], *(NOTHING for _ in told["data"][2:])]
        answers.append(len(told["data"]))
        route.fulfill(response=answer, json=told)

    page.route("**/run/predict**", only_the_first_fields)
    page.get_by_label("Run on change").check()
    choose(page, "preset", "sequence")
    until(page, lambda: bool(answers))
    page.wait_for_timeout(SLOW_MS)
    assert len(requests(context)) == 1, "a form between two presets is not run"
    page.unroute("**/run/predict**")
    choose(page, "preset", "sequence")  # now the others come
    page.locator("#live-figures").get_by_text("before:").first.wait_for()
    page.wait_for_timeout(QUIET_MS)
    asked = requests(context)
    assert len(asked) == 2
    assert asked[1].speculation.expansion == (1,) and len(asked[1].speculation.drafters) == 1
