"""The Tune tab in a real Chromium."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.config import Request
from tests.ui import sites
from tests.ui.browser.looks import frames, turn_to
from tests.ui.fakes import endless, script_of
from tests.ui.reading import becomes, in_looks, read, saved_file, texts, words_of
from tests.ui.sites import OpenPage, Stage
from ui.words.settings import field_label

pytestmark = pytest.mark.browser
TABS = ("live", "tune")
CELLS = "#tune-speed td[data-place]"
ONCE = "Highest measured: "
"""The words before the best point's name if each point was run once."""
PARTS = [f"#tune-{name}" for name in ("speed", "length", "points", "point", "found")]
PARTS += ["#tune-plan", "#tune-progress"]
DRAWN = """() => {
  const count = (css) =>
    [...document.querySelectorAll(css)].filter((one) => one.checkVisibility()).length;
  return {
    measured: count("#tune-speed td[data-state=measured]"),
    refused: count("#tune-speed td[data-state=refused]"),
    dots: count("#tune-speed .ss-sweep-dot"),
    rows: count("#tune-points tbody tr"),
  };
}"""
FOCUSED = "() => document.activeElement.dataset.place"
SPEEDS = """(way) => document.querySelector(`#tune-points th[aria-sort=${way}]`) &&
  [...document.querySelectorAll("#tune-points tbody tr")].map((row) => row.cells[3].innerText)"""
KEYS = {
    "ArrowRight": "1",
    "ArrowDown": "4",
    "ArrowLeft": "3",
    "ArrowLeft ": "3",
    "End": "5",
    "Control+End": "8",
    "ArrowDown ": "8",
    "ArrowUp": "5",
    "Home": "3",
}
"""Keys in the order of their presses, each with the place that it leads to. The space after a name
makes a second press of the same key a different entry."""


@pytest.fixture
def tuning(stage: Stage) -> Stage:
    stage.clear()
    stage.play(script_of(4), slowdown=0.0)
    return stage


def tune_tab(page: Any) -> Any:
    turn_to(page, "Tune")
    plan_says(page, "points and plain decoding")
    return page


def type_prompts(page: Any, text: str) -> None:
    page.locator("#tune-source").get_by_text("typed").click()
    sites.wait_usable(page, sites.text_box(page, "tune-typed")).fill(text)


def plan_says(page: Any, words: str) -> None:
    page.locator("#tune-plan").get_by_text(words).first.wait_for()


def bar_says(page: Any, words: str | re.Pattern[str]) -> None:
    page.locator("#tune-progress").get_by_text(words).first.wait_for()


def press(page: Any, name: str) -> None:
    page.locator("#tune-progress").get_by_role("button", name=name).click()


def grid_shows(page: Any, runs: int, found: str = "Best: ", **counts: int) -> None:
    bar_says(page, f"{runs} of {runs}")
    bar_says(page, "Complete")
    becomes(page, DRAWN, {"measured": 0, "refused": 0, "dots": 0, "rows": 0, **counts})
    page.locator("#tune-found").get_by_text(found).wait_for()


def point_is(page: Any, words: str) -> None:
    page.locator("#tune-point").get_by_text(words, exact=True).wait_for()


def axis(page: Any, number: int, field: str, values: str = "") -> None:
    sites.choose(page, f"tune-axis-{number}", field if field == "none" else field_label(field))
    if values:
        page.locator(f"#tune-values-{number}").wait_for()
        sites.wait_form_settled(page)
        sites.text_box(page, f"tune-values-{number}").fill(values)


def three_by_three(page: Any, lengths: str = "2, 4, 8") -> None:
    axis(page, 1, "speculation_length", lengths)
    axis(page, 2, "expansion", "1 | 1,1,3 | 1,2,2")
    axis(page, 3, "none")


def goes_by_keys(page: Any) -> None:
    page.locator(f"{CELLS}[tabindex='0']").focus()
    page.keyboard.press("Control+Home")
    becomes(page, FOCUSED, "0")
    for key, place in KEYS.items():
        page.keyboard.press(key.strip())
        becomes(page, FOCUSED, place)
    page.keyboard.press("Enter")
    point_is(page, "speculation length 4, expansion 1")
    becomes(page, FOCUSED, "3")  # the focus stays
    page.locator(".ss-tip").get_by_text("speed-up", exact=True).wait_for()
    becomes(page, f"() => document.querySelectorAll(\"{CELLS}[tabindex='0']\").length", 1)


