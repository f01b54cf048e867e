"""A report opened from disk in a real Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from core.events import Event
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui import decoded
from tests.ui.browser.looks import at_rest
from tests.ui.fakes import recorded
from tests.ui.past import about
from tests.ui.reading import becomes, read, saved_file
from tests.ui.reports import Place, Report
from tests.ui.sites import (
    LEAVING,
    Axe,
    OpenPage,
    OpenSite,
    all_panes,
    overflows,
    sessions,
    shot,
    wait_notice,
    wait_ready,
)
from tests.ui.test_law6_report import run_of, stored_run
from ui.report import report_html
from ui.run.values import PICTURES as EVERY_PICTURE

pytestmark = pytest.mark.browser

PICTURES = tuple(name for name in EVERY_PICTURE if name != "routing")
"""The pictures of a run without routing."""

TABS = ("live", "sessions")
OpenReport = Callable[..., Any]
# A picture's form depends on its size, so Sessions and the report get the same sizes.
AS_LARGE = """
:is(#sessions-lengths, #sessions-timeline, #report-lengths, #report-timeline) .ss-plot {
  width: 560px !important; height: 300px !important; }
:is(#sessions-lengths, #report-lengths) .ss-choice { width: 560px !important; }
#sessions-lengths .ss-choice .ss-mini, #report-lengths .ss-choice .ss-mini {
  position: static !important; width: 560px !important; height: 140px !important; }
#sessions-tree#sessions-tree .ss-viewport, #report-tree .ss-viewport {
  width: 600px !important; height: 380px !important; flex: none !important; }"""
TALL = {"width": 1280, "height": 5000}
"""A window in which every picture is in sight."""

# For each picture: its elements with their classes, states and labels, and its texts. For a chart
# drawn by Plotly: its label and its texts.
SAID = """([where, names]) => {
  const OURS = "aria-(?!labelledby|describedby).*|data-(?!seen).*";
  const KEPT = new RegExp(`^(class|role|hidden|tabindex|title|${OURS})$`);
  const passing = ["data-pending", "data-zoom", "data-unformatted", "data-noexport"];
  const says = ({ name }) => KEPT.test(name) && !passing.includes(name);
  const saidOf = (panel) => {
    const said = [];
    const chart = (node) => said.push(node.getAttribute("aria-label"),
      ...[...node.querySelectorAll("text")].map((text) => text.textContent));
    const visit = (node) => {
      if (node.nodeType === Node.TEXT_NODE) return node.data && said.push(node.data);
      if (node.nodeType !== Node.ELEMENT_NODE) return;
      if (node.classList.contains("js-plotly-plot")) return chart(node);
      const own = [...node.attributes].filter(says).map(({ name, value }) => `${name}=${value}`);
      said.push([node.tagName, ...own.sort()].join(" "));
      node.childNodes.forEach(visit);
    };
    if (panel) visit(panel);
    return said;
  };
  return names.map((name) => saidOf(document.querySelector(`#${where}-${name} .ss-panel`)));
}"""
VALUES = """async (places) => {
  const { recordingOf } = await import("specscope/recording.js");
  const recording = recordingOf(JSON.parse(await window.specscope.opened("run")));
  return places.map((place) => recording.values(place));
}"""
SAME_VALUES = ("switches", "hostile-completed")
LOOKS = ((1920, True), (390, True), (1280, False))


@pytest.fixture
def open_report(tmp_path: Path, browser_page: OpenPage) -> OpenReport:
    """Opens a run's report from disk, in `page` or in a new browser page."""

    def open_file(events: Sequence[Event], page: Any = None, **options: Any) -> Any:
        path = tmp_path / f"{events[0].run_id}-{len(events)}.html"
        path.write_text(report_html(events), encoding="utf-8")
        if page is None:
            page = browser_page(path.as_uri(), **options)
        else:
            page.goto(path.as_uri())
        page.locator("body[data-ready]").wait_for()
        at_rest(page)
        return page

    return open_file


