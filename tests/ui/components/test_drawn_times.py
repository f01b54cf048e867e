"""What the pipeline panel says of time, and the tree before the first round, in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.components.conftest import turn
from tests.ui.components.gallery import scenes
from tests.ui.components.test_drawn import TREE_NODES, shown

pytestmark = pytest.mark.browser

Show = Callable[..., Any]


def told(page: Any, part: str) -> str:
    return str(page.locator(f"#picture-timeline .ss-ahead-{part}").inner_text())


def test_what_no_prediction_is_about_is_told_where_it_is_much(show: Show) -> None:
    page = show("paused")
    compared = "predicted 19.0 ms, measured 55.2 ms; in half of the 5 rounds the prediction was "
    first = f"Round 5: {compared}within 66 % of the measured time."
    assert told(page, "predicted") == (
        f"{first} Both are of this request's own work; not counted of its 80.1 ms: 19.9 ms of "
        "pauses between its stages, in which the SSMs may draft ahead, 5.00 ms of drafting "
        "hidden behind another request's pass."
    )
    turn(page, "ahead")
    assert "not counted" not in told(page, "predicted"), "a millisecond is not worth a sentence"


def test_a_run_with_nobody_beside_it_says_why_half_of_the_panel_is_missing(show: Show) -> None:
    page = show("alone")
    assert told(page, "sums") == (
        "Nothing of this run was drafted while the LLM verified another request: with one request, "
        "across has none to draft for. Run in a second tab at the same time, or choose "
        "pipeline=ahead."
    )
    assert told(page, "predicted") == "trend predicts no round time; goodput does."
    turn(page, "alone-yet")
    assert told(page, "sums") == (
        "So far nothing of this run was drafted while the LLM verified another request."
    )


def test_time_between_stages_is_named_by_what_the_events_tell(show: Show) -> None:
    page = show("others")
    said = page.locator("#picture-timeline .ss-words").inner_text()
    assert "most of it between stages (" in said
    assert said.split(" %)")[1].startswith(": other requests' turns, and bookkeeping.")
    word = page.locator("#picture-timeline .ss-share-word", has_text="between stages").first
    assert "nobody worked for this request: other requests' turns, " in word.get_attribute("title")
    turn(page, "across")
    said = page.locator("#picture-timeline .ss-words").inner_text()
    assert "other requests" not in said, "hardly any"


def test_before_the_first_round_the_prompt_is_the_tree(show: Show) -> None:
    root = scenes()["begun"]()["tree"]["root"]["t"]
    page = show("begun")
    tree = page.locator("#picture-tree")
    assert root and {key: node["text"] for key, node in page.evaluate(TREE_NODES).items()} == {
        "-1": shown(root)
    }
    assert tree.locator(".ss-round-name").inner_text() == "Before round 1"
    words = "The text so far is the prompt; nothing is drafted yet."
    assert tree.locator(".ss-words").inner_text() == words
    label = tree.locator("svg.ss-tree-svg").get_attribute("aria-label")
    assert label == f"Token tree, Before round 1: {words}"
