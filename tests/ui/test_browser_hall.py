"""The page in a lecture hall: large type everywhere, chips on one line, pictures for slides."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench.page.looks import (
    at_rest,
    cut_texts,
    keep_sizes,
    large_type,
    overflow,
    overlaps,
    small_texts,
    tabs,
    turn_to,
)
from tests.ui.fakes import recorded
from tests.ui.sites import LEAVING, OpenPage, OpenSite, drawn, ran, ready, said, shot, unfolded
from ui.context import Context

pytestmark = pytest.mark.browser


def each_tab(page: Any) -> Any:
    """The names of the page's tabs, each while it is open and drawn."""
    for name in tabs(page):
        turn_to(page, name)
        page.wait_for_timeout(500)
        if name == "Sessions":
            page.locator(".sp-open").first.click()
            said(page, "Finished: ", "sessions")
            drawn(page, "sessions")
        at_rest(page)
        yield name


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1920, True)])
def test_large_type_reaches_every_text_of_every_tab(
    short: tuple[str, Context], browser_page: OpenPage, width: int, dark: bool
) -> None:
    page = ran(unfolded(browser_page(short[0], width=width, dark=dark)))
    page.get_by_text("A preset of your own").click()
    page.locator("#live-timeline .js-plotly-plot").first.wait_for()
    for name in each_tab(page):
        assert keep_sizes(page) > 50
        large_type(page, True)
        shot(page, f"hall-{name.lower()}-{width}-{'dark' if dark else 'light'}")
        assert small_texts(page) == [], name
        assert cut_texts(page) == [], name
        assert overlaps(page) == [], name
        assert overflow(page) <= 1, name
        large_type(page, False)


BAD_TEXTS = """() => {
  document.body.innerHTML = `<div style="font: 20px monospace">
    <button style="width: 60px; white-space: nowrap; padding: 0">Step forward</button>
    <div style="width: 40px; overflow-wrap: anywhere">dialogue</div>
    <div style="width: 40px; overflow: hidden; white-space: nowrap">hidden in part</div>
    <button style="width: 300px">Step back</button>
    <div style="width: 120px; overflow-wrap: anywhere">whole words of a0b1c2d3e4f5a6b7c8d9 too</div>
  </div>`;
}"""


