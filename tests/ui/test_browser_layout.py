"""The page in a real Chromium: nothing moves, everything grows, the reason is in sight."""

from __future__ import annotations

import pytest

from bench.page.looks import at_rest
from tests.ui.fakes import scripted
from tests.ui.sites import OpenPage, OpenSite, number_box, ran, ready, said, until, usable
from ui.context import Context

pytestmark = pytest.mark.browser

SIZES = """(parts) => Object.fromEntries(Object.entries(parts).map(
  ([name, what]) => [name, parseFloat(getComputedStyle(document.querySelector(what)).fontSize)],
))"""
PARTS = {
    "tabs": "[role=tab]",
    "run": "#live-run",
    "buttons": "#live-step",
    "prompt": "#prompt textarea",
    "labels": "#preset [data-testid=block-info]",
    "menus": "#preset input",
    "choices": "#live-onchange span",
    "keys": ".sp-keys p",
}


@pytest.mark.parametrize("dark", [False, True])
def test_large_type_reaches_tabs_form_and_buttons(
    short: tuple[str, Context], browser_page: OpenPage, dark: bool
) -> None:
    page = ready(browser_page(short[0], dark=dark))
    for part in PARTS.values():
        page.locator(part).first.wait_for()
    before = page.evaluate(SIZES, PARTS)
    page.get_by_role("button", name="Large type").click()

    def grown() -> bool:
        after = page.evaluate(SIZES, PARTS)
        return all(after[name] > 1.15 * size for name, size in before.items())

    until(page, grown)  # buttons change their size with a transition


TOPS = """(ids) => Object.fromEntries(ids.map((id) =>
  [id, Math.round(document.getElementById(id).getBoundingClientRect().top + scrollY)]))"""
PICTURES = ("figures", "strip", "tree", "legend", "inspector", "lengths")
PLACES = [*(f"live-{name}" for name in ("playback", *PICTURES)), "preset"]


@pytest.mark.parametrize("width", [1280, 1920])
def test_nothing_moves_when_figures_and_notices_come(
    site: OpenSite, browser_page: OpenPage, width: int
) -> None:
    url, _ = site(scripted(8))
    page = ready(browser_page(url, width=width))
    for name in PICTURES:
        page.locator(f"#live-{name} .ss-panel").wait_for()
    page.evaluate("() => document.fonts.ready.then(() => true)")
    at_rest(page)
    tops = page.evaluate(TOPS, PLACES)
    page.click("#live-prove")
    said(page, "there is no run yet")
    assert page.evaluate(TOPS, PLACES) == tops, "an error"
    ran(page)
    page.click("#live-prove")
    said(page, "Identical: ")
    page.locator("#live-figures").get_by_text("measured", exact=True).wait_for()
    assert page.evaluate(TOPS, PLACES) == tops, "figures, a proof, a baseline"
    page.get_by_text("Sampling", exact=True).click()
    usable(page, number_box(page, "sampling-top_p")).fill("7")
    page.locator("#live-validity").get_by_text("top_p is 7").wait_for()
    assert page.evaluate(TOPS, PLACES) == tops, "a refusal"


# Labels of fields that lie behind the bar, and whether the bar is what is seen there.
BEHIND = """() => { const bar = document.querySelector(".sp-runbar");
  const [box, seen] = [bar.getBoundingClientRect(), []];
  for (const label of document.querySelectorAll(".sp-controls [data-testid=block-info]")) {
    const own = label.getBoundingClientRect();
    const [x, y] = [own.left + own.width / 4, own.top + own.height / 2];
    const behind = own.width && y > box.top + 2 && y < box.bottom - 2 && !bar.contains(label);
    if (behind) seen.push([label.textContent, bar.contains(document.elementFromPoint(x, y))]);
  }
  return seen; }"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_reason_of_a_refusal_is_in_sight_of_the_field(
    short: tuple[str, Context], browser_page: OpenPage, width: int
) -> None:
    page = ready(browser_page(short[0], width=width, height=800))
    page.get_by_text("Every setting of the engine").click()
    field = usable(page, number_box(page, "field-record_top_k"))
    field.evaluate("(node) => node.scrollIntoView({ block: 'center' })")
    field.fill("99")
    reason = page.locator("#live-validity").get_by_text("record_top_k is 99")
    reason.wait_for()
    for what in (reason, field):
        box = what.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 800
    if width < 800:
        return
    behind = []
    for top in range(300, 1100, 40):
        page.evaluate("(top) => window.scrollTo(0, top)", top)
        behind += page.evaluate(BEHIND)
    assert len(behind) > 5 and all(bar for _, bar in behind), behind
