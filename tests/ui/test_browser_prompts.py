"""Prompts in a real Chromium: a study of typed prompts, past runs, sorting, the way to a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from bench.made.parts import HOSTILE_TEXTS
from bench.page.looks import at_rest, turn_to
from core.config import Request, SamplingParams, SpeculationConfig
from tests.synthetic import synthetic_run
from tests.ui.fakes import scripted
from tests.ui.sites import OpenPage, Stage, overflows, shot, text_box, until, usable
from ui.pages.form import EXAMPLES

pytestmark = pytest.mark.browser
ONE_ROW = "tr:not(.ss-group)"
ROWS = f"#prompts-table tbody {ONE_ROW}"


@pytest.fixture
def lab(stage: Stage) -> Stage:
    """The whole page with an empty log and runs that take no time."""
    stage.clear()
    stage.play(scripted(6), speed=0.0)
    return stage


def measured(page: Any, text: str) -> Any:
    """The typed prompts, measured to the end."""
    turn_to(page, "Prompts")
    page.locator("#prompts-source").get_by_text("typed").click()
    usable(page, text_box(page, "prompts-typed")).fill(text)
    page.click("#prompts-measure")
    page.locator("#prompts-progress").get_by_text("Complete").wait_for()
    page.locator(ROWS).nth(len(text.splitlines()) - 1).wait_for()
    at_rest(page)  # the rows stand before their last figures do
    return page


def column(page: Any, number: int) -> list[str]:
    return [row.locator("td").nth(number).inner_text() for row in page.locator(ROWS).all()]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_prompts_are_measured_and_a_click_opens_the_run(
    lab: Stage,
    browser_page: OpenPage,
    axe: Callable[..., list[str]],
    width: int,
    scheme: str,
) -> None:
    page = measured(
        browser_page(lab.url, width=width, dark=scheme == "dark"), "Once\nTwice\nThrice"
    )
    assert column(page, 0) == ["Once", "Twice", "Thrice"]
    assert all(float(mean) >= 1 for mean in column(page, 1))
    assert all(ratio.endswith("x") for ratio in column(page, 7))
    assert not overflows(page)
    assert not axe(page, "#prompts-progress", "#prompts-table", "#prompts-studies")
    shot(page, f"prompts-{width}-{scheme}")
    page.locator(ROWS).nth(1).get_by_role("button").click()
    page.locator("#sessions-notice").get_by_text("Finished: ").wait_for()
    page.locator("#sessions-strip").wait_for()


def test_a_column_sorts_down_then_up(lab: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(lab.url), "b\na\nc")
    head = page.locator("#prompts-table thead button")
    head.first.click()
    page.locator("#prompts-table th[aria-sort=ascending]").wait_for()
    assert column(page, 0) == ["a", "b", "c"]
    assert page.locator("#prompts-table th[aria-sort=ascending]").count() == 1
    head.first.click()
    page.locator("#prompts-table th[aria-sort=descending]").wait_for()
    assert column(page, 0) == ["c", "b", "a"]


def past_runs(page: Any) -> Any:
    page.get_by_text("Or of past runs").click()
    page.click("#prompts-look")
    page.locator("#prompts-said").get_by_text("that drafted").wait_for()
    return page


def made(lab: Stage, prompt: str, preset: str = "specinfer", **sampling: Any) -> None:
    """A run in the log."""
    speculation = SpeculationConfig.preset(preset, sampling.get("temperature", 0.0))
    source = lab.context.hub.start(Request(prompt, SamplingParams(**sampling), speculation))
    source.wait_done(10)
    lab.context.store.flush()


def test_past_runs_without_a_study(lab: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(lab.url), "Once\nTwice")
    made(lab, "Thrice", max_new_tokens=64)
    past_runs(page).locator("#prompts-said").get_by_text("3 prompts of 3 completed runs").wait_for()
    page.locator(ROWS).nth(2).wait_for()  # the words may be there before the table is
    assert column(page, 0) == ["Thrice", "Twice", "Once"]
    ratios = column(page, 7)
    assert ratios[0] == "–"  # nobody has decoded it plainly
    assert all(re.match(r"[\d.]+x\s+1 plain run$", ratio) for ratio in ratios[1:])


def test_past_runs_are_a_row_for_each_settings(lab: Stage, browser_page: OpenPage) -> None:
    for preset, sampling in (("specinfer", {}), ("minions", {}), ("minions", {"temperature": 0.8})):
        made(lab, "Once", preset, **sampling)
    made(lab, "def f():")
    page = browser_page(lab.url)
    turn_to(page, "Prompts")
    past_runs(page).locator("#prompts-said").get_by_text("2 prompts of 4 completed").wait_for()
    page.locator("#prompts-table").get_by_text("4 rows of 2 prompts.").wait_for()
    heads = page.locator("#prompts-table thead").inner_text()
    assert "settings" in heads
    assert len({words.split("\n")[0] for words in column(page, 1)}) == 3
    menu = page.locator("#prompts-table").get_by_label("Settings", exact=True)
    menu.select_option("specinfer")
    page.locator("#prompts-table").get_by_text("2 prompts (4 rows in all).").wait_for()
    menu.select_option("")
    page.locator("#prompts-table").get_by_label("Prompt has").fill("DEF")
    page.locator("#prompts-table").get_by_text("1 prompt (4 rows in all).").wait_for()
    page.locator("#prompts-table").get_by_label("Prompt has").fill("")
    page.locator("#prompts-table").get_by_label("Group by").select_option("prompt")
    groups = page.locator("#prompts-table .ss-group th")
    groups.filter(has_text="Once").wait_for()
    assert groups.all_inner_texts() == ["def f():", "Once"]
    shot(page, "prompts-past")


def test_a_sorted_column_orders_the_groups_too(lab: Stage, browser_page: OpenPage) -> None:
    """Of several settings each row says its own, once; groups follow their first row."""
    for prompt in EXAMPLES[0][1], EXAMPLES[2][1], "Once":
        for length in (1, 2, 3):
            config = SpeculationConfig(speculation_length=length)
            lab.context.hub.start(Request(prompt, speculation=config)).wait_done(10)
    lab.context.store.flush()
    page = browser_page(lab.url)
    turn_to(page, "Prompts")
    past_runs(page)
    page.locator("#prompts-table").get_by_text("9 rows of 3 prompts.").wait_for()
    groups = page.locator("#prompts-table .ss-group th")
    assert groups.count() == 3
    assert groups.last.inner_text() == "no domain", "unsorted, what has no domain stands last"
    table = page.locator("#prompts-table table").inner_text()
    assert table.count("speculation_length=1") == 3, "once a row"
    head = page.locator("#prompts-table thead button", has_text="tokens/s")
    for way, sign in (("descending", -1), ("ascending", 1)):
        head.click()
        page.locator(f"#prompts-table th[aria-sort={way}]").wait_for()
        speeds = [
            [float(row.locator("td").nth(7).inner_text()) for row in part.locator(ONE_ROW).all()]
            for part in page.locator("#prompts-table tbody").all()
        ]
        assert [len(part) for part in speeds] == [3, 3, 3]
        assert all(part == sorted(part, key=lambda one: sign * one) for part in speeds)
        firsts = [part[0] for part in speeds]
        assert firsts == sorted(firsts, key=lambda one: sign * one), way


def test_the_board_says_that_past_runs_are_on_view(lab: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(lab.url), "Once")
    lab.context.store.flush()
    page.locator("#prompts-studies .sp-selected").wait_for()
    past_runs(page)
    board = page.locator("#prompts-progress")
    board.get_by_text("Past runs are on view").wait_for()
    assert not board.get_by_text("Complete").is_visible()
    page.locator("#prompts-studies .sp-selected").wait_for(state="detached")
    turn_to(page, "Live")
    turn_to(page, "Prompts")
    board.get_by_text("Past runs are on view").wait_for()
    assert page.locator("#prompts-studies [aria-current]").count() == 0
    page.locator("#prompts-studies .sp-open").first.click()
    board.get_by_text("Complete").wait_for()
    page.locator("#prompts-studies .sp-selected").wait_for()


def test_older_runs_come_on_a_press(lab: Stage, browser_page: OpenPage) -> None:
    for i in range(203):
        for event in synthetic_run(2, run_id=f"r{i}"):
            lab.context.store.record(event)
    lab.context.store.flush(30)
    page = browser_page(lab.url)
    turn_to(page, "Prompts")
    said = past_runs(page).locator("#prompts-said")
    said.get_by_text(
        "1 prompt of 200 completed runs that drafted; the latest 200 of 203"
    ).wait_for()
    page.locator("#prompts-table").get_by_text("200 runs").wait_for()
    page.click("#prompts-more")
    said.get_by_text("1 prompt of 203 completed runs that drafted.").wait_for()
    page.locator("#prompts-more").wait_for(state="hidden")


def test_a_study_takes_the_words_of_past_runs_away(lab: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(lab.url), "Once")
    lab.context.store.flush()
    past_runs(page)
    page.get_by_role("heading", name="Past studies of prompts").wait_for()
    page.locator("#prompts-studies .sp-open").first.click()
    page.locator("#prompts-said").get_by_text("that drafted").wait_for(state="detached")
    page.locator("#prompts-table").get_by_text("measured in the same study").wait_for()


def test_what_has_no_domain_stands_apart(lab: Stage, browser_page: OpenPage) -> None:
    told = (
        {"prompt": "x = 1", "domain": "code"},
        {"prompt": "Once"},
        {"prompt": "y", "domain": ""},
    )
    page = browser_page(lab.url)
    turn_to(page, "Prompts")
    page.locator("#prompts-source").get_by_text("a file").click()
    page.set_input_files(
        "#prompts-file input",
        {
            "name": "some.jsonl",
            "mimeType": "application/json",
            "buffer": "\n".join(json.dumps(one) for one in told).encode(),
        },
    )
    page.locator("#prompts-file").get_by_text("some").first.wait_for()
    page.click("#prompts-measure")
    page.locator("#prompts-progress").get_by_text("Complete").wait_for()
    page.locator(ROWS).nth(2).wait_for()
    at_rest(page)
    parts = [
        [row.locator("th, td").first.inner_text() for row in part.locator("tr").all()]
        for part in page.locator("#prompts-table tbody").all()
    ]
    assert parts == [["code", "x = 1"], ["no domain: mean of 2 prompts", "Once", "y"]]
    mean = page.locator("#prompts-table .ss-group").nth(1).locator("td").nth(6).inner_text()
    each = [float(ratio.removesuffix("x")) for ratio in column(page, 7)[1:]]
    assert float(mean.removesuffix("x")) == pytest.approx(sum(each) / 2, abs=0.011)


def test_the_table_is_saved_as_picture_and_as_rows(lab: Stage, browser_page: OpenPage) -> None:
    page = measured(browser_page(lab.url), "Once\nTwice")
    table = page.locator("#prompts-table")
    with page.expect_download() as saved:
        table.get_by_role("button", name=re.compile("as SVG$")).click()
    assert saved.value.suggested_filename == "specscope-prompts.svg"
    drawing = saved.value.path().read_text(encoding="utf-8")
    words = re.sub("<[^>]+>", " ", drawing)
    assert all(word in words for word in ("Once", "Twice", "speed-up", "tokens/s"))
    assert "Group by" not in words
    assert "All with specinfer: temperature 0, 64 tokens." in " ".join(words.split())
    with page.expect_download() as saved:
        table.get_by_role("button", name=re.compile("as PNG$")).click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as saved:
        page.click("#prompts-csv")
    assert saved.value.suggested_filename.endswith("-prompts.csv")
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("prompt,domain,settings,") and len(lines) == 5


def test_hostile_prompts_stay_text(lab: Stage, browser_page: OpenPage) -> None:
    hostile = " ".join(" ".join(HOSTILE_TEXTS).split()).replace("\0", "")
    page = measured(browser_page(lab.url), hostile[:400])
    assert column(page, 0)[0].startswith(hostile[:20].strip())
    assert page.locator("#prompts-table img, #prompts-table script").count() == 0


def test_what_cannot_be_measured_is_told(lab: Stage, browser_page: OpenPage) -> None:
    page = browser_page(lab.url)
    turn_to(page, "Prompts")
    page.locator("#prompts-source").get_by_text("typed").click()
    page.click("#prompts-measure")
    page.locator("#prompts-progress").get_by_text("at least one prompt").wait_for()


def test_a_second_tab_follows_the_study(lab: Stage, browser_page: OpenPage) -> None:
    measured(browser_page(lab.url), "Once\nTwice")
    other = browser_page(lab.url)
    turn_to(other, "Prompts")
    other.locator("#prompts-progress").get_by_text("4 of 4").wait_for()
    until(other, lambda: column(other, 0) == ["Once", "Twice"])  # drawn a frame after the bar
