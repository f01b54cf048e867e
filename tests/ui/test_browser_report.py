"""A report in a real Chromium, from disk: the pictures of the page, and no request to anybody.

Every test also fails if the report logs an error or asks a host for anything (conftest).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.page.looks import at_rest
from core.events import Event
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui.fakes import recorded
from tests.ui.reports import Place, Report
from tests.ui.sites import OpenPage, OpenSite, overflows, ready, said, sessions, shot
from tests.ui.test_law6_report import kept, run_of
from ui.report import report_html
from ui.values import PICTURES

pytestmark = pytest.mark.browser

OpenReport = Callable[..., Any]

# What a picture says: its elements with their classes, states and labels, and its texts, in order.
# Of a chart, which Plotly draws, its label and its texts.
SAID = """(selector) => {
  const said = [];
  const KEPT = /^(class|role|hidden|tabindex|title|aria-(?!labelledby|describedby).*|data-.*)$/;
  const passing = ["data-pending", "data-zoom", "data-unformatted", "data-noexport"];
  const chart = (node) => said.push(node.getAttribute("aria-label"),
    ...[...node.querySelectorAll("text")].map((text) => text.textContent));
  const says = ({ name }) => KEPT.test(name) && !passing.includes(name);
  const visit = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data && said.push(node.data);
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    if (node.classList.contains("js-plotly-plot")) return chart(node);
    const own = [...node.attributes].filter(says);
    said.push([node.tagName, ...own.map(({ name, value }) => `${name}=${value}`).sort()].join(" "));
    node.childNodes.forEach(visit);
  };
  const panel = document.querySelector(selector + " .ss-panel");
  if (panel) visit(panel);
  return said;
}"""
SAME = f"([selector, wanted]) => JSON.stringify(({SAID})(selector)) === wanted"
VALUES = """async (places) => {
  const { recordingOf } = await import("specscope/recording.js");
  const recording = recordingOf(JSON.parse(await window.specscope.opened("run")));
  return places.map((place) => recording.values(place));
}"""


@pytest.fixture
def open_report(tmp_path: Path, browser_page: OpenPage) -> OpenReport:
    """`open_report(events, width=..., dark=...)`: the report of a run, opened from disk."""

    def opened(events: Any, **options: Any) -> Any:
        path = tmp_path / f"{events[0].run_id}.html"
        path.write_text(report_html(events), encoding="utf-8")
        page = browser_page(path.as_uri(), **options)
        page.locator("body[data-ready]").wait_for()
        return settled(page)

    return opened


def settled(page: Any) -> Any:
    """Every picture is drawn."""
    at_rest(page)
    return page


# -- the same as on the page --


@pytest.mark.parametrize("name", ["specinfer-0.8", "votes", "hostile-failed"])
def test_the_report_is_the_board_of_the_page(
    name: str, site: OpenSite, browser_page: OpenPage, open_report: OpenReport
) -> None:
    url, context = site(recorded(1))
    events = run_of(name)
    kept(context.store, events)  # type: ignore[arg-type]
    board = ready(browser_page(url))
    sessions(board)
    board.locator(".sp-open").first.click()
    board.locator("#sessions-tree .ss-panel").wait_for()
    report = open_report(events)
    alike(board, report)
    for there, here in ((board, "sessions"), (report, "report")):
        to_round(there, here, 2)
    said(board, "you are at round 2 of", "sessions")
    alike(board, report)
    for there, here in ((board, "sessions"), (report, "report")):
        there.locator(f"#{here}-strip .ss-round").first.click()
        there.locator(f"#{here}-strip .ss-round[aria-pressed=true]").first.wait_for()
    alike(board, report)
    for there, here in ((board, "sessions"), (report, "report")):
        there.locator(f"#{here}-tree .ss-node[data-key='0']").click()
        there.locator(f"#{here}-tree .ss-node[data-key='0'][aria-pressed=true]").wait_for()
    alike(board, report)


def to_round(page: Any, where: str, number: int) -> None:
    scrub = page.locator(f"#{where}-scrub input[type=range], input#{where}-scrub")
    scrub.focus()
    page.keyboard.press("Home")
    for _ in range(number):
        page.keyboard.press("ArrowRight")


def alike(board: Any, report: Any) -> None:
    """Wait until both say the same in every picture; then they are held to it."""
    for name in PICTURES:
        settled(report).locator(f"#report-{name}").scroll_into_view_if_needed()
        if name in ("lengths", "timeline"):
            report.locator(f"#report-{name} .js-plotly-plot").wait_for()
        settled(report)
        wanted = report.evaluate(SAID, f"#report-{name}")
        assert len(wanted) > 20, name
        board.locator(f"#sessions-{name}").scroll_into_view_if_needed()
        text = json.dumps(wanted, ensure_ascii=False, separators=(",", ":"))
        try:
            board.wait_for_function(SAME, arg=[f"#sessions-{name}", text], timeout=5000)
        except Exception:  # what differs is told below
            assert board.evaluate(SAID, f"#sessions-{name}") == wanted, name


@pytest.mark.parametrize("name", ["best-0.8", "hostile-completed"])
def test_the_browser_reads_the_values_that_python_reads(name: str, open_report: OpenReport) -> None:
    events = run_of(name)
    report = Report(report_html(events))
    places = [Place(stop) for stop in reversed(range(report.stops))]
    places += [Place(stop, 0, 0) for stop in range(1, report.stops)]
    places += [Place(report.stops - 1, 1, node, True) for node in range(-1, 3)]
    asked = [{"stop": p.stop, "round": p.round, "node": p.node, "moving": p.moving} for p in places]
    found = open_report(events).evaluate(VALUES, asked)
    for place, values in zip(places, found, strict=True):
        assert values == json.loads(json.dumps(report.pictures(place))), place


# -- what a reader does --


def at(page: Any) -> str:
    return str(page.locator("#report-at").inner_text())


def test_a_reader_steps_plays_and_selects(open_report: OpenReport) -> None:
    page = open_report(synthetic_run(8))
    assert at(page) == "Round 8 of 8"
    whole = page.locator("#report-strip .ss-text").inner_text()
    page.click("#report-rewind")
    assert at(page) == "Round 0 of 8"
    page.locator("#report-notice").get_by_text("you are at round 0 of 8").wait_for()
    for _ in range(4):
        page.keyboard.press(".")
    assert at(page) == "Round 1 of 8"
    page.keyboard.press(",")
    page.locator("#report-notice").get_by_text("you are at round 1 of 8, verified").wait_for()
    page.click("#report-rewind")
    for number in (1, 2):
        page.click("#report-round-next")
        assert at(page) == f"Round {number} of 8", "past the last one shown"
        page.locator(
            f"#report-strip .ss-round[data-r='{number - 1}'][aria-pressed=true]"
        ).wait_for()
    page.click("#report-round-previous")
    page.locator("#report-strip .ss-round[data-r='0'][aria-pressed=true]").wait_for()
    assert at(page) == "Round 2 of 8"
    page.select_option("#report-speed", "4")  # not so fast that Pause is over before it is seen
    page.click("#report-play")
    page.locator("#report-play").get_by_text("Pause").wait_for()
    page.locator("#report-play").get_by_text("Play").wait_for()
    assert at(page) == "Round 8 of 8"
    settled(page)
    assert page.locator("#report-strip .ss-text").inner_text() == whole
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("ArrowLeft")
    page.locator("#report-strip .ss-round[data-r='6'][aria-pressed=true]").wait_for()
    page.keyboard.press("Escape")
    page.locator("#report-strip .ss-round[data-r='7'][aria-pressed=true]").wait_for()
    page.keyboard.press(" ")
    page.locator("#report-play").get_by_text("Pause").wait_for()
    page.keyboard.press(" ")
    page.locator("#report-play").get_by_text("Play").wait_for()


def test_an_interrupted_run_is_gone_through_to_its_torn_round(open_report: OpenReport) -> None:
    page = open_report(synthetic_run(3)[:-1])
    assert at(page) == "Round 3 of 3"
    page = open_report(synthetic_run(3)[:-3])
    assert at(page) == "Round 2 of 2"
    page.click("#report-rewind")
    for number in (1, 2, 3):
        page.click("#report-round-next")
        page.locator("#report-notice").get_by_text(
            f"you are at round {number} of 2" if number < 3 else "Interrupted: "
        ).wait_for()


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_every_picture_is_saved(kind: str, open_report: OpenReport, tmp_path: Path) -> None:
    page = open_report(synthetic_run(4))
    for name in PICTURES:
        place = page.locator(f"#report-{name}")
        with page.expect_download() as waiting:
            place.get_by_role("button", name=f"as {kind.upper()}").click()
        path = tmp_path / f"{name}.{kind}"
        waiting.value.save_as(path)
        data = path.read_bytes()
        if kind == "svg":
            assert data.startswith(b"<svg") and b"IBM Plex Sans" in data and b"woff2" in data
        else:
            assert data.startswith(b"\x89PNG") and len(data) > 3000


def test_hostile_text_stays_text(open_report: OpenReport) -> None:
    page = open_report(synthetic_run(10, hostile=True, end="failed"))
    for _ in range(6):
        page.click("#report-step-back")
    settled(page)
    assert page.evaluate("() => 'pwned' in globalThis") is False
    assert not page.locator("img, iframe, object").count()
    assert HOSTILE_TEXTS[0] in page.locator(".rp-prompt").inner_text()
    assert not overflows(page)
    shot(page, "report-hostile-1280-light")


LOOKS = [(1280, False), (1280, True), (390, False), (390, True), (1920, True)]


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_it_looks_as_it_should(
    width: int, dark: bool, open_report: OpenReport, axe: Callable[..., list[str]]
) -> None:
    page = open_report(list(run_of("specinfer-0.0")), width=width, dark=dark)
    page.locator("#report-timeline .js-plotly-plot").wait_for()
    assert not overflows(page)
    assert axe(page, "body") == []
    if not dark:
        page.click("#report-large")
        settled(page)
        assert not overflows(page)
        page.click("#report-large")
    shot(page, f"report-{width}-{'dark' if dark else 'light'}")


def test_on_paper_there_is_no_bar(open_report: OpenReport) -> None:
    page = open_report(synthetic_run(6))
    page.emulate_media(media="print")
    assert not page.locator(".rp-playback").is_visible()
    assert page.locator("#report-tree").is_visible()
    shot(page, "report-print")
    page.emulate_media(media="screen")


def test_control_a_changed_text_is_another_picture(open_report: OpenReport) -> None:
    events: list[Event] = synthetic_run(4)
    one = open_report(events).evaluate(SAID, "#report-figures")
    other = open_report(synthetic_run(5)).evaluate(SAID, "#report-figures")
    assert one and one != other
