"""Learn in a real Chromium: lessons, layout, keys, links and other models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from bench.page.playback import playback
from storage import RunQuery
from tests.synthetic import VOTE_AHEAD, synthetic_run
from tests.ui import sites
from tests.ui.browser.looks import large_type, turn_to
from tests.ui.fakes import FakeWorker, recorded
from tests.ui.live_screen import FIVE
from tests.ui.model_hosts import Loader, other_worker
from tests.ui.reading import becomes, in_looks, read, steady
from tests.ui.sites import Axe, OpenPage, Served, Stage
from ui.learn.lessons import LESSONS
from ui.server.context import Context
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair

pytestmark = pytest.mark.browser

TABS = ("live", "learn")
OURS = ("#learn-lesson", "#learn-rows", "#learn-verdict", "#learn-notice", ".sp-say")
ALL_PICTURES = ["figures", "strip", "tree", "proposals", "inspector"]
ALL_PICTURES += ["lengths", "timeline", "routing"]
THEME = {"__theme": "light"}
QUERY = "() => Object.fromEntries(new URLSearchParams(location.search))"
LESSON = """() => ({
  title: document.querySelector(".sp-lesson-title")?.innerText,
  runs: [...document.querySelectorAll(".sp-measured :is(tbody, tfoot) th")]
    .map((head) => head.innerText.replace("▸ ", "")).sort(),
})"""
ROWS = """(count) => {
  const rows = [...document.querySelectorAll(".sp-measured tbody tr")];
  const cells = rows.map((row) => [...row.cells].map((cell) => cell.innerText));
  return rows.length === count && !cells.flat().some((text) => text.includes("…")) && cells;
}"""
PICTURES = """(names) => names.filter((name) => {
  const one = document.querySelector(`#learn-${name}`);
  return one.querySelector(".ss-shell") && one.offsetParent;
})"""
MISSING = (
    """(names) => names.filter((name) => !document.querySelector(`#learn-${name}`)?.offsetParent)"""
)
STICKS_OUT = """() => {
  const { right } = document.querySelector("#learn-ask").getBoundingClientRect();
  return ["check", "show"].filter((name) =>
    document.querySelector(`#learn-${name}`).getBoundingClientRect().right > right);
}"""
TOO_WIDE = """() => [...document.querySelectorAll("#learn-scrubber button")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.innerText)"""
# Tops relative to the lesson, so that scrolling does not change them.
TOPS = """() => ["#learn-try", "#learn-moves"].map((one) => Math.round(
  document.querySelector(one).getBoundingClientRect().top
  - document.querySelector("#learn-lesson").getBoundingClientRect().top))"""
# The parts that are not wholly in the window, or are cut by their column.
CUT = """(parts) => parts.filter((part) => {
  const node = document.querySelector(part);
  const box = node.getBoundingClientRect();
  const side = node.closest("#learn-side, #learn-stage").getBoundingClientRect();
  return !(box.height > 10 && box.top >= 0 && box.bottom <= Math.min(innerHeight, side.bottom) + 1
    && box.right <= innerWidth + 1 && node.scrollWidth <= node.clientWidth + 1);
})"""
WHOLE = ("#learn-run", "#learn-try", "#learn-rows table", "#learn-moves", ".sp-look", ".sp-answer")
WHOLE += ("#learn-check", "#learn-show", "#learn-verdict", "#learn-strip", "#learn-scrubber")
WHOLE += (".sp-steps",)
TWO_LINES = """() => {
  const scroll = document.querySelector("#learn-strip .ss-scroll");
  const { lineHeight } = getComputedStyle(scroll.firstElementChild);
  return scroll.clientHeight >= 2 * parseFloat(lineHeight);
}"""
TITLES = "() => [...document.querySelectorAll('.sp-step')].map((one) => one.innerText)"
STILL = "() => document.documentElement.scrollHeight <= innerHeight"
ROUND = "() => document.querySelector('#sessions-scrubber .ss-columns').ariaValueNow"
IN_SIGHT = """() => {
  const { y } = document.querySelector("#sessions-figures").getBoundingClientRect();
  return 0 <= y && y < 400;
}"""
RATES = """() => [...document.querySelector("#learn-lengths .ss-table table")
  .querySelectorAll("tbody td:nth-child(2)")].map((cell) => cell.innerText)"""


def learn_tab(page: Any, number: int = 1) -> Any:
    turn_to(sites.wait_ready(page), "Learn")
    on_lesson(page, 1)
    # Loading the page opens lesson 1, which must not replace lesson `number` later.
    page.locator("#learn-previous:disabled").wait_for()
    return step_to(page, number)


def step_to(page: Any, number: int) -> Any:
    page.get_by_role("button", name=f"Lesson {number}: ").click()
    return on_lesson(page, number)


def on_lesson(page: Any, number: int) -> Any:
    lesson = LESSONS[number - 1]
    runs = sorted(setup.label for setup in lesson.setups)
    becomes(page, LESSON, {"title": f"{number}. {lesson.title}", "runs": runs})
    return page


def rows(page: Any, count: int) -> list[list[str]]:
    return list(read(page, ROWS, count))


def verdict(page: Any, words: str) -> None:
    page.locator("#learn-verdict").get_by_text(words).first.wait_for()


def answer(page: Any, number: object) -> None:
    page.locator("#learn-number input").fill(str(number))
    page.click("#learn-check")


def only_tick(page: Any) -> None:
    page.locator(".sp-step[aria-current] .sp-tick").wait_for()
    becomes(page, "() => document.querySelectorAll('.sp-tick').length", 1)


def copy_link(page: Any, button: str) -> dict[str, str]:
    page.locator(f"{button}:not([data-result])").wait_for()  # an earlier press is over
    page.click(button)
    page.locator(f"{button}[data-result=Copied]").wait_for()
    link = page.evaluate("() => navigator.clipboard.readText()")
    return dict(parse_qsl(urlsplit(link).query))


def test_a_lesson_is_read_run_tried_answered_and_goes_into_live(
    short: Served, browser_page: OpenPage, axe: Axe
) -> None:
    page = learn_tab(browser_page(short[0]), 3)
    verdict(page, "First run “Something to try”")
    page.click("#learn-run")
    assert [row[0] for row in rows(page, 1)] == ["▸ width 3"]
    page.locator("#learn-tree .ss-tree svg").first.wait_for()
    page.click("#learn-try")
    wide, narrow = rows(page, 2)
    becomes(page, "() => document.querySelectorAll('#learn-verdict .sp-line').length", 0)
    answer(page, 77)
    verdict(page, "Not in this run. Where to look: ")
    watch_pointed(page, "#learn-rows")
    page.click("#learn-show")
    page.wait_for_function("() => window.pointed")
    page.locator("#learn-number input").fill(str(int(narrow[2]) - int(wide[2])))
    page.locator("#learn-number input").press("Enter")
    verdict(page, "Right. ")
    only_tick(page)
    expected = [name for name in ALL_PICTURES if name in LESSONS[2].pictures]
    for look in in_looks(page):
        becomes(page, PICTURES, expected, ALL_PICTURES)
        assert page.evaluate(STICKS_OUT) == [], look
        assert not sites.overflows(page), look
        if "1280" in look:
            assert not axe(page, *OURS), look
        sites.shot(page, f"learn-{look}")
    page.click("#learn-into-live")
    sites.wait_notice(page, "These settings are in the form now")
    read(page, "() => document.querySelector('#prompt textarea').value.includes('small village')")


def test_every_lesson_is_one_screen_in_which_nothing_moves(
    short: Served, stage: Stage, browser_page: OpenPage
) -> None:
    page = learn_tab(browser_page(short[0], still=True), 1)
    page.set_viewport_size({"width": 1280, "height": 800})
    every_lesson_is_one_screen_with_its_picture_and_its_question(page)
    for number in (3, 5):
        the_tree_keeps_its_height_after_a_run_and_a_wrong_answer(page, number)
    nothing_moves_when_a_run_comes_and_the_place_of_the_answer_is_shown(page, stage)
    events = synthetic_run(12, seed=5, drafters=FIVE, mechanisms=VOTE_AHEAD)
    stage.play(playback(events))
    all_depths_of_a_vote_are_in_sight_in_its_lesson(page, stage)


def every_lesson_is_one_screen_with_its_picture_and_its_question(page: Any) -> None:
    assert page.evaluate(TITLES) == [f"{i} {one.short}" for i, one in enumerate(LESSONS, 1)]
    for number in range(1, len(LESSONS) + 1):
        step_to(page, number)
        page.locator("#learn-strip .ss-panel").wait_for()
        expected = [name for name in LESSONS[number - 1].pictures if name != "requests"]
        becomes(page, MISSING, [], expected)
        becomes(page, CUT, [], list(WHOLE))
        assert page.evaluate(STILL), number
        assert not sites.overflows(page), number
    # Lesson 8 has long texts about a run and an answer.
    step_to(page, 8)
    page.click("#learn-run")
    sites.wait_notice(page, "Finished: ", "learn")
    verdict(page, "in each of 3 repeats")
    read(page, TWO_LINES)
    answer(page, 77)
    verdict(page, "Not in this run. Where to look: ")
    read(page, TWO_LINES)


# The tree's height, and which buttons, inputs and counts of hidden levels are cut.
TREE = """() => {
  const box = (node) => node.getBoundingClientRect();
  const height = box(document.querySelector("#learn-tree .ss-viewport")).height;
  const tools = box(document.querySelector("#learn-tree .ss-tools")).left;
  const mores = document.querySelector("#learn-tree .ss-mores");
  const css = "#learn-stage :is(button, .ss-more, input), #learn-side :is(#learn-run, #learn-try)";
  const stage = box(document.querySelector("#learn-stage"));
  const cut = [...document.querySelectorAll(css)].filter((one) => {
    if (!one.checkVisibility() || one.closest(".ss-tools")) return false;
    const { left, right, top, bottom } = box(one);
    if (one.closest("#learn-tree") && right > tools) return true;
    if (one.closest(".ss-mores") && left < box(mores).left - 1) return true;
    return top < 0 || bottom > stage.bottom + 1 || right > innerWidth + 1;
  });
  return { height, cut: cut.map((one) => one.innerText || one.id) };
}"""


def the_tree_keeps_its_height_after_a_run_and_a_wrong_answer(page: Any, number: int) -> None:
    step_to(page, number)
    page.click("#learn-run")
    rows(page, 1)
    if number == 3:  # lesson 3's question is about both runs
        page.click("#learn-try")
        rows(page, 2)
    sites.wait_notice(page, "Finished: ", "learn")
    sites.wait_drawn(page, "learn")
    tree_has_room(page)
    answer(page, 77)
    verdict(page, "Not in this run. Where to look: ")
    tree_has_room(page)
    large_type(page, True)
    tree_has_room(page, 90)
    large_type(page, False)


def tree_has_room(page: Any, least: int = 120) -> None:
    for width, height in ((1280, 800), (1366, 768)):
        page.set_viewport_size({"width": width, "height": height})
        found = steady(page, TREE)
        assert found["height"] >= least and not found["cut"], (width, height, found)


VOTE_CUT = """() => {
  const pane = document.querySelector("#learn-dock .sp-pane-who").getBoundingClientRect();
  const rows = document.querySelector("#learn-proposals .ss-scroll").getBoundingClientRect();
  const cut = (part, box) => {
    const { right, bottom, height } = part.getBoundingClientRect();
    return height < 10 || right > box.right + 0.5 || bottom > box.bottom + 0.5;
  };
  const all = [...document.querySelectorAll("#learn-proposals .ss-votes :is(td, th)")]
    .filter((one) => cut(one, rows)).map((one) => one.textContent);
  const parts = [".ss-vote-said", ".ss-mini-svg"].map((css) => `#learn-proposals ${css}`);
  return [...all, ...parts.filter((css) => cut(document.querySelector(css), pane))];
}"""
DEPTHS = "() => document.querySelectorAll('#learn-proposals .ss-votes thead th').length - 1"


def all_depths_of_a_vote_are_in_sight_in_its_lesson(page: Any, stage: Stage) -> None:
    step_to(page, 4)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click("#learn-run")
    rows(page, 1)
    sites.wait_notice(page, "Finished: ", "learn")
    sites.wait_drawn(page, "learn")
    view = sites.desk_of(stage.context, "learn").frame().view
    number = max(view.rounds, key=lambda line: line.depth).number
    page.locator(f"#learn-scrubber [data-r='{number}']").click()
    read(page, f"() => ({DEPTHS})() >= 4")
    becomes(page, VOTE_CUT, [])


def nothing_moves_when_a_run_comes_and_the_place_of_the_answer_is_shown(
    page: Any, stage: Stage
) -> None:
    step_to(page, 2)
    for width, height in ((1280, 800), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        before = steady(page, TOPS)
        sites.ran_after(page, stage.context, lambda: page.click("#learn-run"), "learn")
        rows(page, 1)
        assert steady(page, TOPS) == before, "room for the rows was reserved"
        assert page.evaluate(TOO_WIDE) == [], "every button has room for its words"
        page.locator("#learn-docked [data-name=why]").click()
        watch_pointed(page, "#learn-lengths")
        page.click("#learn-show")
        page.wait_for_function("() => window.pointed")
        sites.in_sight(page, "#learn-lengths")
        assert not sites.overflows(page)
        sites.shot(page, f"learn-2-{width}")


def watch_pointed(page: Any, where: str) -> None:
    page.evaluate(
        """(where) => {
          window.pointed = false;
          const place = document.querySelector(where);
          const look = () => { window.pointed ||= place.classList.contains("sp-pointed"); };
          new MutationObserver(look).observe(place, { attributes: true });
        }""",
        where,
    )


def turns_by_keys(page: Any) -> None:
    page.locator("#learn-strip .ss-panel").wait_for()
    becomes(page, PICTURES, [*LESSONS[0].pictures], ALL_PICTURES)
    body = page.locator("body")
    body.press("n")
    on_lesson(page, 2)
    becomes(page, QUERY, {**THEME, "lesson": "2"})
    body.press("r")
    rows(page, 1)
    body.press("p")
    on_lesson(page, 1)
    step = page.get_by_role("button", name="Lesson 4: ")
    step.focus()
    step.press("Enter")
    on_lesson(page, 4)
    becomes(page, "() => document.activeElement.getAttribute('aria-current')", "step")
    page.get_by_role("radio", name="ssm-stories").wait_for()
    body.press("p")
    on_lesson(page, 3)
    page.click("#learn-previous")
    on_lesson(page, 2)
    assert [row[0] for row in rows(page, 1)] == ["▸ a dialogue"], "the run is still there"
    sites.wait_notice(page, "Finished: ", "learn")


def finishes_by_its_table(page: Any, context: Context) -> None:
    page.click("#learn-run")
    rows(page, 1)
    sites.wait_drawn(page, "learn")
    page.click("#learn-try")
    assert rows(page, 2)[1][0].startswith("▸ ")
    sites.wait_drawn(page, "learn")
    first = page.locator(".sp-measured .sp-again").first
    first.focus()
    page.keyboard.press("Enter")
    page.locator(".sp-measured .sp-selected").get_by_text("▸ always 8").wait_for()
    becomes(page, "() => document.activeElement.innerText", "▸ always 8")
    panel = page.locator("#learn-lengths")
    panel.locator(".ss-tools").hover()
    panel.get_by_role("button", name="as a table").click()
    panel.locator("caption").get_by_text("Rate by position", exact=True).wait_for()
    # The pictures follow the chosen row a moment later.
    rates = context.store.runs(RunQuery()).rows[1].stats.acceptance_rate_per_position
    becomes(page, RATES, [f"{100 * rate:.1f} %" for rate in rates])
    answer(page, f"{100 * rates[2]:.1f}")
    verdict(page, "Lesson 6 is finished.")
    only_tick(page)


def test_lessons_by_keys_and_an_address_that_leads_back(
    stages: Callable[..., Stage], browser_page: OpenPage
) -> None:
    whole = stages(())
    whole.clear()
    url, context = whole.play(recorded(8))
    page = sites.wait_ready(browser_page(url, forgiven=sites.LEAVING))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert page.evaluate(QUERY) == THEME
    turn_to(page, "Learn")
    on_lesson(page, 1)
    becomes(page, QUERY, {**THEME, "lesson": "1"})
    turns_by_keys(page)
    page.click("#learn-next")
    on_lesson(page, 3)
    step_to(page, 6)
    finishes_by_its_table(page, context)
    sites.shot(page, "learn-6-table")
    large_type(page, True)
    shown = sites.desk_of(context, "learn").frame()
    place = {"run": shown.run_id, "round": str(shown.selected_round + 1)}
    assert copy_link(page, "#learn-copy") == {"lesson": "6", **place, "large": "1"}

    turn_to(page, "Sessions")
    becomes(page, QUERY, {**THEME, "tab": "sessions"})
    assert page.locator("#sessions-copy").is_hidden()
    page.locator(".sp-open").first.click()
    sites.wait_notice(page, "Finished: ", "sessions")
    run_id = context.store.runs(RunQuery()).rows[0].run_id
    read(page, "() => /^[1-8]$/.test(new URLSearchParams(location.search).get('round'))")
    page.locator("#sessions-scrubber [data-r='2']").click()
    becomes(page, ROUND, "3")
    becomes(page, QUERY, {**THEME, "run": run_id, "round": "3"})
    assert copy_link(page, "#sessions-copy") == {"run": run_id, "round": "3", "large": "1"}
    large_type(page, False)
    turn_to(page, "Live")
    becomes(page, QUERY, THEME)

    page.goto(f"{url}?__theme=light&run={run_id}&round=3")
    sites.wait_notice(page, "you are at round 3 of", "sessions")
    page.get_by_role("tab", name="Sessions", selected=True).wait_for()
    becomes(page, ROUND, "3")
    page.locator(".sp-selected .sp-open").wait_for()
    becomes(page, QUERY, {**THEME, "run": run_id, "round": "3"})
    read(page, IN_SIGHT)  # the run is in sight, not the list
    turn_to(page, "Learn")
    on_lesson(page, 6)  # the lesson that the visitor had open, with its tick
    only_tick(page)


def test_a_lesson_follows_models_that_were_loaded(tmp_path: Path, browser_page: OpenPage) -> None:
    loader = Loader(lambda: FakeWorker(recorded(8)))
    model_host = ModelHost(other_worker("small"), loader, ModelPair("other", ("small",)))
    with sites.serve_page(tmp_path, model_host, ("learn", "models")) as (url, _):
        page = learn_tab(browser_page(url), 4)
        verdict(page, "needs 2 small models (SSMs), and only one is loaded")
        page.locator("#learn-run[disabled]").wait_for()
        turn_to(page, "Models")
        page.locator("table.sp-offers").wait_for()
        page.click("#models-load")
        sites.wait_notice(page, re.compile(r"Loaded in "), "models")
        turn_to(page, "Learn")
        verdict(page, "Run the example first.")
        page.get_by_role("radio", name="ssm-stories").wait_for()
        page.click("#learn-run")
        rows(page, 1)
