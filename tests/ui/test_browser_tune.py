"""Tune in a real Chromium: from the form to maps, lines, table, files, and a point into Live."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.page.looks import at_rest, turn_to
from core.config import Request
from tests.ui.fakes import scripted
from tests.ui.sites import (
    OpenPage,
    Stage,
    appeared,
    choose,
    in_sight,
    overflows,
    shot,
    text_box,
    until,
    usable,
)
from ui.context import Context

pytestmark = pytest.mark.browser
CELLS = "#tune-speed td[data-place]"
DOTS = "#tune-speed .ss-sweep-dot"


@pytest.fixture
def tuning(stage: Stage) -> Stage:
    """The whole page with an empty log, no studies, and runs that take no time."""
    stage.clear()
    stage.play(scripted(4), speed=0.0)
    return stage


def opened(page: Any) -> Any:
    """The Tune tab, ready to start."""
    turn_to(page, "Tune")
    page.locator("#tune-plan").get_by_text("points and plain decoding").wait_for()
    return page


def typed(page: Any, text: str) -> None:
    page.locator("#tune-source").get_by_text("typed").click()
    usable(page, text_box(page, "tune-typed")).fill(text)


def planned(page: Any, words: str) -> None:
    page.locator("#tune-plan").get_by_text(words).first.wait_for()


def completed(page: Any) -> Any:
    page.locator("#tune-progress").get_by_text("Complete").wait_for()
    page.locator("#tune-found").get_by_text("Best: ").wait_for()
    # Pictures follow the words, each in a frame of its own.
    page.locator(f":is({CELLS}, {DOTS})").first.wait_for()
    at_rest(page)
    return page


def started(page: Any, text: str = "Once\nTwice\nThrice") -> Any:
    """The grid that is offered, on typed prompts, started."""
    opened(page)
    typed(page, text)
    planned(page, f"{len(text.splitlines())} prompt")
    page.click("#tune-start")
    return page


def measured(page: Any, text: str = "Once\nTwice\nThrice") -> Any:
    return completed(started(page, text))


def axis(page: Any, number: int, field: str, values: str = "") -> None:
    choose(page, f"tune-axis-{number}", field)
    if values:
        page.get_by_label(f"Values of {field}").wait_for()
        appeared(page)
        text_box(page, f"tune-values-{number}").fill(values)


def test_a_grid_from_the_form_into_live(tuning: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(tuning.url))
    assert page.locator(CELLS).count() == 9
    assert page.locator(f"{CELLS}[data-state=measured]").count() == 9
    assert page.locator("#tune-points tbody tr").count() == 10
    page.locator("#tune-point").get_by_text("speculation_length=").wait_for()
    shot(page, "tune-1280-light")
    page.locator("#tune-speed td[aria-label*='speculation_length=8, expansion=1,2,2:']").click()
    page.locator("#tune-point").get_by_text("speculation_length=8, expansion=1,2,2").wait_for()
    page.locator("#tune-length td[aria-selected=true][data-place='8']").wait_for()
    current = page.locator("#tune-points tr[aria-current=true] td").first
    until(page, lambda: current.inner_text() == "8")
    page.click("#tune-use")
    page.locator("#live-notice").get_by_text("These settings are in the form now").wait_for()
    in_sight(page, "#prompt textarea", "#live-run")
    until(page, lambda: text_box(page, "prompt").input_value() == "Once")
    page.get_by_text("Every setting of the engine").click()
    until(page, lambda: text_box(page, "field-expansion").input_value() == "1,2,2")


def test_a_deleted_grid_takes_its_point_along_in_every_tab(
    tuning: Stage, browser_page: OpenPage
) -> None:
    """Also where nothing is pressed: the tab that looks on notices by itself."""
    page = browser_page(tuning.url)
    opened(page)
    assert page.locator("#tune-use").is_disabled(), "there is no point yet"
    measured(page)
    page.locator("#tune-point h3").wait_for()
    use = page.locator("#tune-use:not([disabled])")
    use.wait_for()
    (study,) = tuning.context.store.studies.studies()
    tuning.context.store.studies.delete(study.study_id)
    page.locator("#tune-progress").get_by_text("This study was deleted").wait_for()
    page.locator("#tune-point").get_by_text("Choose a point").wait_for()
    use.wait_for(state="hidden")
    assert page.locator("#tune-use").is_disabled()


def test_arrow_keys_lead_through_the_map_and_enter_chooses(
    tuning: Stage, browser_page: OpenPage
) -> None:
    page = measured(browser_page(tuning.url))
    page.locator(f"{CELLS}[tabindex='0']").focus()
    page.keyboard.press("Control+Home")
    now = "() => document.activeElement.dataset.place"
    assert page.evaluate(now) == "0"
    for key, place in (
        ("ArrowRight", "1"),
        ("ArrowDown", "4"),
        ("ArrowLeft", "3"),
        ("ArrowLeft", "3"),
        ("End", "5"),
        ("Control+End", "8"),
        ("ArrowDown", "8"),
        ("ArrowUp", "5"),
        ("Home", "3"),
    ):
        page.keyboard.press(key)
        assert page.evaluate(now) == place, key
    page.keyboard.press("Enter")
    page.locator("#tune-point").get_by_text(
        "speculation_length=4, expansion=1", exact=True
    ).wait_for()
    assert page.evaluate(now) == "3", "the focus stays"
    page.locator(".ss-tip").get_by_text("times plain decoding's speed").wait_for()
    assert page.locator(f"{CELLS}[tabindex='0']").count() == 1


PREDICT = "**/run/predict**"
CHOICES = """async (places) => {
  for (const at of places) {
    const place = () => document.querySelector(`#tune-speed td[data-place='${at}']`);
    const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    for (let left = 100; !place() && left; left--) await rest(20);  // being drawn
    place().click();
    await rest(50);
  }
}"""


def slowly(route: Any) -> None:
    time.sleep(0.1)
    route.continue_()


def test_of_several_choices_in_a_moment_the_last_is_shown(
    tuning: Stage, browser_page: OpenPage
) -> None:
    page = measured(browser_page(tuning.url))
    head = page.locator("#tune-point h3")
    page.route(PREDICT, slowly)
    for places in ((0, 4, 8), (5, 4, 3), (8, 7, 1)):
        page.evaluate(CHOICES, list(places))
        last = page.locator(f"#tune-speed td[data-place='{places[-1]}']")
        point = str(last.get_attribute("aria-label")).split(":")[0]
        head.get_by_text(point, exact=True).wait_for()
        page.wait_for_timeout(300)
        assert head.inner_text() == point


def test_the_table_sorts_and_its_buttons_choose(tuning: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(tuning.url))
    head = page.locator("#tune-points").get_by_role("button", name="speed-up")
    head.click()
    page.locator("#tune-points th[aria-sort=descending]").wait_for()
    shown = page.locator("#tune-points tbody tr td:nth-child(4)").all_inner_texts()
    speeds = [float(text[:-1]) for text in shown[:-1]]
    assert speeds == sorted(speeds, reverse=True) and shown[-1] == "–", "plain decoding comes last"
    head.click()
    page.locator("#tune-points th[aria-sort=ascending]").wait_for()
    first = page.locator("#tune-points tbody tr").first
    first.get_by_role("button").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('#tune-points tbody tr').getAttribute('aria-current')"
    )


def test_a_run_of_a_point_opens_in_sessions(tuning: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(tuning.url))
    page.locator("#tune-point").get_by_role("button", name=re.compile("prompt 2")).click()
    page.locator("#sessions-notice").get_by_text("Finished: ").wait_for()


def test_stopped_it_goes_on_where_it_was_also_after_a_reload(
    tuning: Stage, browser_page: OpenPage
) -> None:
    tuning.play(scripted(12), speed=2.0)
    page = started(browser_page(tuning.url, forgiven=("AbortError", "network error")))
    page.locator("#tune-progress").get_by_text(re.compile(r"[1-9]\d* of 30")).wait_for()
    page.locator("#tune-progress").get_by_text("left").wait_for()
    page.reload()
    turn_to(page, "Tune")
    page.locator("#tune-progress").get_by_role("button", name="Stop").click()
    page.locator("#tune-progress").get_by_text("Stopped").wait_for()
    kept = tuning.context.conductor.progress().done
    assert 1 <= kept < 30
    page.locator("#tune-found").get_by_text("Best so far").wait_for()
    tuning.play(scripted(12), speed=0.0)
    page.locator("#tune-progress").get_by_role("button", name="Go on").click()
    completed(page)
    assert len(tuning.context.store.studies.studies("tune")) == 1


def test_a_third_axis_is_chosen_from_in_both_pictures(
    tuning: Stage, browser_page: OpenPage
) -> None:
    page = opened(browser_page(tuning.url))
    typed(page, "Once")
    axis(page, 3, "vote_nodes", "4, 9")
    planned(page, "18 points")
    page.click("#tune-start")
    completed(page)
    page.locator("#tune-length").get_by_text("at vote_nodes=4").wait_for()
    page.locator("#tune-speed select").select_option("9")
    page.locator("#tune-length").get_by_text("at vote_nodes=9").wait_for()
    nine = page.locator("#tune-speed td[aria-label*='vote_nodes=9']")
    nine.nth(8).wait_for()
    assert nine.count() == 9
    page.locator("#tune-speed").get_by_role("button", name="as a table").click()
    assert page.locator("#tune-speed .ss-table tbody tr").count() == 9


def fast_at_nine(request: Request, run_id: str) -> list[Any]:
    """Runs that are twice as fast with nine votes."""
    *events, end = scripted(4)(request, run_id)
    quick = request.speculation.drafters and request.speculation.vote_nodes == 9
    speed = end.stats.tokens_per_second * (2 if quick else 1)
    return [*events, replace(end, stats=replace(end.stats, tokens_per_second=speed))]


def test_a_third_axis_opens_where_the_best_point_is(tuning: Stage, browser_page: OpenPage) -> None:
    tuning.play(fast_at_nine, speed=0.0)
    page = opened(browser_page(tuning.url))
    typed(page, "Once")
    axis(page, 3, "vote_nodes", "4, 9")
    planned(page, "18 points")
    page.click("#tune-start")
    completed(page)
    for picture in ("#tune-speed", "#tune-length"):
        page.locator(picture).get_by_text("at vote_nodes=9").wait_for()
        page.locator(f"{picture} td[data-mark=best]").wait_for()
    page.locator("#tune-speed select").select_option("4")
    page.locator("#tune-length").get_by_text("at vote_nodes=4").wait_for()


def test_what_cannot_run_stays_in_map_table_and_a_saved_grid(
    tuning: Stage, browser_page: OpenPage
) -> None:
    page = opened(browser_page(tuning.url))
    typed(page, "Once\nTwice")
    axis(page, 1, "speculation_length", "2, 99")
    planned(page, "3 points and plain decoding")
    page.click("#tune-start")
    completed(page)
    page.reload()
    turn_to(page, "Tune")
    completed(page)
    refused = page.locator(f"{CELLS}[data-state=refused]")
    page.locator(f":nth-match({CELLS}[data-state=refused], 3)").wait_for()
    assert refused.count() == 3 and refused.first.inner_text() == "✕"
    row = page.locator("#tune-points tr[data-refused]").first
    assert "✕" in row.inner_text() and "cannot run" in row.inner_text()
    assert "speculation_length is 99" in row.locator("td").last.inner_text()
    assert page.locator("#tune-points tbody tr").count() == 7
    page.locator("#tune-points").get_by_role("button", name="speed-up").click()
    page.locator("#tune-points th[aria-sort=descending]").wait_for()
    last = page.locator("#tune-points tbody tr").last
    assert last.get_attribute("data-refused") is not None
    with page.expect_download() as waiting:
        page.locator("#tune-points").get_by_role("button", name="as SVG").click()
    content = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert "cannot run" in content and "speculation_length" in content
    words = " ".join(re.sub("<[^>]+>", " ", content).split())
    assert re.search(r"\d+ points?, \d+ prompts?, 1 repeat; temperature 0, \d+ tokens", words)
    assert "Press a column" not in words
    with page.expect_download() as waiting:
        page.locator("#tune-points").get_by_role("button", name="as PNG").click()
    assert len(Path(waiting.value.path()).read_bytes()) > 2000
    shot(page, "tune-refused-1280")


def test_a_field_that_is_chosen_again_keeps_its_values(
    tuning: Stage, browser_page: OpenPage
) -> None:
    page = opened(browser_page(tuning.url))
    axis(page, 1, "speculation_length", "2, 99")
    axis(page, 1, "speculation_length")
    page.wait_for_timeout(500)
    assert text_box(page, "tune-values-1").input_value() == "2, 99"
    planned(page, "cannot run: speculation_length=99")


def test_one_axis_is_a_line_with_keys_and_spread(tuning: Stage, browser_page: OpenPage) -> None:
    page = opened(browser_page(tuning.url))
    typed(page, "Once\nTwice")
    axis(page, 2, "none")
    axis(page, 1, "speculation_length", "2, 4, 8, 99")
    planned(page, "cannot run: speculation_length=99")
    page.click("#tune-start")
    completed(page)
    dots = page.locator(DOTS)
    assert dots.count() == 3 and page.locator("#tune-speed .ss-sweep-line").count() == 1
    assert page.locator("#tune-speed .ss-mini-level").count() == 1, "plain decoding's level"
    page.locator("#tune-speed .ss-sweep-dot[tabindex='0']").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator("#tune-point").get_by_text("speculation_length=4", exact=True).wait_for()
    shot(page, "tune-line-1280")


def test_files_are_saved(tuning: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(tuning.url), "Once")
    for button, lines in (("#tune-csv-points", 11), ("#tune-csv-runs", 11)):
        for _ in range(2):  # the same file may be wanted twice
            with page.expect_download() as waiting:
                page.click(button)
            text = Path(waiting.value.path()).read_text(encoding="utf-8")
            assert len(text.splitlines()) == lines
            assert waiting.value.suggested_filename.endswith(".csv")
    for kind in ("SVG", "PNG"):
        with page.expect_download() as waiting:
            page.locator("#tune-speed").get_by_role("button", name=f"as {kind}").click()
        content = Path(waiting.value.path()).read_bytes()
        assert waiting.value.suggested_filename == f"specscope-grid-speed.{kind.lower()}"
        assert len(content) > 2000
        if kind == "SVG":
            assert b"speculation_length" in content and b"x</text>" in content
    with page.expect_download() as waiting:
        page.locator("#tune-length").get_by_role("button", name="as SVG").click()
    assert waiting.value.suggested_filename == "specscope-grid-tokens-per-pass.svg"


def test_a_hostile_file_is_told_by_its_line_and_never_is_markup(
    tuning: Stage, browser_page: OpenPage, tmp_path: Path
) -> None:
    page = opened(browser_page(tuning.url))
    page.locator("#tune-source").get_by_text("a file").click()
    planned(page, "a .txt or .jsonl file")
    path = tmp_path / "hostile.jsonl"
    path.write_text('{"prompt": "fine"}\n' + "[" * 100_000, encoding="utf-8")
    page.locator("#tune-file input[type=file]").set_input_files(path)
    planned(page, "line 2 is")
    page.locator("#tune-start[disabled]").wait_for()
    evil = "<img src=x onerror=window.hacked=1>\u202e"
    lines = [{"prompt": evil, "id": evil, "domain": evil} for _ in range(2)]
    good = tmp_path / "evil.jsonl"
    good.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    page.locator("#tune-file").get_by_label(re.compile("clear|remove", re.I)).first.click()
    page.locator("#tune-file input[type=file]").set_input_files(good)
    planned(page, "2 prompts")
    page.click("#tune-start")
    completed(page)
    page.locator("#tune-point").get_by_text("<img src=x").first.wait_for()
    assert page.evaluate("() => window.hacked") is None


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False), (390, True)])
def test_everybody_can_use_it(
    tuning: Stage, browser_page: OpenPage, axe: Any, width: int, dark: bool
) -> None:
    page = measured(browser_page(tuning.url, width=width, dark=dark))
    page.locator("#tune-point").get_by_text("tokens per pass").first.wait_for()
    assert not overflows(page)
    found = axe(
        page,
        "#tune-speed",
        "#tune-length",
        "#tune-points",
        "#tune-point",
        "#tune-found",
        "#tune-plan",
        "#tune-progress",
    )
    assert not found, "\n".join(found)
    shot(page, f"tune-{width}-{'dark' if dark else 'light'}")


def test_two_hundred_points_stay_usable(tuning: Stage, browser_page: OpenPage) -> None:
    page = opened(browser_page(tuning.url))
    typed(page, "Once")
    lengths = ", ".join(map(str, range(1, 16)))
    axis(page, 1, "speculation_length", lengths)
    axis(page, 2, "vote_nodes", "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14")
    planned(page, "195 points and plain decoding, 1 prompt, 1 repeat: 196 runs")
    page.click("#tune-start")
    completed(page)
    page.locator(f":nth-match({CELLS}[data-state=measured], 195)").wait_for()
    assert page.locator(f"{CELLS}[data-state=measured]").count() == 195
    assert not overflows(page)
    page.locator(f"{CELLS}[tabindex='0']").focus()
    cells, changed = page.evaluate(MOVES)
    assert cells >= 7, "the keys go from cell to cell"
    assert changed <= 3 * 21, "a key touches what it leaves and where it goes, not all cells"
    page.locator("#tune-points").get_by_role("button", name="speed-up").click()
    assert page.locator("#tune-points tbody tr").count() == 196
    shot(page, "tune-200-1280")


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


def test_two_visitors_see_the_same_study(tuning: Stage, browser_page: OpenPage) -> None:
    context: Context = tuning.context
    page = measured(browser_page(tuning.url), "Once")
    other = browser_page(tuning.url)
    turn_to(other, "Tune")
    completed(other)
    words = "() => document.querySelector('#tune-found').innerText"
    assert other.evaluate(words) == page.evaluate(words)
    assert len(context.store.studies.studies("tune")) == 1
