"""The page in a real Chromium: the reason of a refusal is in sight, and nothing shines through."""

from __future__ import annotations

import pytest

from tests.ui.sites import OpenPage, Served, appeared, number_box, ready

pytestmark = pytest.mark.browser

TABS = ("live",)
IN_SIGHT = """() => ["#live-validity .sp-error", "#field-record_top_k input"].every((what) => {
  const box = document.querySelector(what)?.getBoundingClientRect();
  return box?.height > 0 && box.top >= 0 && box.bottom <= innerHeight; })"""
# Labels of fields that lie behind the bar, however far one scrolls, and whether the bar is what is
# seen there.
BEHIND = """() => { const bar = document.querySelector(".sp-runbar"), seen = [];
  for (let top = 300; top < 1100; top += 40) {
    window.scrollTo(0, top);
    const box = bar.getBoundingClientRect();
    for (const label of document.querySelectorAll(".sp-controls [data-testid=block-info]")) {
      const own = label.getBoundingClientRect();
      const [x, y] = [own.left + own.width / 4, own.top + own.height / 2];
      const behind = own.width && y > box.top + 2 && y < box.bottom - 2 && !bar.contains(label);
      if (behind) seen.push([label.textContent, bar.contains(document.elementFromPoint(x, y))]);
    }
  }
  return seen; }"""


def test_the_reason_of_a_refusal_is_near_the_field(short: Served, browser_page: OpenPage) -> None:
    page = ready(browser_page(short[0], height=800))
    page.get_by_text("Every setting of the engine").click()
    field = number_box(page, "field-record_top_k")
    reason = page.locator("#live-validity").get_by_text("record_top_k is 99")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        field.fill("5")
        reason.wait_for(state="detached")
        appeared(page)
        field.evaluate("(node) => node.scrollIntoView({ block: 'center' })")
        field.fill("99")
        reason.wait_for()
        page.wait_for_function(IN_SIGHT)
        if width == 1280:
            behind = page.evaluate(BEHIND)
            assert len(behind) > 5 and all(bar for _, bar in behind), behind