def test_the_report_is_the_board_of_the_page(
    site: OpenSite, browser_page: OpenPage, open_report: OpenReport
) -> None:
    url, context = site(recorded(1))
    board: Any = None
    report: Any = None
    figures = set()
    for name in ("votes", "hostile-failed"):
        events = run_of(name)
        run_id = stored_run(context.store, events)
        if board is None:
            board = browser_page(url, forgiven=LEAVING)
        else:  # reloaded, so that no hidden part holds anything of another run
            board.reload()
        sessions(all_panes(wait_ready(board)))
        board.add_style_tag(content=AS_LARGE)
        board.locator(".sp-open").click()
        about(board, run_id)
        board.set_viewport_size(TALL)
        report = open_report(events, report)
        report.add_style_tag(content=AS_LARGE)
        report.set_viewport_size(TALL)
        figures.add(str(alike(board, report)[PICTURES.index("figures")]))
        if name == "votes":
            alike_at_other_places(board, report)
        context.store.delete(run_id)
    hostile_text_stays_text(report)
    assert len(figures) == 2, "control: the pictures of two runs say two things"


def alike_at_other_places(board: Any, report: Any) -> None:
    both = ((board, "sessions"), (report, "report"))
    for page, where in both:
        decoded.select_round(page, 1, where)
    wait_notice(board, "you are at round 2 of", "sessions")
    alike(board, report)
    for page, where in both:
        decoded.select_round(page, 0, where)  # or the click could hit a node of round 2
        page.locator(f"#{where}-tree .ss-node[data-key='0']").click()
        page.locator(f"#{where}-tree .ss-node[data-key='0'][aria-pressed=true]").wait_for()
    alike(board, report)


def hostile_text_stays_text(report: Any) -> None:
    assert report.evaluate("() => 'pwned' in globalThis") is False
    assert not report.locator("img, iframe, object").count()
    assert HOSTILE_TEXTS[0] in report.locator(".rp-prompt").inner_text()
    assert not overflows(report)
    shot(report, "report-hostile-1280-light")


def alike(board: Any, report: Any) -> list[list[str]]:
    for chart in ("lengths", "timeline"):
        report.locator(f"#report-{chart} .js-plotly-plot").wait_for()
    at_rest(report)
    expected = report.evaluate(SAID, ["report", PICTURES])
    assert all(len(one) > 20 for one in expected), dict(zip(PICTURES, expected, strict=True))
    becomes(board, SAID, expected, ["sessions", PICTURES], every_ms=100.0)
    return list(expected)


def test_the_browser_reads_the_values_that_python_reads(open_report: OpenReport) -> None:
    page = None
    for name in SAME_VALUES:
        events = run_of(name)
        report = Report(report_html(events))
        places = [Place(stop) for stop in reversed(range(report.stops))]
        places += [Place(stop, 0, 0) for stop in range(1, report.stops)]
        places += [Place(report.stops - 1, 1, node, True) for node in range(-1, 3)]
        asked = [vars(place) for place in places]
        page = open_report(events, page)
        for place, values in zip(places, page.evaluate(VALUES, asked), strict=True):
            assert values == json.loads(json.dumps(report.pictures(place))), (name, place)


def bar_says(page: Any, words: str) -> None:
    becomes(page, "() => document.querySelector('#report-scrubber .ss-at').innerText", words)


def notice_says(page: Any, words: str) -> None:
    page.locator("#report-notice").get_by_text(words).wait_for()


def selects_round(page: Any, number: int) -> None:
    """`number` is counted from 0."""
    page.locator(f"#report-strip .ss-round[data-r='{number}'][aria-pressed=true]").wait_for()


STAGE = "() => document.querySelector('#report-tree .ss-stage[aria-current]')?.dataset.stage"


def a_step_is_from_the_selected_round_and_hides_nothing(page: Any, whole: str) -> None:
    page.locator("#report-scrubber [data-r='3']").click()
    for key, number, stage in (
        (".", 5, "draft"),
        (".", 5, "combine"),
        (",", 5, "draft"),
        (",", 4, "commit"),
        (",", 4, "verify"),
    ):
        page.keyboard.press(key)
        bar_says(page, f"Round {number} of 8")
        becomes(page, STAGE, stage)
        assert page.locator("#report-strip .ss-text").inner_text() == whole
    page.select_option("#report-speed", "0.5")  # the next round comes two seconds later
    page.click("#report-play")
    page.locator("#report-play").get_by_text("❚❚").wait_for()
    page.click("#report-rewind")
    page.keyboard.press(",")
    bar_says(page, "Round 0 of 8")


