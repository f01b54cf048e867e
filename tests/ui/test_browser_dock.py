"""The dock of Live in a real Chromium."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tests.synthetic import VOTE_AHEAD
from tests.ui import sites
from tests.ui.fakes import recorded
from tests.ui.live_screen import ROUNDS, live_stage, race
from tests.ui.predicted import RoundCost, predicted_speedup
from tests.ui.reading import becomes
from tests.ui.sites import OpenPage, Stage
from ui.run.what_if import what_if_value

pytestmark = pytest.mark.browser


@pytest.fixture
def live(stages: Any) -> Stage:
    return live_stage(stages)


INSIDE = """() => [...document.querySelectorAll("#live-mask .ss-mask-on")]
  .map((cell) => [Number(cell.dataset.row), Number(cell.dataset.column)]).sort()"""
# For each displayed name: its row, and whether the name directly follows the row's diagonal cell.
NAMED = """() => [...document.querySelectorAll("#live-mask .ss-mask-name")]
  .filter((name) => getComputedStyle(name).display !== "none")
  .map((name) => {
    const { row } = name.dataset;
    const cell = document.querySelector(`#live-mask [data-row="${row}"][data-column="${row}"]`);
    const [own, meeting] = [name, cell].map((one) => one.getBoundingClientRect());
    const beside = own.left >= meeting.right && own.left < meeting.right + 8;
    return [Number(row), beside && own.top < meeting.bottom && own.bottom > meeting.top];
  })"""
SLOTS = """() => [...document.querySelectorAll("#live-mask .ss-slots")].map((strip) =>
  [...strip.querySelectorAll(".ss-slot[data-row]")].map((slot) =>
    [Number(slot.dataset.row), Number(slot.querySelector("small").textContent)]))"""

COVERED = """(keys) => {
  const tip = document.querySelector("#ss-tip").getBoundingClientRect();
  const covers = (css) => {
    const { left, right, top, bottom } = document.querySelector(css).getBoundingClientRect();
    return left < tip.right && right > tip.left && top < tip.bottom && bottom > tip.top;
  };
  const nodes = keys.map((key) => `#live-tree .ss-node[data-key="${key}"]`);
  return ["#live-tree .ss-stagebar", ...nodes].filter(covers);
}"""
# Rows of the mask, outlined slots, tinted slots and tree nodes that have changed their look since
# the last call with `true`.
HIGHLIGHTED = """(keep) => {
  const looks = new Map();
  const found = { rows: [], outlined: [], tinted: [], nodes: [] };
  const look = (kind, key, style, ...names) => {
    const text = names.map((name) => style[name]).join(" ");
    looks.set(`${kind} ${key}`, text);
    if (keep || text === window.specscopeAtRest.get(`${kind} ${key}`)) return;
    found[kind].push(Number(key));
  };
  for (const one of document.querySelectorAll("#live-mask rect[data-column]"))
    look("rows", one.dataset.row, getComputedStyle(one), "stroke", "strokeWidth");
  for (const one of document.querySelectorAll("#live-mask .ss-slots [data-row]")) {
    look("outlined", one.dataset.row, getComputedStyle(one), "outlineStyle", "outlineWidth");
    look("tinted", one.dataset.row, getComputedStyle(one), "backgroundColor", "borderTopColor");
  }
  for (const one of document.querySelectorAll("#live-tree .ss-node .ss-ring"))
    look("nodes", one.closest(".ss-node").dataset.key, getComputedStyle(one), "stroke");
  if (keep) window.specscopeAtRest = looks;
  return Object.values(found).map((keys) => [...new Set(keys)].sort((a, b) => a - b));
}"""


def test_panes_of_a_run_and_its_race_say_what_is_recorded_measured_and_predicted(
    live: Stage, browser_page: OpenPage
) -> None:
    page = race(sites.wait_ready(browser_page(live.url)))
    mask_and_slots_are_the_trees(page, live)
    page.set_viewport_size({"width": 1280, "height": 800})
    why_and_the_temperature_are_read(page, live)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(reduced_motion="reduce")
    what_if_draws_the_formula_and_says_predicted(page, live)


def mask_and_slots_are_the_trees(page: Any, live: Stage) -> None:
    sites.dock(page, "inside")
    desk = sites.desk_of(live.context)
    number = desk.frame().selected_round
    page.locator(f"#live-scrubber [data-r='{number}']").click()
    detail = desk.player.frame().detail
    tree, verdict = detail.combined, detail.verified
    seen = [[-1, -1]]
    for node in range(len(tree.token_ids)):
        above, at = [[node, node], [node, -1]], tree.parents[node]
        while at >= 0:
            above.append([node, at])
            at = tree.parents[at]
        seen += above
    # JavaScript sorts pairs as texts.
    becomes(page, INSIDE, sorted(seen, key=lambda pair: ",".join(map(str, pair))))
    rounds = desk.frame().view.rounds[:number]
    prompt = len(desk.frame().view.started.prompt_token_ids)
    first = prompt + sum(line.emitted for line in rounds) - 1
    nodes = range(len(tree.token_ids))
    before = [[-1, first], *([node, first + 1 + node] for node in nodes)]
    after = [[-1, first], *([node, first + 1 + i] for i, node in enumerate(verdict.path))]
    becomes(page, SLOTS, [before, after])
    page.locator("#live-tree .ss-node[data-key='0']").hover()
    page.locator("#live-mask .ss-mask-said").get_by_text(f"slot {first + 1}, position").wait_for()
    page.locator("#prompt textarea").hover()
    page.locator("#live-mask .ss-mask-said").get_by_text("Point at a node").wait_for()
    becomes(page, HIGHLIGHTED, [[], [], [], []], arg=True)
    deepest = max(nodes, key=tree.depths.__getitem__)
    path = sorted([-1, *(column for row, column in seen if row == deepest and column >= 0)])
    assert len(path) > 3, "the root, two ancestors, the node"
    page.locator(f"#live-tree .ss-node[data-key='{deepest}']").hover()
    becomes(page, HIGHLIGHTED, [[deepest], [deepest], path, path], arg=False)
    # A low dock names the token under the pointer; a higher dock names all tokens.
    becomes(page, NAMED, [[deepest, True]])
    for node in nodes:
        page.locator(f"#live-tree .ss-node[data-key='{node}']").hover()
        children = [str(child) for child in nodes if tree.parents[child] == node]
        becomes(page, COVERED, [], children)
    page.set_viewport_size({"width": 1920, "height": 1080})
    becomes(page, NAMED, [[node, True] for node in (-1, *nodes)])


WORDS_CUT = """() => [...document.querySelectorAll("#live-inspector .ss-bar-text")]
  .filter((one) => one.title.length <= 6 && one.scrollWidth > one.clientWidth)
  .map((one) => one.title)"""
BARS_BELOW = """() => {
  const pane = document.querySelector("#live-dock .sp-pane-why").getBoundingClientRect();
  return [...document.querySelectorAll("#live-inspector .ss-bar")]
    .filter((one) => one.getBoundingClientRect().bottom > pane.bottom).length;
}"""


def why_and_the_temperature_are_read(page: Any, live: Stage) -> None:
    sites.dock(page, "why")
    page.locator("#live-tree .ss-node[data-key='0']").click()
    page.locator("#live-inspector .ss-bar").first.wait_for()
    becomes(page, WORDS_CUT, [])
    becomes(page, BARS_BELOW, 0)
    hint = page.locator("#sampling-temperature").get_by_text("unlikely token")
    assert not hint.is_visible()
    page.locator("#sampling-temperature input").hover()
    hint.wait_for()
    rate = sites.desk_of(live.context).frame().view.stats.draft_acceptance_rate
    hint.get_by_text(f"This run, accepted of depth: {100 * rate:.0f} % at 0.").wait_for()
    box = hint.bounding_box()
    assert box["x"] > 0 and box["x"] + box["width"] < 1280 and box["y"] + box["height"] < 800


def test_a_vote_is_explained_without_a_further_click(live: Stage, browser_page: OpenPage) -> None:
    live.play(recorded(ROUNDS, mechanisms=VOTE_AHEAD))
    page = sites.wait_ready(browser_page(live.url))
    sites.ran(page)
    assert page.locator("#live-dock").get_attribute("data-at") == "why", "a union has no vote"
    sites.choose(page, "preset", "minions")
    page.locator("#live-dock[data-at=who]").wait_for()
    sites.wait_notice(page, "Finished: ")
    page.locator("#live-proposals").get_by_text(re.compile(r" won(\.|:) ")).first.wait_for()
    page.locator("#live-tree").get_by_text("draft won the vote").wait_for()


DOTS = """() => [...document.querySelectorAll("#live-what_if .ss-what-if-dot")]
  .map((dot) => Number(dot.dataset.speedup))"""
SLIDE = """([key, value]) => {
  const input = document.querySelector(`#live-what_if input[data-key=${key}]`);
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}"""


ACCEPTANCE = """() => Number(
  document.querySelector("#live-what_if input[data-key=acceptance]").value).toFixed(2)"""


def what_if_draws_the_formula_and_says_predicted(page: Any, live: Stage) -> None:
    sites.dock(page, "whatif")
    page.locator("#live-what_if .ss-what-if-said").get_by_text("Predicted: ").wait_for()
    page.locator("#live-what_if").get_by_text("measured", exact=True).wait_for()
    desk = sites.desk_of(live.context)
    told = what_if_value(desk.frame(), desk.baseline)
    for acceptance, size, trip in ((0.5, 1, 0), (0.9, 8, 0), (0.9, 8, 100)):
        # The sliders of cost and size are set to exponents of two.
        for key, at in (("acceptance", acceptance), ("ratio", -2), ("size", math.log2(size))):
            page.evaluate(SLIDE, [key, at])
        page.evaluate(SLIDE, ["trip_ms", trip])
        cost = RoundCost(
            0.25 * told["pass_ms"], told["pass_ms"], told["plain_ms"], told["other_ms"], trip
        )
        expected = [predicted_speedup(cost, acceptance, k, size) for k in range(17)]
        assert page.evaluate(DOTS) == pytest.approx(expected, abs=2e-3)
    said = page.locator("#live-what_if .ss-what-if-said")
    page.evaluate(SLIDE, ["trip_ms", 0])
    allowed = max(page.evaluate(DOTS)[: told["most"] + 1])
    said.get_by_text(f"Predicted for an LLM 8.0 times as slow: {allowed:.2f}x (").wait_for()
    page.evaluate(SLIDE, ["size", 0])
    said.get_by_text(f"An LLM 8 times as slow: {allowed:.2f}x (").wait_for()
    page.get_by_role("button", name="As measured").click()
    ratio = page.locator("#live-what_if input[data-key=ratio]").input_value()
    assert 2 ** float(ratio) == pytest.approx(told["step_ms"] / told["pass_ms"], rel=0.1)
    sites.shot(page, "what-if")

    sites.ran_again(page, live.context)
    desk = sites.desk_of(live.context)
    measured = what_if_value(desk.frame(), desk.baseline)["acceptance"]
    becomes(page, ACCEPTANCE, f"{measured:.2f}")
