"""The pictures in a real Chromium: what stands stays while values change, and a visitor acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest

from tests.ui.components.conftest import DRAWN, turn
from tests.ui.components.gallery import ORDER, scenes
from tests.ui.components.samples import frames
from ui.components import Lengths, TokenTree, launch_options, pack

pytestmark = pytest.mark.browser

Show = Callable[..., Any]


# -- what stands stays --


def test_a_live_run_only_adds_tokens_and_moves_nothing(show: Show) -> None:
    page = show("empty", fresh=True)
    page.evaluate(
        """() => {
          window.removed = 0;
          const strip = document.querySelector(".ss-flow");
          const count = (records) => records.forEach((r) => (removed += r.removedNodes.length));
          new MutationObserver(count).observe(strip, { childList: true, subtree: true });
          window.before = [...document.querySelectorAll(".ss-shell")].map((s) => s.offsetHeight);
        }"""
    )
    page.click("#scene-play")
    page.wait_for_selector(".ss-tok[data-i='0']")
    page.evaluate("document.querySelector('.ss-tok').mark = 'first'")
    page.wait_for_function(DRAWN, arg="play")
    assert page.locator(".ss-tok[data-i]").count() > 20
    assert page.evaluate("document.querySelector('.ss-tok').mark") == "first"
    assert page.evaluate("removed") == 0
    names = list(ORDER)
    heights = page.locator(".ss-shell").evaluate_all("nodes => nodes.map((n) => n.offsetHeight)")
    moved = {
        name: (was, now)
        for name, was, now in zip(names, page.evaluate("before"), heights, strict=True)
        if was != now and name != "legend"
    }
    assert moved == {}


def test_zoom_scroll_and_nodes_survive_an_update(show: Show) -> None:
    page = show("verify", fresh=True)
    for _ in range(3):
        page.get_by_role("button", name="Zoom in").click()
    page.evaluate("document.querySelector('.ss-viewport').scrollTo(120, 90)")
    state = """() => { const v = document.querySelector(".ss-viewport");
      return [v.dataset.zoom, v.scrollLeft, v.scrollTop,
        document.querySelector(".ss-node[data-key='0']").mark] }"""
    page.evaluate("document.querySelector(\".ss-node[data-key='0']\").mark = 'kept'")
    before = page.evaluate(state)
    turn(page, "commit")
    assert page.evaluate(state) == before
    assert before[1:] == [120, 90, "kept"] and float(before[0]) > 1.5


def test_a_chart_keeps_its_node_and_the_visitors_zoom(show: Show) -> None:
    page = show("verify", fresh=True)
    page.wait_for_selector(".ss-timeline .main-svg")
    page.evaluate(
        """async () => { const plot = document.querySelector(".ss-timeline .ss-plot");
          plot.mark = "kept";
          await Plotly.relayout(plot, {"xaxis.range[0]": 20, "xaxis.range[1]": 60}); }"""
    )
    turn(page, "commit")
    plot = "document.querySelector('.ss-timeline .ss-plot')"
    assert page.evaluate(f"[{plot}.mark, ...{plot}.layout.xaxis.range]") == ["kept", 20, 60]
    page.get_by_role("button", name="Show every round").click()
    page.wait_for_function(f"{plot}.layout.xaxis.range[1] > 400")


def test_selection_and_focus_survive_an_update(show: Show) -> None:
    page = show("verify")
    page.locator(".ss-node[data-key='1']").focus()
    page.evaluate("document.querySelector('#scene-commit').click()")
    page.wait_for_function(DRAWN, arg="commit")
    assert page.evaluate("document.activeElement.dataset.key") == "1"
    assert page.locator(".ss-node[aria-pressed=true]").get_attribute("data-key") == "0"
    assert page.locator(".ss-round[aria-pressed=true]").get_attribute("data-r") == "4"


def test_a_picture_in_a_closed_tab_draws_the_last_value_when_opened(
    serve: Callable[..., str], browser_page: Callable[..., Any]
) -> None:
    streamed = frames(rounds=4)
    with gr.Blocks() as demo:
        with gr.Tabs():
            with gr.Tab("First"):
                go = gr.Button("go", elem_id="go")
                done = gr.Textbox(elem_id="done")
            with gr.Tab("Second"):
                tree = TokenTree(elem_id="tree")
                lengths = Lengths(elem_id="lengths")
        shown = go.click(
            lambda: [pack(streamed[-1][name]) for name in ("tree", "lengths")],
            None,
            [tree, lengths],
        )
        shown.then(lambda: "done", None, done)
    options = {**launch_options(), "head": ""}  # the pictures bring their styles themselves
    page = browser_page(serve(demo, **options))
    page.click("#go")
    page.wait_for_function("document.querySelector('#done textarea').value === 'done'")
    page.get_by_role("tab", name="Second").click()
    page.wait_for_selector("#lengths .main-svg")
    page.locator("#tree .ss-round-name").get_by_text("Round 4", exact=True).wait_for()
    page.wait_for_function(  # a style sheet is loaded by itself
        "getComputedStyle(document.querySelector('#tree .ss-panel')).borderRadius === '12px'"
    )
    page.get_by_role("tab", name="First").click()
    page.click("#go")
    page.get_by_role("tab", name="Second").click()
    assert page.locator("#tree .ss-node").count() > 3


# -- a visitor acts --


def picked(page: Any, wanted: str) -> None:
    page.wait_for_function(
        "(wanted) => document.querySelector('#picked textarea').value === wanted", arg=wanted
    )


def test_clicks_reach_python_as_selections(show: Show) -> None:
    page = show("verify")
    page.locator(".ss-round[data-r='2'] .ss-tok").first.click()
    picked(page, "{'round': 2, 'node': None}")
    page.locator(".ss-node[data-key='3']").click()
    picked(page, "{'round': 4, 'node': 3}")
    page.locator(".ss-node[data-key='-1']").click()
    picked(page, "{'round': 4, 'node': -1}")
    page.locator(".ss-n-recovered").click()
    picked(page, "{'round': 4, 'node': None}")
    page.locator(".ss-chip").first.click()
    picked(page, "{'round': 4, 'node': 0}")
    page.wait_for_selector(".ss-lengths .main-svg")
    page.locator(".ss-lengths .barlayer .point").first.click(force=True)
    picked(page, "{'round': 0, 'node': None}")


def test_everything_is_within_reach_of_the_keyboard(show: Show) -> None:
    page = show("verify")
    page.locator(".ss-node[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.key") == "1"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.key") == "own"
    picked(page, "{'round': 4, 'node': None}")
    page.locator(".ss-round[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    picked(page, "{'round': 5, 'node': None}")
    page.locator(".ss-figure").first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert "New tokens per second" in page.locator("#ss-tip").text_content()
    page.keyboard.press("Escape")
    assert not page.locator("#ss-tip").is_visible()


def test_hovering_a_token_tells_its_probabilities(show: Show) -> None:
    page = show("verify")
    token = scenes()["verify"]()["strip"]["tokens"]["0"]
    page.locator(".ss-tok[data-i='0']").hover()
    tip = page.locator("#ss-tip").text_content()
    assert f"{token['p']:.3f}" in tip and "ssm-code" in tip and "round1" in tip