def test_a_reader_steps_plays_selects_saves_and_prints(open_report: OpenReport) -> None:
    page = open_report(synthetic_run(8))
    whole = page.locator("#report-strip .ss-text").inner_text()
    a_step_is_from_the_selected_round_and_hides_nothing(page, whole)
    page.click("#report-rewind")
    bar_says(page, "Round 0 of 8")
    notice_says(page, "you are at round 0 of 8")
    for _ in range(4):
        page.keyboard.press(".")
    bar_says(page, "Round 1 of 8")
    page.keyboard.press(",")
    notice_says(page, "you are at round 1 of 8, verified")
    page.click("#report-rewind")
    for number in (1, 2):
        page.click("#report-round-next")
        bar_says(page, f"Round {number} of 8")  # the rewind had hidden this round
        selects_round(page, number - 1)
    page.click("#report-round-previous")
    selects_round(page, 0)
    bar_says(page, "Round 1 of 8")
    page.locator("#report-scrubber [data-r='5']").click()  # a round that the reader has not reached
    bar_says(page, "Round 6 of 8")
    page.click("#report-rewind")
    page.click("#report-play")
    page.locator("#report-play").get_by_text("❚❚").wait_for()
    page.select_option("#report-speed", "20")
    page.locator("#report-play").get_by_text("▶").wait_for()
    bar_says(page, "Round 8 of 8")
    becomes(page, "() => document.querySelector('#report-strip .ss-text').innerText", whole)
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("ArrowLeft")
    selects_round(page, 6)
    page.keyboard.press("l")
    selects_round(page, 7)
    page.select_option("#report-speed", "0.5")  # so slow that only a key ends the playing
    page.keyboard.press(" ")
    page.locator("#report-play").get_by_text("❚❚").wait_for()
    page.keyboard.press(" ")
    page.locator("#report-play").get_by_text("▶").wait_for()

    page.set_viewport_size(TALL)
    at_rest(page)
    for name, kind in (("tree", "SVG"), ("timeline", "SVG"), ("strip", "PNG")):
        page.locator(f"#report-{name} .ss-tools").hover()  # a picture's buttons fold into one
        button = page.locator(f"#report-{name}").get_by_role("button", name=f"as {kind}")
        _, data = saved_file(page, button.click)
        if kind == "SVG":
            assert data.startswith(b"<svg") and b"IBM Plex Sans" in data and b"woff2" in data
        else:
            assert data.startswith(b"\x89PNG") and len(data) > 3000

    page.emulate_media(media="print")
    assert not page.locator("#report-scrubber").is_visible()
    assert page.locator("#report-tree").is_visible()
    shot(page, "report-print")
    page.emulate_media(media="screen")


SLIDE = """() => ["figures", "strip", "tree", "scrubber"].filter((name) => {
  const box = document.querySelector(`#report-${name}`).getBoundingClientRect();
  return !(box.top >= 0 && box.bottom <= innerHeight && box.width > 100 && box.height > 30);
})"""
SCROLLS = "() => document.documentElement.scrollHeight > innerHeight"


