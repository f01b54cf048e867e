"""SSMs that drafted at once in a real Chromium: every bar is drawn, and says what is counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.components.gallery import scenes

pytestmark = pytest.mark.browser

Show = Callable[..., Any]
PLOT = "document.querySelector('.ss-timeline .ss-plot')"
SHARED_NAMES = ("draft", "catch up")


def value() -> dict[str, Any]:
    return dict(scenes()["together"]()["timeline"])


def bars_of(page: Any) -> list[dict[str, Any]]:
    """Every round's bars: what each says on hover, and where it lies."""
    page.wait_for_function(f"{PLOT}?.data")
    page.get_by_role("button", name="Show every round").click()
    wanted = sum(len(own) for own in value()["bars"].values())
    page.wait_for_function(f"{PLOT}.data[0].base.length === {wanted}")
    script = f"""{PLOT}.data[0].customdata.map((told, i) => ({{ told,
      lane: {PLOT}.data[0].y[i], start: {PLOT}.data[0].base[i], ms: {PLOT}.data[0].x[i] }}))"""
    found = list(page.evaluate(script))
    page.get_by_role("button", name="Show 5 rounds around").click()
    return found


def test_a_bar_is_as_long_as_it_took_and_says_what_is_counted(show: Show) -> None:
    wanted = [bar for own in value()["bars"].values() for bar in own.values()]
    for bar, span in zip(bars_of(show("together")), wanted, strict=True):
        length = span["end"] - span["start"]
        assert bar["ms"] == pytest.approx(length) and bar["start"] == span["start"]
        hover = bar["told"][6]
        if bar["told"][1] not in SHARED_NAMES:
            assert hover == "" and "own" not in span
            continue
        together = "caught up" if span["name"] == "catch_up" else "drafted"
        counted = f"{span['own']:.2f} ms of it are counted for this one"
        assert hover == f"<br>{together} together with the other SSMs;<br>{counted}"
        assert span["own"] == pytest.approx(length / 3, abs=1e-3)


def test_bars_of_the_same_time_are_all_in_sight(show: Show) -> None:
    page = show("together")
    page.wait_for_function(f"{PLOT}?.data")
    boxes = page.evaluate(
        f"""() => {{ const data = {PLOT}.data[0];
          const nodes = [...document.querySelectorAll(".ss-timeline .ss-plot .bars .point path")];
          return nodes.map((node, i) => ({{ told: data.customdata[i], lane: data.y[i],
            box: node.getBoundingClientRect().toJSON() }})); }}"""
    )
    drafts = [one for one in boxes if one["told"][0] == 4 and one["told"][1] == "draft"]
    assert sorted(one["lane"] for one in drafts) == [0, 1, 2]
    lefts = {round(one["box"]["left"]) for one in drafts}
    widths = {round(one["box"]["width"]) for one in drafts}
    assert len(lefts) == len(widths) == 1 and widths.pop() > 3
    rows = sorted((one["box"]["top"], one["box"]["bottom"]) for one in drafts)
    assert all(upper[1] <= lower[0] for upper, lower in zip(rows, rows[1:], strict=False))


def test_hovering_a_bar_shows_it(show: Show) -> None:
    page = show("together")
    page.wait_for_function(f"{PLOT}?.data")
    page.locator(".ss-timeline").scroll_into_view_if_needed()
    number = page.evaluate(
        f"{PLOT}.data[0].customdata.findIndex((told) => told[0] === 4 && told[1] === 'draft')"
    )
    box = page.locator(".ss-timeline .ss-plot .bars .point path").nth(number).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = page.locator(".ss-timeline .ss-plot .hoverlayer .hovertext")
    hover.wait_for()
    assert re.search(
        r"drafted together with the other SSMs;\s*[\d.]+ ms of it are counted", hover.text_content()
    )
    page.mouse.move(0, 0)


def test_the_table_tells_the_time_that_is_counted(show: Show) -> None:
    page = show("together", fresh=True)
    panel = page.locator("#picture-timeline")
    assert "each is counted for its part of it" in panel.inner_text()
    panel.get_by_role("button", name="as a table").click()
    table = panel.locator("table", has=page.locator("caption", has_text="What every worker did"))
    assert "SSMs that drafted together share that time" in table.locator("caption").inner_text()
    head, *rows = table.evaluate(
        "table => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert head[4:6] == ["duration (ms)", "counted for it (ms)"]
    drafted = [row for row in rows if row[2] in SHARED_NAMES]
    for row in drafted:
        assert float(row[5]) == pytest.approx(float(row[4]) / 3, abs=0.01)
    assert all(row[4] == row[5] for row in rows if row[2] not in SHARED_NAMES)
    counted = sum(float(row[5]) for row in drafted)
    assert counted == pytest.approx(value()["share"]["draft"], abs=0.005 * len(drafted))


def test_a_run_one_after_another_is_told_as_ever(show: Show) -> None:
    page = show("commit", fresh=True)
    panel = page.locator("#picture-timeline")
    assert "together" not in panel.inner_text()
    panel.get_by_role("button", name="as a table").click()
    assert "counted" not in panel.locator("table").last.inner_text()