PREDICT = "**/run/predict**"
CLICK = """async (places) => {
  const frame = () => new Promise(requestAnimationFrame);
  for (const at of places) {
    const place = () => document.querySelector(`#tune-speed td[data-place='${at}']`);
    while (!place()) await frame();  // being drawn
    place().click();
    await frame();
  }
}"""


def last_choice_stays(page: Any, *places: int) -> None:
    """The server answers the last choice first."""
    held: list[Any] = []

    def hold(route: Any) -> None:
        if '"point"' in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route(PREDICT, hold)
    page.evaluate(CLICK, list(places))
    sites.until(page, lambda: len(held) == len(places))
    for route in reversed(held):
        with page.expect_response(lambda one, route=route: one.request == route.request):
            route.continue_()
    page.unroute(PREDICT)
    frames(page)
    last = page.locator(f"#tune-speed td[data-place='{places[-1]}']").get_attribute("aria-label")
    becomes(page, "() => document.querySelector('#tune-point h2').textContent", last.split(":")[0])


def sorts_and_chooses(page: Any) -> None:
    head = page.locator("#tune-points").locator("thead button", has_text="speed-up")
    head.click()
    *speeds, plain = read(page, SPEEDS, "descending")
    speeds = [float(text[:-1]) for text in speeds]
    assert speeds == sorted(speeds, reverse=True) and plain == "–", "plain decoding comes last"
    head.click()
    read(page, SPEEDS, "ascending")
    page.locator("#tune-points tbody tr").first.get_by_role("button").focus()
    page.keyboard.press("Enter")
    read(page, "() => document.querySelector('#tune-points tbody tr').ariaCurrent")


def saves_files(page: Any, rows: int, runs: int) -> None:
    for name, lines in (("points", rows), ("points", rows), ("runs", runs)):  # one file twice
        file, content = saved_file(page, lambda name=name: page.click(f"#tune-csv-{name}"))
        assert file.endswith(".csv")
        assert len(content.decode("utf-8").splitlines()) == 1 + lines
    button = page.locator("#tune-speed").get_by_role("button", name="as SVG")
    file, content = saved_file(page, button.click)
    assert file == "specscope-grid-speed.svg"
    assert b"speculation length" in content and b"x</text>" in content
    button = page.locator("#tune-length").get_by_role("button", name="as SVG")
    assert saved_file(page, button.click)[0] == "specscope-grid-tokens-per-pass.svg"


def test_a_grid_from_form_to_a_run_in_live(tuning: Stage, browser_page: OpenPage, axe: Any) -> None:
    page = tune_tab(browser_page(tuning.url))
    assert page.locator("#tune-use").is_disabled(), "there is no point yet"
    plan_says(page, "8 points and plain decoding, 8 prompts")
    three_by_three(page)
    type_prompts(page, "Once\nTwice\nThrice")
    plan_says(page, "3 prompts")
    form_scrolls_with_the_page(page)
    page.click("#tune-start")
    grid_shows(page, 30, measured=9, rows=10)
    page.locator("#tune-point h2").get_by_text("speculation length ").wait_for()
    page.locator("#tune-point").get_by_text("tokens / pass").first.wait_for()
    for look in in_looks(page, (390, True), (1280, False)):
        assert not sites.overflows(page), look
        assert not axe(page, *PARTS), look
        sites.shot(page, f"tune-{look}")
    goes_by_keys(page)
    last_choice_stays(page, 8, 4, 1)
    sorts_and_chooses(page)
    saves_files(page, rows=10, runs=30)

    page.locator("#tune-point").get_by_role("button", name=re.compile("prompt 2")).first.click()
    page.locator("#sessions-notice").get_by_text("Finished: ").wait_for()
    turn_to(page, "Tune")
    page.locator("#tune-speed td[aria-label*='speculation length 8, expansion 1,2,2:']").click()
    point_is(page, "speculation length 8, expansion 1,2,2")
    page.locator("#tune-length td[aria-selected=true][data-place='8']").wait_for()
    current = "() => document.querySelector('#tune-points tr[aria-current=true] td').innerText"
    becomes(page, current, "8")
    page.click("#tune-use")
    page.locator("#live-notice").get_by_text("These settings are in the form now").wait_for()
    sites.in_sight(page, "#prompt textarea", "#live-run")
    becomes(page, "() => document.querySelector('#prompt textarea').value", "Once")
    sites.open_drawer(page)
    page.get_by_text("Every setting of the engine").click()
    expansion = "() => document.querySelector('#field-expansion :is(input, textarea)').value"
    becomes(page, expansion, "1,2,2")