def test_control_cut_and_broken_texts_are_noticed(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    page.evaluate(BAD_TEXTS)
    told = [line.rpartition(": ")[2] for line in cut_texts(page)]
    assert told == ["Step forward", "dialogue", "hidden in part"]


def test_an_open_menu_is_large_too(short: tuple[str, Context], browser_page: OpenPage) -> None:
    page = ready(browser_page(short[0]))
    sizes = []
    for _ in range(2):
        page.locator("#preset input").click()
        option = page.get_by_role("option").first
        sizes.append(option.evaluate("(one) => parseFloat(getComputedStyle(one).fontSize)"))
        page.keyboard.press("Escape")
        page.locator("#preset input").blur()
        page.keyboard.press("t")
    assert sizes[1] > 1.15 * sizes[0]


def test_large_type_by_button_key_and_function_and_it_is_kept(
    short: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(short[0]))
    button = page.get_by_role("button", name="Large type")

    def large() -> bool:
        pressed = button.get_attribute("aria-pressed") == "true"
        assert page.evaluate("() => !!document.querySelector('html.ss-large')") == pressed
        return pressed

    assert not large()
    button.click()
    assert large()
    page.keyboard.press("t")
    assert not large()
    page.fill("#prompt textarea", "t")
    assert not large(), "a letter where one types"
    assert page.evaluate("() => specscopeLargeType(true)") is True
    assert large()
    page.reload()
    ready(page)
    assert large(), "kept in the browser"
    page.evaluate("() => specscopeLargeType(false, { keep: false })")
    assert not large()
    page.reload()
    ready(page)
    assert large(), "only for that visit"


CHIPS = ".sp-bar, .sp-chip, .sp-state, .sp-large"
PLACES = """(boxes) => boxes.map((box) => {
  const { left, top, width, height } = box.getBoundingClientRect();
  return [left, top, width, height].map(Math.round);
})"""


@pytest.mark.parametrize("large", [False, True])
def test_chips_are_on_one_line_and_stay_there_whatever_the_engine_does(
    long: tuple[str, Context], browser_page: OpenPage, large: bool
) -> None:
    page = ready(browser_page(long[0], forgiven=LEAVING))
    large_type(page, large)
    page.evaluate("() => document.fonts.ready.then(() => true)")  # they change how wide chips are
    chips = page.locator(CHIPS)
    before = chips.evaluate_all(PLACES)
    middles = {round(top + height / 2) for _, top, _, height in before}
    assert max(middles) - min(middles) <= 2, "one line"
    names = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length"
    assert page.locator(".sp-name").evaluate_all(names) == 0, "no name is cut"
    assert page.locator(".sp-bar").inner_text().count("float32") <= 1
    button = page.locator(".sp-large")
    button.focus()
    page.keyboard.press("r")
    page.locator(".sp-state-running").wait_for()
    assert chips.evaluate_all(PLACES) == before
    assert button.evaluate("(one) => one === document.activeElement"), "no focus is lost"
    page.click("#live-stop")
    said(page, "Stopped: ")
    assert chips.evaluate_all(PLACES) == before
    chip = page.locator(".sp-chip").nth(1)
    chip.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    told = chip.evaluate("(one) => getComputedStyle(one, '::after').content")
    assert "SSM A ssm-code: 1k parameters, float32, cpu" in told
    assert chip.get_attribute("aria-label") in told


@pytest.mark.parametrize("dark", [False, True])
def test_every_picture_of_every_tab_becomes_a_file_for_white_paper(
    site: OpenSite, browser_page: OpenPage, tmp_path: Path, dark: bool
) -> None:
    url, _ = site(recorded(20), speed=0.2)
    page = ran(ready(browser_page(url, dark=dark)))
    saved = 0
    for name in each_tab(page):
        for panel in page.locator(".ss-panel:has(.ss-tool)").all():
            if not panel.is_visible():
                continue
            panel.scroll_into_view_if_needed()
            at_rest(page)
            title = f"{name}: {panel.locator('.ss-title').inner_text()}"
            svg, png = (file_of(page, panel, form, tmp_path, title) for form in ("SVG", "PNG"))
            assert png.startswith(b"\x89PNG") and len(png) > 2000, title
            root = ET.fromstring(svg)
            paper = next(node for node in root.iter() if node.tag.endswith("}rect"))
            assert paper.get("fill") == "rgb(255, 255, 255)", title
            assert len("".join(root.itertext()).strip()) > 10, title
            assert b"href=" not in svg and b"url(http" not in svg and b"<image" not in svg, title
            saved += 1
    assert saved >= 16, "eight pictures of a board, in Live and in Sessions"


def file_of(page: Any, panel: Any, form: str, folder: Path, title: str) -> bytes:
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    try:
        with page.expect_download() as download:
            panel.get_by_role("button", name=f"as {form}").click()
    except PlaywrightTimeout as late:
        raise AssertionError(f"{title}: no {form} came") from late
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes()


def test_whoever_scrolls_the_text_up_stays_there_while_it_grows(
    site: OpenSite, browser_page: OpenPage
) -> None:
    url, _ = site(recorded(600))
    page = ready(browser_page(url, forgiven=LEAVING))
    page.click("#live-run")
    scroll = "document.querySelector('#live-strip .ss-scroll')"
    page.wait_for_function(f"() => {scroll}.scrollTop > 40")
    page.evaluate(f"() => {{ {scroll}.scrollTop = 0; }}")
    tokens = "() => Number([...document.querySelectorAll('#live-strip .ss-tok')].at(-1).dataset.i)"
    before = page.evaluate(tokens)
    page.wait_for_function(f"(before) => ({tokens})() > before + 60", arg=before)
    assert page.evaluate(f"() => {scroll}.scrollTop") == 0
    page.click("#live-stop")
    said(page, "Stopped: ")
