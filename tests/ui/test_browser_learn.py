"""Learn and the presenter's links in a real Chromium: read, run, try, answer, hand on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bench.page.looks import at_rest, frames, turn_to
from storage import RunQuery
from tests.ui.fakes import FakeWorker, recorded
from tests.ui.rigs import Loader, other_worker
from tests.ui.sites import LEAVING, OpenPage, hosted, overflows, ready, said, shot, until
from ui.context import Context
from ui.exchange import Pair
from ui.lessons import LESSONS
from ui.rig import Rig

pytestmark = pytest.mark.browser

OURS = ("#learn-lesson", "#learn-rows", "#learn-verdict", "#learn-notice", ".sp-say")


def opened(open_page: OpenPage, url: str, query: str, **options: Any) -> Any:
    """The page at an address with our parameters, as a link opens it."""
    page = open_page(url, forgiven=LEAVING, **options)
    ready(page)
    scheme = "dark" if options.get("dark") else "light"
    page.goto(f"{url}?__theme={scheme}&{query}")
    page.wait_for_function("() => window.specscopeStops")  # keys are heard
    return page


def on_lesson(page: Any, number: int) -> Any:
    """Wait until lesson `number` is in sight; the page."""
    page.locator(".sp-lesson-title").get_by_text(
        f"{number}. {LESSONS[number - 1].title}"
    ).wait_for()
    # The first lesson's words stand there before the server has opened any.
    page.locator(".sp-measured").wait_for()
    return page


def rows(page: Any, count: int) -> list[list[str]]:
    """The table of runs, once it has so many rows."""
    script = "(n) => document.querySelectorAll('.sp-measured tbody tr').length === n"
    page.wait_for_function(script, arg=count)
    found = page.locator(".sp-measured tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in found]


def verdict(page: Any, words: str) -> None:
    page.locator("#learn-verdict").get_by_text(words).first.wait_for()


def query(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def pictures(page: Any) -> set[str]:
    """The pictures of the board that can be seen."""
    names = page.evaluate(
        "() => [...document.querySelectorAll('[id^=learn-]')]"
        ".filter((one) => one.querySelector('.ss-shell') && one.offsetParent).map((one) => one.id)"
    )
    return {name.removeprefix("learn-") for name in names} & {
        *("legend", "figures", "strip", "tree", "proposals", "inspector", "lengths", "timeline")
    }


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)]
)
def test_a_lesson_is_read_run_tried_and_answered(
    short: tuple[str, Context],
    browser_page: OpenPage,
    axe: Callable[..., list[str]],
    width: int,
    dark: bool,
) -> None:
    page = opened(browser_page, short[0], "lesson=3", width=width, dark=dark)
    on_lesson(page, 3)
    verdict(page, "Do the thing to try first")
    page.click("#learn-run")
    assert [row[0] for row in rows(page, 1)] == ["▸ width 3"]
    page.locator("#learn-tree .ss-tree svg").first.wait_for()
    page.click("#learn-try")
    wide, narrow = rows(page, 2)
    verdicts = page.locator("#learn-verdict .sp-line")
    until(page, lambda: verdicts.count() == 0)
    page.locator("#learn-number input").fill("77")
    page.click("#learn-check")
    verdict(page, "Not in this run. Where to look: ")
    page.click("#learn-show")
    page.locator("#learn-rows.sp-pointed").wait_for()
    saved = int(narrow[2]) - int(wide[2])
    page.locator("#learn-number input").fill(str(saved))
    page.locator("#learn-number input").press("Enter")
    verdict(page, "Right. ")
    page.locator(".sp-step[aria-current] .sp-tick").wait_for()
    assert pictures(page) == set(LESSONS[2].pictures)
    side = page.locator("#learn-side").bounding_box()
    for button in ("check", "show"):
        box = page.locator(f"#learn-{button}").bounding_box()
        assert box["x"] + box["width"] <= side["x"] + side["width"], "nothing is cut off"
    assert not overflows(page)
    assert not axe(page, *OURS)
    shot(page, f"learn-{width}-{'dark' if dark else 'light'}")


def test_the_lesson_stays_in_sight_while_the_pictures_scroll(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = opened(browser_page, short[0], "lesson=5")
    on_lesson(page, 5)
    page.click("#learn-run")
    rows(page, 1)
    page.locator("#learn-inspector .ss-panel").wait_for()
    said(page, "Finished: ", "learn")
    at_rest(page)
    page.locator("#learn-tree").evaluate("(one) => one.scrollIntoView({ block: 'start' })")
    box = page.locator("#learn-side").bounding_box()
    assert -1 <= box["y"] < 40 and box["height"] > 400
    page.set_viewport_size({"width": 390, "height": 844})
    at_rest(page)
    board = page.locator("#learn-notice").bounding_box()
    side = page.locator("#learn-side").bounding_box()
    assert side["y"] + side["height"] <= board["y"] + 1, "above them on a narrow screen"


FIT = """() => [...document.querySelectorAll('#learn-playback .sp-buttons button')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.innerText)"""
# Tops within the lesson, which a scroll does not change.
TOPS = """() => ['#learn-try', '#learn-number', '#learn-check'].map((one) => Math.round(
  document.querySelector(one).getBoundingClientRect().top
  - document.querySelector('#learn-lesson').getBoundingClientRect().top))"""
# As far up as the end of the page lets it come.
UNCOVERED = """() => {
  const bar = document.querySelector('#learn-playback');
  const sticks = getComputedStyle(bar).position === 'sticky';
  const under = sticks ? bar.getBoundingClientRect().bottom : 0;
  const { top } = document.querySelector('#learn-lengths').getBoundingClientRect();
  const end = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
  return top >= under && (end || top < under + 60);
}"""


def settled(page: Any, script: str) -> Any:
    """What it gives once it gives the same for a third of a second: pictures and fonts come one by
    one."""
    found, since = page.evaluate(script), time.monotonic()
    while time.monotonic() - since < 0.35:
        page.wait_for_timeout(50)
        again = page.evaluate(script)
        if again != found:
            found, since = again, time.monotonic()
    return found


@pytest.mark.parametrize(("width", "large"), [(1280, ""), (1280, "&large=1"), (390, "&large=1")])
def test_nothing_is_cut_off_covered_or_moved(
    short: tuple[str, Context], browser_page: OpenPage, width: int, large: str
) -> None:
    page = opened(browser_page, short[0], f"lesson=2{large}", width=width, still=True)
    on_lesson(page, 2)
    page.locator(".sp-measured tfoot tr").nth(1).wait_for()
    page.locator("#learn-strip .ss-panel").wait_for()
    before = settled(page, TOPS)
    page.click("#learn-run")
    rows(page, 1)
    page.locator("#learn-lengths .js-plotly-plot").first.wait_for()
    said(page, "Finished: ", "learn")
    at_rest(page)  # before a draft is accepted the chart has other words
    assert page.evaluate(TOPS) == before, "the room of the rows was kept"
    assert page.evaluate(FIT) == [], "words that do not fit their button"
    page.set_viewport_size({"width": width, "height": 560})  # lower than the picture and the bar
    page.click("#learn-show")
    page.locator("#learn-lengths.sp-pointed").wait_for()
    assert page.evaluate(UNCOVERED)
    titles = page.locator("#learn-lengths .annotation-text").all_text_contents()
    assert re.sub(r"\s", "", titles[-1]) == "Ratebyposition", "as the lesson calls it"
    assert not overflows(page)


def test_a_run_of_the_table_is_put_back_on_the_board(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = opened(browser_page, short[0], "lesson=6")
    on_lesson(page, 6)
    page.click("#learn-run")
    rows(page, 1)
    said(page, "Finished: ", "learn")
    page.click("#learn-try")
    assert rows(page, 2)[1][0].startswith("▸ ")
    said(page, "Finished: ", "learn")
    first = page.locator(".sp-measured .sp-again").first
    first.focus()
    page.keyboard.press("Enter")
    page.locator(".sp-measured .sp-selected").get_by_text("▸ always 8").wait_for()
    until(page, lambda: first.evaluate("(one) => one === document.activeElement"))
    panel = page.locator("#learn-lengths")
    panel.get_by_role("button", name="as a table").click()
    caption = panel.locator("caption").first
    assert caption.inner_text() == "Rate by position"
    # The pictures follow their row: what stands there before that is of the run that still plays.
    rates = short[1].store.runs(RunQuery()).rows[-1].stats.acceptance_rate_per_position
    cells = panel.locator(".ss-table table").first.locator("tbody td:nth-child(2)")
    until(page, lambda: cells.all_inner_texts() == [f"{100 * rate:.1f} %" for rate in rates])
    page.fill("#learn-number input", f"{100 * rates[2]:.1f}")
    page.click("#learn-check")
    verdict(page, "Lesson 6 is finished.")
    shot(page, "learn-6-table")


LINES = """() => {
  const box = document.querySelector('#learn-notice .sp-shell');
  const high = parseFloat(getComputedStyle(box.querySelector('.sp-line')).lineHeight);
  const lines = (box.clientHeight - 24) / high;
  return { lines, left: box.scrollHeight - box.clientHeight };
}"""


@pytest.mark.parametrize(
    ("width", "large", "least"), [(1280, "", 7), (1280, "&large=1", 11), (390, "", 15)]
)
def test_the_notice_has_room_for_whole_lines(
    short: tuple[str, Context], browser_page: OpenPage, width: int, large: str, least: int
) -> None:
    page = opened(browser_page, short[0], f"lesson=8{large}", width=width)
    on_lesson(page, 8)
    if large:
        page.locator("html.ss-large").wait_for()
    found = settled(page, LINES)
    assert found["lines"] == pytest.approx(least, abs=0.05)
    words = "0.60x: slower than plain decoding here, because a round took 45.1 ms (3.5 plain " * 3
    page.evaluate(
        "([one, words]) => { document.querySelector(one).textContent = words; }",
        ["#learn-notice .sp-line :last-child", words],
    )
    assert page.evaluate(LINES)["left"] <= 1, "what is said of a slow run can be read whole"


def test_other_pictures_are_there_for_whoever_asks(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = opened(browser_page, short[0], "lesson=1")
    on_lesson(page, 1)
    page.locator("#learn-strip .ss-panel").wait_for()
    until(page, lambda: pictures(page) == set(LESSONS[0].pictures))
    page.locator("#learn-all input").check()
    until(page, lambda: len(pictures(page)) == 8)
    page.locator("#learn-all input").uncheck()
    until(page, lambda: pictures(page) == set(LESSONS[0].pictures))


def test_keys_turn_the_pages_and_run(short: tuple[str, Context], browser_page: OpenPage) -> None:
    page = opened(browser_page, short[0], "lesson=1")
    on_lesson(page, 1)
    page.locator("body").press("n")
    on_lesson(page, 2)
    page.locator("body").press("r")
    rows(page, 1)
    page.locator("body").press("p")
    on_lesson(page, 1)
    step = page.get_by_role("button", name="Lesson 4: ")
    step.focus()
    step.press("Enter")
    on_lesson(page, 4)
    assert page.evaluate("() => document.activeElement.getAttribute('aria-current')") == "step"
    page.get_by_role("radio", name="ssm-stories").wait_for()
    page.locator("body").press("p")
    on_lesson(page, 3)
    page.locator("#learn-previous").click()
    on_lesson(page, 2)
    assert [row[0] for row in rows(page, 1)] == ["▸ a dialogue"], "the run is still there"
    said(page, "Finished: ", "learn")


def test_what_is_finished_and_where_one_was_stays_in_the_browser(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = opened(browser_page, short[0], "lesson=5")
    on_lesson(page, 5)
    page.click("#learn-run")
    rows(page, 1)
    stats = short[1].store.runs(RunQuery()).rows[0].stats
    page.locator("#learn-number input").fill(str(stats.num_new_tokens - stats.num_accepted_tokens))
    page.click("#learn-check")
    verdict(page, "Right. ")
    page.locator(".sp-step[aria-current] .sp-tick").wait_for()
    frames(page)  # what the browser keeps comes with it
    page.goto(short[0] + "?__theme=light")
    ready(page)
    turn_to(page, "Learn")
    on_lesson(page, 5)
    page.locator(".sp-step[aria-current] .sp-tick").wait_for()
    assert page.locator(".sp-tick").count() == 1


def test_a_lesson_follows_models_that_were_loaded(tmp_path: Path, browser_page: OpenPage) -> None:
    loader = Loader(lambda: FakeWorker(recorded(8)))
    with hosted(tmp_path, Rig(other_worker("small"), loader, Pair("other", ("small",)))) as made:
        page = opened(browser_page, made[0], "lesson=4")
        on_lesson(page, 4)
        verdict(page, "needs 2 small models (SSMs), and only one is loaded")
        page.locator("#learn-run[disabled]").wait_for()
        turn_to(page, "Models")
        said(page, re.compile("Loaded|loaded"), "models")
        page.click("#models-load")
        said(page, re.compile(r"Loaded in "), "models")
        turn_to(page, "Learn")
        verdict(page, "Run the example first.")
        page.get_by_role("radio", name="ssm-stories").wait_for()
        page.click("#learn-run")
        rows(page, 1)


def test_a_lesson_goes_into_live(short: tuple[str, Context], browser_page: OpenPage) -> None:
    page = opened(browser_page, short[0], "lesson=3")
    on_lesson(page, 3)
    page.click("#learn-into-live")
    said(page, "These settings are in the form now")
    until(page, lambda: "small village" in page.locator("#prompt textarea").input_value())
    until(page, lambda: "lesson" not in query(page))


# -- links --


def test_the_address_follows_what_is_open(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0], forgiven=LEAVING))
    assert query(page) == {"__theme": ["light"]}
    turn_to(page, "Learn")
    on_lesson(page, 1)
    until(page, lambda: query(page).get("lesson") == ["1"])
    page.click("#learn-next")
    on_lesson(page, 2)
    until(page, lambda: query(page).get("lesson") == ["2"])
    page.click("#learn-run")
    rows(page, 1)
    turn_to(page, "Sessions")
    until(page, lambda: query(page).get("tab") == ["sessions"])
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    until(page, lambda: "run" in query(page) and "tab" not in query(page))
    slider = page.locator("#sessions-scrub input[type=number]")
    slider.fill("3")
    slider.press("Enter")
    until(page, lambda: query(page).get("round") == ["3"])
    run = query(page)["run"]
    turn_to(page, "Live")
    until(page, lambda: query(page) == {"__theme": ["light"]})
    page.goto(f"{short[0]}?__theme=light&run={run[0]}&round=3")
    said(page, "you are at round 3 of", "sessions")
    page.get_by_role("tab", name="Sessions", selected=True).wait_for()
    until(page, lambda: slider.input_value() == "3")
    page.locator(".sp-selected .sp-open").wait_for()
    assert query(page)["run"] == run and query(page)["__theme"] == ["light"]
    figures = page.locator("#sessions-figures")
    until(page, lambda: 0 <= figures.bounding_box()["y"] < 400)  # a hall is shown the run, no list


def test_the_link_is_copied(short: tuple[str, Context], browser_page: OpenPage) -> None:
    page = opened(browser_page, short[0], "lesson=6&large=1")
    on_lesson(page, 6)
    page.locator("html.ss-large").wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#learn-copy")
    page.locator("#learn-copy[data-told=Copied]").wait_for()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert parse_qs(urlsplit(copied).query) == {"lesson": ["6"], "large": ["1"]}
    page.click("#learn-run")
    rows(page, 1)
    turn_to(page, "Sessions")
    assert page.locator("#sessions-copy").is_hidden()
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    until(page, lambda: {"run", "round"} <= set(query(page)))
    page.click("#sessions-copy")
    page.locator("#sessions-copy[data-told=Copied]").wait_for()
    copied = parse_qs(urlsplit(page.evaluate("() => navigator.clipboard.readText()")).query)
    assert set(copied) == {"run", "round", "large"}


@pytest.mark.parametrize(
    ("link", "tab", "words"),
    [
        ("tab=tuna", "Live", "tab is 'tuna': one of live"),
        ("lesson=99", "Learn", "lesson is '99': a number from 1 to 8"),
        ("run=%3Cimg%20onerror%3Dalert(1)%3E&round=2", "Sessions", "no such run"),
        ("tab=sessions&round=2&lesson=", "Sessions", "Open a run from the list"),
    ],
)
def test_a_link_that_leads_nowhere_says_so(
    short: tuple[str, Context], browser_page: OpenPage, link: str, tab: str, words: str
) -> None:
    page = opened(browser_page, short[0], link)
    page.get_by_text(words).first.wait_for()
    page.get_by_role("tab", name=tab, selected=True).wait_for()


# -- the bundled models --


def test_a_newcomer_goes_through_lesson_1_on_the_bundled_models(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = opened(browser_page, real[0], "lesson=1")
    on_lesson(page, 1)
    page.click("#learn-run")
    one, eight = rows(page, 2)
    assert one[1] == "1" and eight[1] == "8"
    page.locator("#learn-number input").fill(f"{float(eight[2]) / float(one[2]):.1f}")
    page.click("#learn-check")
    verdict(page, "Right. 8 tokens took as long as ")
    page.click("#learn-try")
    assert rows(page, 3)[2][1] == "16"
    page.locator("#learn-strip .ss-tok").first.wait_for()
    shot(page, "learn-bundled")
