"""What the node budget keeps drafts from, and what the inspector's numbers are, in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.components.conftest import turn
from tests.ui.components.gallery import scenes
from tests.ui.components.test_drawn_minions import tables

pytestmark = pytest.mark.browser

Show = Callable[..., Any]
DATA = "document.querySelector('.ss-lengths .ss-plot').data"


def test_a_length_that_the_budget_bounds_is_drawn_where_it_is_bound(show: Show) -> None:
    page = show("verify")
    before = scenes()["verify"]()["lengths"]
    asked = before["rounds"]["0"]["s"]
    page.wait_for_function(f"{DATA}?.[1].y[0] === {asked} && {asked} > 1")
    panel = page.locator("#picture-lengths")
    said = panel.locator(".ss-choice-said")
    assert said.inner_text() == "fixed: the length is always the one that was set."
    hidden = panel.locator(".ss-choice-none, .ss-choice .ss-mini")
    assert not hidden.filter(visible=True).count()
    turn(page, "budget")
    value = scenes()["budget"]()["lengths"]
    page.wait_for_function(f"{DATA}[1].y.every((length) => length === 1)")
    told = page.evaluate(f"{DATA}[1].text[0]")
    assert told == "drafts at most 1 deep, for the node budget (speculation length 8)"
    assert "depth allowed (dotted)" in panel.locator(".ss-plot").text_content()
    assert value["reason"] in said.inner_text()
    assert panel.locator(".ss-choice-budget").inner_text() == value["budget"]
    rounds = tables(page, "lengths")[2]
    assert rounds[0][3:] == ["depth allowed", "speculation length"]
    assert {tuple(row[3:]) for row in rounds[1:]} == {("1", "8")}, "what is drawn, what was asked"
    turn(page, "verify")
    assert tables(page, "lengths")[2][0][3:] == ["speculation length"], "no column twice"


def test_a_row_without_a_node_and_the_bars_say_why(show: Show) -> None:
    page = show("budget")
    values = scenes()["budget"]()
    why = page.locator("#picture-proposals .ss-no-node").filter(visible=True)
    assert why.all_inner_texts() == list(values["proposals"]["nodeless"].values())
    note = page.locator("#picture-inspector .ss-meant")
    assert note.inner_text() == values["inspector"]["meant"] and note.inner_text()
    turn(page, "verify")
    assert not page.locator(".ss-no-node").filter(visible=True).count()
    turn(page, "empty")
    assert note.is_hidden()


def test_only_what_was_drawn_is_said_to_be_drawn(show: Show) -> None:
    page = show("drawn")
    told = []
    for row, chip in ((0, 0), (0, 1), (1, 0)):
        own = page.locator("#picture-proposals tbody tr").nth(row).locator(".ss-chip")
        own.nth(chip).dispatch_event("pointerover")  # no scrolling, which would hide it again
        told.append(page.locator("#ss-tip").text_content())
    assert "drawn with0.250" in told[0] and "drawn with1" in told[1]
    assert "drawn with" not in told[2] and "score" in told[2]