def test_embedded_in_a_slide_it_has_no_chrome_and_opens_at_a_round(
    browser_page: OpenPage, tmp_path: Path
) -> None:
    file, slide = tmp_path / "report.html", tmp_path / "slide.html"
    file.write_text(report_html(synthetic_run(8)), encoding="utf-8")
    link = f"{file.name}?embed=1&round=3&stage=verify&node=1"
    slide.write_text(f'<iframe src="{link}" width="960" height="540"></iframe>', "utf-8")
    page = browser_page(slide.as_uri())
    frame = page.frames[1]
    frame.locator("body[data-ready]").wait_for()
    for hidden in (".rp-head", ".rp-foot", "#report-notice", "#report-inspector"):
        assert not frame.locator(hidden).is_visible(), hidden
    frame.wait_for_function(f"() => ({SLIDE})().length === 0 && !({SCROLLS})()")
    assert frame.evaluate(SLIDE) == [] and not frame.evaluate(SCROLLS)
    at = frame.locator("#report-scrubber .ss-at")
    becomes(frame, PLACE, ["Round 3 of 8", "verify", "1"])
    frame.locator("#report-tree").get_by_text("Round 3").wait_for()
    at.click()  # from now on, keys go to the slide's frame
    page.keyboard.press("ArrowRight")
    at.get_by_text("Round 4 of 8").wait_for()
    becomes(frame, QUERY, {"embed": "1", "round": "4"})
    shot(page, "report-embedded")
    page.goto(f"{file.as_uri()}?round=6")
    bar_says(page, "Round 6 of 8")
    page.keyboard.press("ArrowLeft")
    bar_says(page, "Round 5 of 8")
    becomes(page, QUERY, {"round": "5"})


QUERY = "() => Object.fromEntries(new URLSearchParams(location.search))"
PLACE = """() => [document.querySelector("#report-scrubber .ss-at").textContent,
  document.querySelector("#report-tree .ss-stage[aria-current]").dataset.stage,
  ...[...document.querySelectorAll("#report-tree .ss-node[aria-pressed=true]")]
    .map((node) => node.dataset.key)]"""


def test_its_address_names_round_stage_and_node_and_leads_back_to_them(
    browser_page: OpenPage, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_html(synthetic_run(8)), encoding="utf-8")
    place = {"round": "3", "stage": "verify", "node": "1"}

    def opens(fields: dict[str, str], *at: str) -> Any:
        """Returns the locator of the line about a wrong link."""
        page.goto(f"{file.as_uri()}?{urlencode(fields)}")
        page.locator("body[data-ready]").wait_for()
        becomes(page, PLACE, [f"Round {at[0]} of 8", *at[1:]])
        return page.locator("#report-notice").get_by_text("This link is wrong: ")

    page = browser_page(file.as_uri())
    page.locator("body[data-ready]").wait_for()
    usual = read(page, PLACE)[0].split()[1]
    assert not opens(place, "3", "verify", "1").count()
    becomes(page, QUERY, place)
    page.keyboard.press(",")
    becomes(page, QUERY, {"round": "3", "stage": "combine"})
    page.locator("#report-tree .ss-node[data-key='2']").press("Enter")
    becomes(page, QUERY, {"round": "3", "node": "2"})
    said = opens({"round": "3", "stage": "judge", "node": "99"}, "3", "commit").text_content()
    assert "stage is 'judge': it must be one of draft, combine, verify, commit" in said
    assert "node is '99': it must be -1, the root" in said
    wrong = opens(place | {"round": "99"}, usual, "verify")
    words = "round is '99': it must be a number from 1 to 8 (shown instead: round"
    assert words in wrong.text_content()
    page.keyboard.press(",")
    wrong.wait_for(state="detached")


def test_an_interrupted_run_is_gone_through_to_its_torn_round(open_report: OpenReport) -> None:
    page = open_report(synthetic_run(3)[:-3])
    assert page.locator("#report-scrubber .ss-column").count() == 2
    page.click("#report-rewind")
    for number in (1, 2, 3):
        page.click("#report-round-next")
        notice_says(page, f"you are at round {number} of 2" if number < 3 else "Interrupted: ")


def test_it_looks_right(open_report: OpenReport, axe: Axe) -> None:
    page = open_report(synthetic_run(8), dark=True)
    page.locator("#report-timeline .js-plotly-plot").wait_for()
    assert page.evaluate("() => document.documentElement.classList.contains('dark')")
    for width, dark in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        if page.locator("#report-dark").get_attribute("aria-pressed") != str(dark).lower():
            page.click("#report-dark")
        at_rest(page)
        assert not overflows(page), (width, dark)
        if width < 1920:
            assert axe(page, "body") == [], (width, dark)
        shot(page, f"report-{width}-{'dark' if dark else 'light'}")
        if width < 1920:
            page.click("#report-large")
            at_rest(page)
            assert not overflows(page), (width, "large")
            page.click("#report-large")
