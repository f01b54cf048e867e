"""The Compare tab in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from core.config import Request
from core.events import Event
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui import sites
from tests.ui.browser.looks import at_rest, turn_to
from tests.ui.fakes import endless, plain_twin, script_of, with_request
from tests.ui.reading import becomes, read, saved_file, words_of
from tests.ui.sites import OpenPage, Stage

pytestmark = pytest.mark.browser

TABS = ("live", "compare")
PICTURES = [f"#compare-{name}" for name in ("progress", "studies", "compared", "ratios")]
PICTURES += [f"#compare-{name}" for name in ("portions", "rounds", "rates", "texts")]
SHOWN = """() => {
  const all = (css) => [...document.querySelectorAll(css)];
  return {
    state: document.querySelector("#compare-progress .sp-study-line").innerText.includes("9 of 9"),
    rows: all("#compare-compared tbody tr").map((row) =>
      [row.querySelector(".ss-compared-open").textContent, row.lastChild.dataset.same]),
    charts: ["ratios", "portions", "rounds", "rates"].filter((name) =>
      document.querySelector(`#compare-${name} .ss-mini-svg`)),
    columns: all("#compare-texts .ss-text-column").length,
    marks: all("#compare-texts mark").length,
    markup: all("[id^=compare-] :is(img, script, iframe)").length,
  };
}"""
SPEED_UPS_CUT = """() => {
  const { right } = document.querySelector(".ss-compared-scroll").getBoundingClientRect();
  return [...document.querySelectorAll("#compare-compared td[data-key=ratio]")]
    .filter((cell) => cell.getBoundingClientRect().right > right).length;
}"""
SHOWN_PANELS = """() => [...document.querySelectorAll("[id^=compare-] .ss-panel")]
  .filter((one) => one.checkVisibility()).length"""
WHOLE = {
    "state": True,
    "rows": [["plain decoding", "base"], ["sequence", "identical"], ["specinfer", "identical"]],
    "charts": ["ratios", "portions", "rounds", "rates"],
    "columns": 3,
    "marks": 0,
    "markup": 0,
}


@pytest.fixture
def lab(stage: Stage) -> Stage:
    stage.clear()
    return stage


@pytest.fixture
def whole(stages: Callable[..., Stage]) -> Stage:
    stage = stages(())
    stage.clear()
    return stage


def compare_tab(page: Any) -> Any:
    turn_to(page, "Compare")
    page.locator("#compare-studies").get_by_text(re.compile("None yet|study")).first.wait_for()
    return sites.wait_form_settled(page)


def bar_says(page: Any, words: str) -> None:
    page.locator("#compare-progress").get_by_text(words).first.wait_for()


def press(page: Any, name: str) -> None:
    page.locator("#compare-progress").get_by_role("button", name=name).click()


def tick(page: Any, *names: str) -> None:
    boxes = page.locator("#compare-configurations")
    for name in ("sequence", "specinfer", "minions"):
        boxes.get_by_label(name, exact=True).set_checked(name in names)


def few_tokens(page: Any) -> None:
    page.get_by_role("button", name="Sampling").last.click()
    sites.wait_usable(page, page.locator("#compare-max_new_tokens input")).fill("8")


def hostile_differing(request: Request, run_id: str) -> list[Event]:
    """Plain decoding differs from other runs at token 3, counted from 0."""
    events = synthetic_run(8, run_id=run_id, hostile=True)
    events[0] = with_request(events[0], request)
    return events if request.speculation.drafters else plain_twin(events, 0.5, 3)


def test_a_comparison_from_form_to_live(whole: Stage, browser_page: OpenPage, axe: Any) -> None:
    url, context = whole.play(script_of(8), slowdown=0.2)
    page = compare_tab(sites.wait_ready(browser_page(url, forgiven=sites.LEAVING)))
    tick(page)
    page.click("#compare-begin")
    bar_says(page, "configurations is []: it must be 1 to 5")
    tick(page, "sequence", "specinfer")
    few_tokens(page)
    page.click("#compare-begin")
    becomes(page, SHOWN, WHOLE)
    bar_says(page, "Complete")
    at_rest(page)
    assert not sites.overflows(page)
    assert axe(page, *PICTURES) == []
    sites.shot(page, "compare-1280-light")
    (study,) = context.store.studies.studies()

    for name in ("compared", "ratios", "portions", "texts"):
        picture = page.locator(f"#compare-{name}")
        caption = " ".join(picture.locator(".ss-words").text_content().split())
        file, content = saved_file(page, picture.get_by_role("button", name="SVG").click)
        assert file == f"specscope-{name}.svg"
        assert caption and caption in words_of(content), name
    file, content = saved_file(page, picture.get_by_role("button", name="PNG").click)
    assert file == "specscope-texts.png" and content.startswith(b"\x89PNG")
    page.locator("#compare-rounds").get_by_role("button", name="as a table").click()
    page.locator("#compare-rounds .ss-table").get_by_text("specinfer").first.wait_for()
    page.reload()  # the address names the tab
    becomes(page, SHOWN, WHOLE)

    page.locator("#compare-compared").get_by_role("button", name="specinfer", exact=True).click()
    sites.wait_notice(page, "Finished: ", "sessions")
    sites.wait_notice(page, "Made with specinfer", "sessions")
    page.locator("#sessions-about").get_by_text("It was made for a comparison: ").wait_for()
    sites.run_tools(page).click("#sessions-study")
    bar_says(page, "Complete")
    page.locator("#compare-compared").get_by_role("button", name="Open sequence in Live").click()
    sites.wait_notice(page, "These settings are in the form now")
    becomes(page, "() => document.querySelector('#preset input').value.split(' (')[0]", "sequence")
    context.store.studies.delete(study.study_id)
    turn_to(page, "Sessions")
    sites.run_tools(page).click("#sessions-study")
    page.locator("#sessions-about").get_by_text("was deleted").wait_for()
    page.locator("#sessions-study").wait_for(state="hidden")


def test_on_a_narrow_page_hostile_texts_differ_and_past_comparisons_go(
    lab: Stage, browser_page: OpenPage, axe: Any
) -> None:
    url, context = lab.play(script_of(8), slowdown=0.0)
    page = compare_tab(sites.wait_ready(browser_page(url, width=390, dark=True)))
    tick(page, "sequence", "specinfer")
    few_tokens(page)
    page.click("#compare-begin")
    becomes(page, SHOWN, WHOLE)
    at_rest(page)
    assert not sites.overflows(page)
    assert axe(page, *PICTURES) == []
    becomes(page, SPEED_UPS_CUT, 0)
    sites.shot(page, "compare-390-dark")

    lab.worker.set_script(hostile_differing, slowdown=0.0)
    page.fill("#compare-prompt textarea", "\n".join(HOSTILE_TEXTS)[:2000])
    page.click("#compare-begin")
    differing = [["plain decoding", "base"], ["sequence", "bug"], ["specinfer", "bug"]]
    becomes(page, SHOWN, {**WHOLE, "rows": differing, "marks": 2})
    table = page.locator("#compare-compared")
    table.get_by_text("differs: a bug").first.wait_for()
    table.get_by_text("Differs at token 4: a bug").first.wait_for()
    assert not sites.overflows(page)
    sites.shot(page, "compare-differs")

    listed = page.locator("#compare-studies")
    listed.get_by_role("button", name=re.compile("^Open .*Italian")).click()
    bar_says(page, "Italian")
    becomes(page, SHOWN, WHOLE)
    listed.get_by_role("button", name=re.compile("^Delete .*Italian")).click()
    listed.get_by_role("button", name=re.compile("^Yes, delete .*Italian")).click()
    bar_says(page, "No comparison yet")
    bar_says(page, "Their figures appear side by side")
    becomes(page, SHOWN_PANELS, 0)  # no empty frames
    assert len(context.store.studies.studies()) == 1
    listed.get_by_role("button", name=re.compile("^Open ")).click()
    bar_says(page, "Complete")

    becomes(page, SHOWN, {**WHOLE, "rows": differing, "marks": 2})
    at_rest(page)
    take = page.get_by_role("button", name="Open specinfer in Live")
    take.scroll_into_view_if_needed()
    assert read(page, "() => scrollY > 300")
    take.click()
    sites.wait_notice(page, "These settings are in the form now")
    sites.in_sight(page, "#prompt textarea", "#live-run")


# Collects in `window.apart` the pairs in which header and bar differ.
WATCHED = """() => {
  const [head, bar] = ["#header .sp-state", "#compare-progress .sp-study-words"]
    .map((css) => document.querySelector(css));
  Object.assign(window, { seen: [], apart: [] });
  const look = () => {
    const by = /\\d+\\/\\d+/.exec(head.textContent)?.[0];
    const own = /\\d+ of \\d+/.exec(bar.textContent)?.[0].replace(" of ", "/");
    if (by && window.seen.at(-1) !== by) window.seen.push(by);
    if (by && own && by !== own) window.apart.push([by, own]);
  };
  const options = { childList: true, characterData: true, subtree: true };
  for (const one of [head, bar]) new MutationObserver(look).observe(one, options);
}"""


def header_and_bar_agree(page: Any, conductor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, progress = count(1), conductor.progress
    monkeypatch.setattr(conductor, "progress", lambda: replace(progress(), done=next(counts)))
    page.evaluate(WATCHED)
    page.wait_for_function("() => window.seen.length > 2")
    assert page.evaluate("() => window.apart") == []
    monkeypatch.undo()


def test_tabs_follow_a_comparison_a_live_run_goes_first(
    lab: Stage, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(request: Request, run_id: str) -> list[Event]:
        lives = request.sampling.max_new_tokens > 100
        return (endless if lives else script_of(4))(request, run_id)

    url, context = lab.play(endless, slowdown=20.0)
    one = compare_tab(sites.wait_ready(browser_page(url, forgiven=sites.LEAVING)))
    one.click("#compare-begin")
    bar_says(one, "Running")
    one.reload()
    turn_to(one, "Compare")
    bar_says(one, "Running")
    two = compare_tab(sites.wait_ready(browser_page(url)))
    bar_says(two, "Now: plain decoding")
    for page in (one, two):
        page.locator("#header .sp-state-measuring").get_by_text("Compare 0/12").wait_for()
    sites.shot(two, "compare-running")
    press(two, "Stop")
    bar_says(two, "Stopped")
    bar_says(one, "Stopped")
    sites.until(one, lambda: not context.conductor.progress().is_active)
    for page in (one, two):
        page.locator("#header .sp-state-ready", has_text="ready").wait_for()
    lab.worker.set_script(script_of(4), slowdown=0.0)
    press(one, "Go on")
    bar_says(one, "Complete")
    bar_says(two, "Complete")  # the other browser tab polls too
    two.locator("#compare-compared tbody tr").nth(3).wait_for()
    becomes(two, "() => document.querySelectorAll('#compare-compared tbody tr').length", 4)

    lab.worker.set_script(script, slowdown=10.0)
    sites.wait_usable(one, one.locator("#compare-repeats input")).fill("50")
    one.click("#compare-begin")
    bar_says(one, "Running")
    turn_to(two, "Live")
    two.click("#live-run")
    bar_says(one, "a visitor's run goes first")
    two.locator("#live-stop").press("Enter")
    sites.wait_notice(two, "Stopped: ")
    bar_says(one, "Running")
    assert context.conductor.progress().is_active
    header_and_bar_agree(one, context.conductor, monkeypatch)