AREAS = """() => [...document.querySelectorAll(".sp-form-side, .sp-form-side .column")]
  .filter((one) => one.scrollHeight > one.clientHeight + 1).map((one) => one.className)"""


def form_scrolls_with_the_page(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollHeight > innerHeight")
    assert page.evaluate(AREAS) == []


def fast_at_nine(request: Request, run_id: str) -> list[Any]:
    *events, end = script_of(4)(request, run_id)
    quick = request.speculation.drafters and request.speculation.max_tree_nodes == 9
    speed = end.stats.tokens_per_second * (2 if quick else 1)
    return [*events, replace(end, stats=replace(end.stats, tokens_per_second=speed))]


# The number of cells that keys reach, and the number of changes to the page.
MOVES = """() => {
  const been = new Set();
  const watch = new MutationObserver(() => {});
  const all = { subtree: true, childList: true, attributes: true, characterData: true };
  watch.observe(document.body, all);
  const made = (key) => new KeyboardEvent("keydown", { key, bubbles: true });
  const press = (key) => document.activeElement.dispatchEvent(made(key));
  for (let i = 0; i < 20; i += 1) {
    press(["ArrowRight", "ArrowDown", "ArrowLeft"][i % 3]);
    been.add(document.activeElement);
  }
  press("Enter");
  return [been.size, watch.takeRecords().length];
}"""


def points_that_cannot_run_stay(page: Any) -> None:
    three_by_three(page, lengths="2, 99")
    axis(page, 1, "speculation_length")  # a field that is chosen again keeps its values
    plan_says(page, "cannot run: speculation length 99")
    type_prompts(page, "Once\nTwice")
    plan_says(page, "3 points and plain decoding, 2 prompts")
    assert sites.text_box(page, "tune-values-1").input_value() == "2, 99"
    page.click("#tune-start")
    grid_shows(page, 8, measured=3, refused=3, rows=7)
    assert texts(page, f"{CELLS}[data-state=refused]", 3)[0] == "✕"
    first = texts(page, "#tune-points tr[data-refused]", 3)[0]
    assert "✕" in first and "cannot run" in first and "speculation_length is 99" in first


def refused_points_are_in_table_and_files(page: Any) -> None:
    points = page.locator("#tune-points")
    points.locator("thead button", has_text="speed-up").click()
    read(page, SPEEDS, "descending")
    read(
        page, "() => 'refused' in [...document.querySelectorAll('#tune-points tr')].at(-1).dataset"
    )
    _, drawing = saved_file(page, points.get_by_role("button", name="as SVG").click)
    words = words_of(drawing)
    assert "cannot run" in words and "speculation_length" in words
    assert re.search(r"\d+ points?, \d+ prompts?, 1 repeat; temperature 0, \d+ tokens", words)
    assert "Press a column" not in words
    _, picture = saved_file(page, points.get_by_role("button", name="as PNG").click)
    assert len(picture) > 2000
    sites.shot(page, "tune-refused-1280")


def a_third_axis_opens_at_the_best_point(page: Any) -> None:
    type_prompts(page, "Once")
    axis(page, 1, "speculation_length", "2, 4, 8")
    axis(page, 3, "max_tree_nodes", "4, 9")
    plan_says(page, "18 points")
    page.click("#tune-start")
    grid_shows(page, 19, ONCE, measured=9, rows=19)
    for picture in ("#tune-speed", "#tune-length"):  # both open at the best point's value
        page.locator(picture).get_by_text("at max tree nodes 9").wait_for()
    page.locator("#tune-speed td[data-mark=best]").wait_for()
    for votes in ("4", "9"):
        page.locator("#tune-speed select").select_option(votes)
        page.locator("#tune-length").get_by_text(f"at max tree nodes {votes}").wait_for()
        texts(page, f"#tune-speed td[aria-label*='max tree nodes {votes}']", 9)
    as_table = page.locator("#tune-speed").get_by_role("button", name="as a table")
    as_table.click()
    texts(page, "#tune-speed .ss-table tbody tr", 9)
    as_table.click()


def one_axis_is_a_line(page: Any) -> None:
    axis(page, 3, "none")
    axis(page, 2, "none")
    axis(page, 1, "speculation_length", "2, 4, 8, 99")
    plan_says(page, "cannot run: speculation length 99")
    page.click("#tune-start")
    grid_shows(page, 4, ONCE, dots=3, rows=5)
    becomes(
        page,
        """() => ["sweep-line", "mini-level"].map((name) =>
          document.querySelectorAll(`#tune-speed .ss-${name}`).length)""",
        [1, 1],
    )
    page.locator("#tune-speed .ss-sweep-dot[tabindex='0']").focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    point_is(page, "speculation length 4")
    sites.shot(page, "tune-line-1280")


def keys_change_few_of_many_points(page: Any) -> None:
    axis(page, 1, "speculation_length", "1, 2, 3, 4, 5")
    axis(page, 2, "max_tree_nodes", ", ".join(map(str, range(2, 8))))
    plan_says(page, "30 points and plain decoding, 1 prompt, 1 repeat: 31 runs")
    page.click("#tune-start")
    grid_shows(page, 31, ONCE, measured=30, rows=31)
    assert not sites.overflows(page)
    page.locator(f"{CELLS}[tabindex='0']").focus()
    cells, changed = page.evaluate(MOVES)
    assert cells >= 7, "the keys go from cell to cell"
    assert changed <= 3 * 21, "a key changes the cell it leaves and the one it enters, not all"
    page.locator("#tune-points").locator("thead button", has_text="speed-up").click()
    assert len(read(page, SPEEDS, "descending")) == 31
    sites.shot(page, "tune-30-1280")


def test_grids_of_one_to_three_axes_and_what_cannot_run(
    tuning: Stage, browser_page: OpenPage
) -> None:
    page = tune_tab(browser_page(tuning.url, forgiven=sites.LEAVING))
    points_that_cannot_run_stay(page)
    refused_points_are_in_table_and_files(page)
    tuning.play(fast_at_nine, slowdown=0.0)
    a_third_axis_opens_at_the_best_point(page)
    one_axis_is_a_line(page)
    keys_change_few_of_many_points(page)


def slow_at_the_end(request: Request, run_id: str) -> list[Any]:
    slow = request.prompt == "long" and request.speculation.speculation_length == 8
    return (endless if slow else script_of(4))(request, run_id)


def test_a_grid_from_a_file_is_stopped_gone_on_with_and_deleted(
    tuning: Stage, browser_page: OpenPage, tmp_path: Path
) -> None:
    page = tune_tab(browser_page(tuning.url, forgiven=sites.LEAVING))
    three_by_three(page)
    page.locator("#tune-source").get_by_text("a file").click()
    plan_says(page, "a .txt or .jsonl file")
    broken, evil = tmp_path / "broken.jsonl", tmp_path / "evil.jsonl"
    broken.write_text('{"prompt": "fine"}\n' + "[" * 100_000, encoding="utf-8")
    page.locator("#tune-file input[type=file]").set_input_files(broken)
    plan_says(page, "line 2 is")
    page.locator("#tune-start[disabled]").wait_for()
    text = "<img src=x onerror=window.hacked=1>\u202e"
    lines = [json.dumps({"prompt": one, "id": text, "domain": text}) for one in (text, "long")]
    evil.write_text("\n".join(lines), encoding="utf-8")
    page.locator("#tune-file").get_by_label(re.compile("clear|remove", re.I)).first.click()
    page.locator("#tune-file input[type=file]").set_input_files(evil)
    plan_says(page, "2 prompts")

    tuning.play(slow_at_the_end, slowdown=2.0)
    page.click("#tune-start")
    bar_says(page, re.compile(r"1\d of 20"))
    bar_says(page, "left")
    page.locator("#tune-found").get_by_text("Best so far").wait_for()
    page.reload()
    turn_to(page, "Tune")
    press(page, "Stop")
    bar_says(page, "Stopped")
    assert 10 < tuning.context.conductor.progress().done < 20
    page.locator("#tune-found").get_by_text("Best so far").wait_for()
    tuning.play(script_of(4), slowdown=0.0)
    press(page, "Go on")
    grid_shows(page, 20, measured=9, rows=10)
    page.locator("#tune-point").get_by_text("<img src=x").first.wait_for()
    assert page.evaluate("() => window.hacked") is None
    (study,) = tuning.context.store.studies.studies("tune")

    result = "() => document.querySelector('#tune-found').innerText"
    before = page.evaluate(result)
    page.reload()
    turn_to(page, "Tune")
    grid_shows(page, 20, measured=9, rows=10)
    becomes(page, result, before)
    page.locator("#tune-use:not([disabled])").wait_for()
    tuning.context.store.studies.delete(study.study_id)
    bar_says(page, "This study was deleted")
    page.locator("#tune-point").get_by_text("Choose a point").wait_for()
    page.locator("#tune-use[disabled]").wait_for()
