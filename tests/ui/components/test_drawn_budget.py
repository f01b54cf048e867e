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
    rounds = tables(page, "lengths")[0]
    assert {row[3] for row in rounds[1:]} == {"8"}, "the table has what was asked for"


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
