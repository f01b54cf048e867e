"""The checkbox "Run on change" in a real Chromium."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import ui.shared.pending_fields
from tests.ui.reading import becomes
from tests.ui.sites import (
    OpenPage,
    choose,
    desks_of,
    dock,
    number_box,
    ran,
    shot,
    unfold_settings,
    until,
    wait_form_settled,
    wait_notice,
    wait_ready,
)
from ui.live import handlers
from ui.server.context import Context
from ui.server.session import TabSession

pytestmark = pytest.mark.browser

TABS = ("live",)


Verdicts = Callable[[TabSession], list[bool]]


def requests(context: Context) -> list[Any]:
    worker: Any = context.hub.worker
    return list(worker.requests)


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Verdicts:
    """The sessions tell the presses of this test from late presses of an earlier test."""
    given: list[tuple[TabSession, bool]] = []
    validity = handlers.validity

    def judged_validity(values: Sequence[Any]) -> str:
        reason = validity(values)
        caller = sys._getframe(1)
        if reason and caller.f_code is handlers.run_on_change.__code__:
            given.append((caller.f_locals["session"], False))
        return reason

    def judged(differs: Callable[..., bool]) -> Callable[..., bool]:
        def judge(session: TabSession, values: Sequence[Any]) -> bool:
            starts = differs(session, values)
            given.append((session, starts))
            return starts

        return judge

    monkeypatch.setattr(handlers, "validity", judged_validity)
    for name in ("_differs", "_differs_in_preset"):
        monkeypatch.setattr(handlers, name, judged(getattr(handlers, name)))
    return lambda own: [starts for session, starts in given if session is own]


def session_of_the_only_run(context: Context) -> TabSession:
    worker: Any = context.hub.worker
    (run,) = worker.runs
    sessions = desks_of(context)
    (own,) = (one for one in sessions if one.player and one.player.source.run_id == run.run_id)
    return own


# Keeps in `stirring` the timers that wait until the visitor has stopped changing controls.
WATCH_HAND = """() => {
  window.reruns = 0;
  window.stirring = new Set();
  document.querySelector("#live-rerun").addEventListener("click", () => { reruns += 1; });
  const [start, stop] = [window.setTimeout, window.clearTimeout];
  window.setTimeout = (work, ...rest) => {
    if (work.name !== "press") return start(work, ...rest);
    const id = start(() => { stirring.delete(id); work(); }, ...rest);
    stirring.add(id);
    return id;
  };
  window.clearTimeout = (id) => { stirring.delete(id); stop(id); };
}"""


def still(page: Any, reruns: int) -> Any:
    assert reruns_by_now(page) == reruns
    return page


def reruns_by_now(page: Any) -> int:
    for _ in range(2):
        wait_form_settled(page)
        page.wait_for_function("() => stirring.size === 0")
    return int(page.evaluate("() => reruns"))


# The page itself times the presses, so that a slow machine does not separate them.
PRESSES = """async (box, presses) => {
  for (let i = 0; i < presses; i += 1) {
    box.stepDown();
    box.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((next) => setTimeout(next, 20));
  }
}"""


def count(page: Any, name: str, presses: int) -> None:
    number_box(page, f"sampling-{name}").evaluate(PRESSES, presses)


PALE_LINE = """() => document.querySelector('#live-lengths .js-plotly-plot')
  ?.data?.some(({ name }) => name === 'before')"""


def test_a_change_runs_once_and_only_where_it_is_asked_for(
    short: tuple[str, Context], browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, context = short
    page = ran(unfold_settings(browser_page(url)))
    page.evaluate(WATCH_HAND)
    count(page, "top_p", 10)
    still(page, 0)
    page.get_by_label("Run on change").check()
    still(page, 0)
    assert len(requests(context)) == 1
    count(page, "max_new_tokens", 20)
    still(page, 1)
    wait_notice(page, "Finished: ")
    dock(page, "length")
    page.locator("#live-lengths").get_by_text("The pale line is the previous run").wait_for()
    page.wait_for_function(PALE_LINE)
    shot(page, "run-on-change")
    assert len(requests(context)) == 2 and requests(context)[1].sampling.top_p < 1

    page.fill("#prompt textarea", "Another prompt")
    still(page, 1)  # nothing runs while the prompt is typed
    page.locator("#prompt textarea").blur()
    still(page, 2)
    until(page, lambda: len(requests(context)) == 3)
    # On a slow machine LAPSE_S might pass, and late fields would count as arrived.
    monkeypatch.setattr(ui.shared.pending_fields, "LAPSE_S", math.inf)
    fields_that_come_one_by_one(page, context)
    assert [request.prompt for request in requests(context)[2:]] == ["Another prompt"] * 2


def test_a_preset_beside_a_finished_run_of_the_same_prompt_runs_at_once(
    short: tuple[str, Context], browser_page: OpenPage, verdicts: Verdicts
) -> None:
    url, context = short
    page = wait_ready(browser_page(url, width=390, height=844))
    page.evaluate(WATCH_HAND)
    page.locator("#prompt textarea").fill("A prompt")
    choose_preset(page, "sequence")  # the click fails if the focused prompt covers the menu
    still(page, 1)
    assert not requests(context)
    becomes(page, PRESET_LABEL, "Preset (then Run)")
    ran(page)
    own = session_of_the_only_run(context)
    choose(page, "preset", "minions")  # by the mouse: see `choose_preset`
    until(page, lambda: len(requests(context)) == 2)
    wait_notice(page, "Finished: ")
    assert requests(context)[1].speculation.combine == "vote"
    becomes(page, PRESET_LABEL, "Preset (runs at once)")
    page.locator("#prompt textarea").fill("Another prompt")
    reruns = reruns_by_now(page)
    choose_preset(page, "sequence")
    still(page, reruns + 1)
    until(page, lambda: len(verdicts(own)) == reruns + 1)
    nothing_was_run, *by_the_mouse, prompt_was_changed = verdicts(own)
    assert not nothing_was_run and sum(by_the_mouse) == 1 and not prompt_was_changed
    assert len(requests(context)) == 2
    becomes(page, PRESET_LABEL, "Preset (then Run)")


PRESET_LABEL = """() => { const label = document.querySelector("#preset [data-testid=block-info]");
  return label.innerText + getComputedStyle(label, "::after").content.replaceAll('"', ""); }"""
NOTHING = {"__type__": "update"}


def choose_preset(page: Any, name: str) -> None:
    """Chooses by keys, since Gradio sends a choice by mouse twice."""
    box = page.locator("#preset input")
    box.click()
    box.fill(name)
    box.press("Enter")


def fields_that_come_one_by_one(page: Any, context: Context) -> None:
    answers: list[int] = []

    def only_the_first_fields(route: Any) -> None:
        data = (route.request.post_data_json or {}).get("data") or []
        if data[:1] != ["sequence"]:
            return route.continue_()
        answer = route.fetch()
        document = answer.json()
        document["data"] = [*document["data"][:2], *(NOTHING for _ in document["data"][2:])]
        answers.append(len(document["data"]))
        route.fulfill(response=answer, json=document)

    page.route("**/run/predict**", only_the_first_fields)
    choose_preset(page, "sequence")
    until(page, lambda: bool(answers))
    page.wait_for_function("() => stirring.size === 1")
    for _ in range(2):
        with page.expect_response(lambda response: "/run/predict" in response.url):
            pass
    assert page.evaluate("() => [reruns, stirring.size]") == [2, 1]
    page.unroute_all(behavior="wait")
    choose_preset(page, "sequence")
    still(page, 3)
    until(page, lambda: len(requests(context)) == 4)
    request_list = requests(context)[3].speculation
    assert request_list.expansion == (1,) and request_list.routing == "audition"


def test_a_change_stops_the_run_at_hand_and_a_wrong_one_does_not(
    long: tuple[str, Context], browser_page: OpenPage, verdicts: Verdicts
) -> None:
    url, context = long
    worker: Any = context.hub.worker
    page = unfold_settings(browser_page(url))
    page.evaluate(WATCH_HAND)
    page.get_by_label("Run on change").check()
    page.click("#live-run")
    wait_notice(page, "Writing: ")
    own = session_of_the_only_run(context)
    number_box(page, "sampling-top_p").fill("7")
    page.locator("#live-validity").get_by_text("top_p is 7").wait_for()
    still(page, 1)
    until(page, lambda: verdicts(own) == [False])
    assert len(worker.runs) == 1 and not worker.runs[0].is_cancelled
    number_box(page, "sampling-top_p").fill("0.5")
    still(page, 2)
    until(page, lambda: len(worker.runs) == 2 and worker.runs[0].is_cancelled)
    assert not worker.runs[1].is_cancelled
    page.locator("#live-stop").press("Enter")
    wait_notice(page, "Stopped: ")
