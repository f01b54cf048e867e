"""The Prompts tab in a real Chromium."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui.browser.looks import at_rest, large_type, turn_to
from tests.ui.fakes import script_of
from tests.ui.reading import becomes, in_looks, read, saved_file, words_of
from tests.ui.sites import Axe, OpenPage, Stage, overflows, shot, text_box, wait_usable
from ui.form.form import EXAMPLES

pytestmark = pytest.mark.browser
TABS = ("live", "prompts")
PARTS = ("#prompts-progress", "#prompts-table", "#prompts-studies")
TABLE = """() => [...document.querySelectorAll("#prompts-table tbody")].map((part) =>
  [...part.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim())))"""
# The rows, once they begin with `prompts` in this order, and `known` rows have a speed-up.
MEASURED = """([prompts, known]) => {
  const rows = [...document.querySelectorAll("#prompts-table tbody tr:not(.ss-group)")]
    .map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
  return rows.length === prompts.length
    && rows.every(([prompt], i) => prompt.startsWith(prompts[i]))
    && rows.filter((row) => /^[\\d.]+x/.test(row.at(-1))).length === known && rows;
}"""
SORTED = """(way) => {
  const heads = document.querySelectorAll("#prompts-table th:not([aria-sort=none])[aria-sort]");
  return heads.length === 1 && heads[0].getAttribute("aria-sort") === way && TABLE();
}""".replace("TABLE", f"({TABLE})")
HEADS = """() => [...document.querySelectorAll("#prompts-table thead button")]
  .map((head) => head.innerText.trim())"""
WEIGHTS = """() => [...document.querySelectorAll("#prompts-table .ss-group td")]
  .map((cell) => getComputedStyle(cell).fontWeight)"""
PROMPTS = """() => [...document.querySelectorAll("#prompts-table tbody tr:not(.ss-group)")]
  .map((row) => row.cells[0].innerText.trim())"""
GROUPS = """() => [...document.querySelectorAll("#prompts-table .ss-group th")]
  .map((head) => head.innerText.trim())"""


@pytest.fixture
def lab(stage: Stage) -> Stage:
    stage.clear()
    stage.play(script_of(6), slowdown=0.0)
    return stage


def prompts_tab(page: Any) -> Any:
    turn_to(page, "Prompts")
    wait_usable(page, page.locator("#prompts-repeats input")).fill("1")
    return page


SPEEDS_CUT = """() => [...document.querySelectorAll("#sessions-runs .sp-run-facts")]
  .filter((facts) => {
    const words = document.createRange(), line = facts.getBoundingClientRect();
    const node = document.createTreeWalker(facts, NodeFilter.SHOW_TEXT);
    while (node.nextNode() && !node.currentNode.textContent.includes("tokens / s"));
    words.setStart(node.currentNode, 0);
    words.setEnd(node.currentNode, node.currentNode.textContent.indexOf("/ s") + 3);
    // An ellipsis takes as much of the line as two letters.
    return words.getBoundingClientRect().right > line.right - 20;
  }).map((facts) => facts.textContent)"""


def measure_typed(page: Any, text: str) -> list[list[str]]:
    page.locator("#prompts-source").get_by_text("typed").click()
    wait_usable(page, text_box(page, "prompts-typed")).fill(text)
    page.click("#prompts-measure")
    prompts = text.splitlines()
    rows = read(page, MEASURED, [prompts, len(prompts)])
    page.locator("#prompts-progress").get_by_text("Complete").wait_for()
    return list(rows)


def measure_file(page: Any, lines: list[dict[str, str]]) -> None:
    page.locator("#prompts-source").get_by_text("a file").click()
    content = "\n".join(json.dumps(line) for line in lines).encode()
    file: Any = {"name": "some.jsonl", "mimeType": "application/json", "buffer": content}
    page.set_input_files("#prompts-file input", file)
    page.locator("#prompts-file").get_by_text("some").first.wait_for()
    page.click("#prompts-measure")
    read(page, MEASURED, [[line["prompt"][:20].strip() for line in lines], len(lines)])
    # The page refuses a new study until this study is complete.
    page.locator("#prompts-progress").get_by_text("Complete").wait_for()


def look(page: Any, words: str) -> None:
    button = page.locator("#prompts-look")
    if not button.is_visible():
        page.get_by_text("Or of past runs").click()
    wait_usable(page, button).click()
    page.locator("#prompts-said").get_by_text(words).wait_for()


def record(lab: Stage, prompt: str, speculation: SpeculationConfig, **sampling: Any) -> None:
    request = Request(prompt, SamplingParams(**sampling), speculation)
    source = lab.context.hub.start(request)
    source.wait_done(10)
    assert source.is_done
    lab.context.store.flush()


def test_prompts_are_measured_sorted_saved_and_open_their_runs(
    lab: Stage, browser_page: OpenPage, axe: Axe
) -> None:
    page = prompts_tab(browser_page(lab.url))
    assert not page.locator("#prompts-csv").is_visible(), "there is no row yet"
    page.locator("#prompts-source").get_by_text("typed").click()
    page.click("#prompts-measure")
    page.locator("#prompts-progress").get_by_text("at least one prompt").wait_for()

    hostile = " ".join(" ".join(HOSTILE_TEXTS).split()).replace("\0", "")[:400]
    code = {"prompt": "x = 1", "domain": "code"}
    measure_file(page, [code, {"prompt": hostile}, {"prompt": "y", "domain": ""}])
    (head, first), (mean, evil, last) = page.evaluate(TABLE)
    assert [head, mean[:1]] == [["code"], ["no domain: mean of 2 prompts"]]
    assert [first[0], last[0]] == ["x = 1", "y"]
    assert page.locator("#prompts-table :is(img, script)").count() == 0
    ratio, *each = (float(row[-1].split("x")[0]) for row in (mean, evil, last))
    assert ratio == pytest.approx(sum(each) / 2, abs=0.011)
    assert all("one sample" in row[-1].split("\n") for row in (first, evil, last))
    weights = dict(zip(page.evaluate(HEADS)[1:], page.evaluate(WEIGHTS), strict=True))
    assert weights["tokens / pass"] == "600", "a count is the same in every run"
    assert weights["tokens / s"] == weights["speed-up"] == "400", "no mean of single times is bold"

    rows = measure_typed(page, "Thrice\nOnce\nTwice")
    page.locator("#prompts-counted").get_by_text("3 prompts: each line is one.").wait_for()
    assert all(float(row[1]) >= 1 for row in rows)
    page.locator("#prompts-progress").get_by_text("6 of 6").wait_for()
    becomes(page, PROMPTS, ["Thrice", "Once", "Twice"])
    for name in in_looks(page, (390, True), (1280, False)):
        assert not overflows(page)
        assert not axe(page, *PARTS), name
        shot(page, f"prompts-{name}")

    sort = page.locator("#prompts-table thead button").first
    for way, expected in (("ascending", "Once Thrice Twice"), ("descending", "Twice Thrice Once")):
        sort.click()
        assert [row[0] for (row,) in zip(*read(page, SORTED, way), strict=True)] == expected.split()

    table = page.locator("#prompts-table")
    name, drawing = saved_file(page, table.get_by_role("button", name=re.compile("as SVG$")).click)
    assert name == "specscope-prompts.svg"
    words = words_of(drawing)
    assert all(word in words for word in ("Once", "Twice", "speed-up", "tokens / s"))
    assert "Group by" not in words
    assert "All with specinfer: temperature 0, 64 tokens." in words
    _, picture = saved_file(page, table.get_by_role("button", name=re.compile("as PNG$")).click)
    assert picture.startswith(b"\x89PNG")
    name, content = saved_file(page, lambda: page.click("#prompts-csv"))
    lines = content.decode("utf-8").splitlines()
    assert name.endswith("-prompts.csv") and len(lines) == 7
    assert lines[0].startswith("prompt,domain,settings,")

    page.locator("#prompts-table tbody").get_by_role("button", name="Thrice").click()
    page.locator("#sessions-notice").get_by_text("Finished: ").wait_for()
    page.locator("#sessions-strip").wait_for()
    page.set_viewport_size({"width": 1280, "height": 800})
    for large in (False, True):
        large_type(page, large)
        at_rest(page)
        assert page.evaluate(SPEEDS_CUT) == []


def test_past_runs_take_turns_with_a_study_are_filtered_grouped_and_sorted(
    lab: Stage, browser_page: OpenPage
) -> None:
    page = prompts_tab(browser_page(lab.url))
    past_runs_and_a_study_take_turns(lab, page)
    lab.clear()
    past_runs_are_filtered_and_grouped(lab, page)
    lab.clear()
    groups_are_sorted_by_their_means(lab, page)
    lab.clear()
    more_than_the_latest_two_hundred_are_searched_on_request(lab, page)


def past_runs_and_a_study_take_turns(lab: Stage, page: Any) -> None:
    measure_typed(page, "Once\nTwice")
    page.locator("#prompts-studies .sp-selected").wait_for()
    record(lab, "Thrice", SpeculationConfig.preset("specinfer"), max_new_tokens=64)
    look(page, "3 prompts of 3 completed runs that drafted")
    rows = read(page, MEASURED, [["Thrice", "Twice", "Once"], 2])
    assert rows[0][-1] == "–"  # this prompt was never decoded plainly
    figure = r"[\d.]+x\s+one sample\s+(noise, since [\d.]+ tokens per pass gain no more\s+)?"
    assert all(re.match(rf"{figure}1 plain run$", row[-1]) for row in rows[1:])

    board = page.locator("#prompts-progress")
    board.get_by_text("Past runs are on view").wait_for()
    assert not board.get_by_text("Complete").is_visible()
    page.locator("#prompts-studies .sp-selected").wait_for(state="detached")
    turn_to(page, "Live")
    turn_to(page, "Prompts")
    board.get_by_text("Past runs are on view").wait_for()
    assert page.locator("#prompts-studies [aria-current]").count() == 0

    page.get_by_role("heading", name="Past studies of prompts").wait_for()
    page.locator("#prompts-studies .sp-open").first.click()
    board.get_by_text("Complete").wait_for()
    page.locator("#prompts-studies .sp-selected").wait_for()
    page.locator("#prompts-said").get_by_text("that drafted").wait_for(state="detached")
    page.locator("#prompts-table").get_by_text("measured in the same study").wait_for()


def past_runs_are_filtered_and_grouped(lab: Stage, page: Any) -> None:
    table = page.locator("#prompts-table")
    minions = SpeculationConfig.preset("minions")
    record(lab, "Once", SpeculationConfig.preset("specinfer"))
    record(lab, "Once", minions)
    record(lab, "Once", SpeculationConfig.preset("minions", 0.8), temperature=0.8)
    record(lab, "def f():", SpeculationConfig.preset("specinfer"))
    look(page, "2 prompts of 4 completed")
    table.get_by_text("4 rows of 2 prompts.").wait_for()
    assert "settings" in table.locator("thead").inner_text()
    settings = [row[1].split("\n")[0] for row in page.evaluate(TABLE)[0]]
    assert len(settings) == 4 and len(set(settings)) == 3
    menu = table.get_by_label("Settings", exact=True)
    menu.select_option("specinfer")
    table.get_by_text("2 prompts, 2 of 4 rows.").wait_for()
    menu.select_option("")
    table.get_by_label("Prompt has").fill("DEF")
    table.get_by_text("1 prompt, 1 of 4 rows.").wait_for()
    table.get_by_label("Prompt has").fill("")
    table.get_by_label("Group by").select_option("prompt")
    becomes(page, GROUPS, ["def f():", "Once"])
    shot(page, "prompts-past")
    table.get_by_label("Group by").select_option("domain")


def groups_are_sorted_by_their_means(lab: Stage, page: Any) -> None:
    table = page.locator("#prompts-table")
    for prompt in EXAMPLES[0][1], EXAMPLES[2][1], "Once":
        for length in (1, 2, 3):
            record(lab, prompt, SpeculationConfig(speculation_length=length))
    look(page, "3 prompts of 9 completed")
    table.get_by_text("9 rows of 3 prompts.").wait_for()
    names = read(page, f"() => {{ const all = ({GROUPS})(); return all.length === 3 && all; }}")
    assert names[-1] == "no domain", "in an unsorted table, prompts without a domain are last"
    assert str(page.evaluate(TABLE)).count("speculation_length=1") == 3, (
        "each row has its settings once"
    )
    sort = table.locator("thead button", has_text="tokens / s")
    for way, sign in (("descending", -1), ("ascending", 1)):
        sort.click()
        speeds = [[float(row[7]) for row in rows] for _, *rows in read(page, SORTED, way)]
        assert [len(part) for part in speeds] == [3, 3, 3]
        assert all(part == sorted(part, key=lambda one: sign * one) for part in speeds)
        firsts = [part[0] for part in speeds]
        assert firsts == sorted(firsts, key=lambda one: sign * one), way


def more_than_the_latest_two_hundred_are_searched_on_request(lab: Stage, page: Any) -> None:
    for i in range(203):
        for event in synthetic_run(2, run_id=f"r{i}"):
            lab.context.store.record(event)
    lab.context.store.flush(30)
    look(page, "1 prompt of 200 completed runs that drafted; searched the latest 200 of 203")
    page.locator("#prompts-table").get_by_text("200 runs").wait_for()
    page.click("#prompts-more")
    said = page.locator("#prompts-said")
    said.get_by_text("1 prompt of 203 completed runs that drafted.").wait_for()
    page.locator("#prompts-more").wait_for(state="hidden")
