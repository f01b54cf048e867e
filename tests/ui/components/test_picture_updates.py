"""The pictures in a real Chromium: updates, clicks, keys, and the modules of their scripts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest

from tests.ui.browser.looks import frames as two_frames
from tests.ui.components.bare import BASE, Pictures
from tests.ui.components.gallery import ORDER, values_of
from tests.ui.components.samples import frames, hostile_values
from ui.components import Lengths, TokenTree, launch_options, pack

pytestmark = pytest.mark.browser

COUNT_REMOVED = """() => { window.removed = 0;
  const count = (records) => records.forEach((r) => (removed += r.removedNodes.length));
  new MutationObserver(count)
    .observe(document.querySelector(".ss-flow"), { childList: true, subtree: true }); }"""
HEIGHTS = """() => Object.fromEntries([...document.querySelectorAll(".ss-shell")].map((shell) =>
  [shell.dataset.picture, shell.offsetHeight]))"""


def test_a_live_run_only_adds_tokens_and_moves_nothing(pictures: Pictures) -> None:
    page = pictures.show("empty")
    page.evaluate(COUNT_REMOVED)
    before = page.evaluate(HEIGHTS)
    first, *others = frames(rounds=12, seed=7)
    pictures.give(first)
    pictures.rest().evaluate("document.querySelector('.ss-tok').mark = 'first'")
    for values in others:
        pictures.give(values)
        two_frames(page)  # until the text is drawn
    assert pictures.rest().locator(".ss-tok[data-i]").count() > 20
    assert page.evaluate("document.querySelector('.ss-tok').mark") == "first"
    assert page.evaluate("removed") == 0
    after = page.evaluate(HEIGHTS)
    assert {name: after[name] for name in ORDER} == {name: before[name] for name in ORDER}


SCROLLED = """() => { const scroll = document.querySelector(".ss-strip .ss-scroll");
  return [scroll.scrollTop, scroll.scrollHeight > 1.5 * scroll.clientHeight]; }"""


def test_a_chosen_round_stays_in_sight_in_further_updates(pictures: Pictures) -> None:
    *_, whole = frames(rounds=60, seed=7)
    strip = {**whole["strip"], "sel": 1, "pinned": True, "done": True}
    page = pictures.show("empty", "strip")
    for number in range(3):
        pictures.give({**whole, "strip": {**strip, "said": f"Update {number}"}})
        page.locator(".ss-strip").get_by_text(f"Update {number}").wait_for()
        pictures.rest()
        assert page.evaluate(SCROLLED) == [0, True]


OWN_PLACE = """() => { const v = document.querySelector(".ss-viewport");
  const node = document.querySelector(".ss-node[data-key='0']");
  return [v.dataset.zoom, v.scrollLeft, v.scrollTop, node.mark] }"""
RANGE = """() => { const plot = document.querySelector(".ss-timeline .ss-plot");
  return [plot.mark, ...plot.layout.xaxis.range]; }"""
FOCUS = """() => [document.activeElement.dataset.key,
  document.querySelector(".ss-node[aria-pressed=true]").dataset.key,
  document.querySelector(".ss-round[aria-pressed=true]").dataset.r]"""


def test_zoom_scroll_focus_and_selection_survive_an_update(pictures: Pictures) -> None:
    page = pictures.show("verify")
    for _ in range(3):
        page.get_by_role("button", name="Zoom in").click()
    page.evaluate("document.querySelector('.ss-viewport').scrollTo(90, 90)")
    page.evaluate("document.querySelector(\".ss-node[data-key='0']\").mark = 'kept'")
    page.evaluate(
        """async () => { const plot = document.querySelector(".ss-timeline .ss-plot");
          plot.mark = "kept";
          await Plotly.relayout(plot, {"xaxis.range[0]": 20, "xaxis.range[1]": 60}); }"""
    )
    before = pictures.rest().evaluate(OWN_PLACE)
    assert before[1:] == [90, 90, "kept"] and float(before[0]) > 1.5
    pictures.show("commit")
    assert page.evaluate(OWN_PLACE) == before
    assert page.evaluate(RANGE) == ["kept", 20, 60], "the chart keeps its DOM element too"
    page.get_by_role("button", name="Show every round").click()
    assert pictures.rest().evaluate(RANGE)[2] > 400
    pictures.show("verify")
    page.locator(".ss-node[data-key='1']").focus()
    pictures.show("commit")
    assert page.evaluate(FOCUS) == ["1", "0", "4"]


def test_a_picture_in_a_closed_tab_of_gradios_draws_the_last_value_when_opened(
    serve: Callable[..., str], browser_page: Callable[..., Any]
) -> None:
    streamed = frames(rounds=4)
    with gr.Blocks() as demo:
        with gr.Tabs():
            with gr.Tab("First"):
                go = gr.Button("go", elem_id="go")
                done = gr.Number(0, elem_id="done")
            with gr.Tab("Second"):
                tree = TokenTree(elem_id="tree")
                lengths = Lengths(elem_id="lengths")
        shown = go.click(
            lambda: [pack(streamed[-1][name]) for name in ("tree", "lengths")],
            None,
            [tree, lengths],
        )
        shown.then(lambda count: count + 1, done, done)
    options = {**launch_options(), "head": ""}  # the pictures load their style sheets themselves
    page = browser_page(serve(demo, **options))
    answered = "(count) => document.querySelector('#done input').value === count"
    page.click("#go")
    page.wait_for_function(answered, arg="1")
    page.get_by_role("tab", name="Second").click()
    page.wait_for_selector("#lengths .main-svg")
    page.locator("#tree .ss-round-name").get_by_text("Round 4", exact=True).wait_for()
    page.wait_for_function(  # the style sheet arrives after the script
        "getComputedStyle(document.querySelector('#tree .ss-panel')).borderRadius === '12px'"
    )
    page.get_by_role("tab", name="First").click()
    page.click("#go")
    page.wait_for_function(answered, arg="2")
    page.get_by_role("tab", name="Second").click()
    page.wait_for_function("() => document.querySelectorAll('#tree .ss-node').length > 3")


def test_pointer_and_keyboard_reach_everything_and_python_hears_of_it(pictures: Pictures) -> None:
    page, last_press = pictures.show("verify"), 0.0
    for what, picked in (
        (".ss-round[data-r='2'] .ss-tok:not(.ss-blank)", {"round": 2, "token": -1}),
        (".ss-tok[data-i='0']", {"round": 0, "token": -2}),
        (".ss-node[data-key='3']", {"round": 4, "node": 3}),
        (".ss-node[data-key='-1']", {"round": 4, "node": -1}),
        (".ss-n-recovered", {"round": 4, "node": None}),
        (".ss-chip", {"round": 4, "node": 0}),
    ):
        page.locator(what).first.click()
        assert pictures.last_sent() == picked, what
        press, now = page.evaluate("() => [pictures.picked.press, performance.now()]")
        assert last_press < press <= now, what
        last_press = press
    page.locator(".ss-lengths .barlayer .point").first.click(force=True)
    page.wait_for_function("() => pictures.picked.round === 0 && pictures.picked.node === null")
    by_keys(pictures)
    token = values_of("verify")["strip"]["tokens"]["0"]
    page.locator(".ss-tok[data-i='0']").hover()
    tip = page.locator("#ss-tip").text_content()
    assert f"{token['p']:.3f}" in tip and "ssm-code" in tip and "round1" in tip
    pictures.show("vote", "strip")
    page.locator("#picture-strip .ss-round[data-noted] .ss-tok").first.hover()
    tip = page.locator("#ss-tip").text_content()
    assert "drafter ssm-stories failed" in tip and "noted" in tip


# A point in a round's column in the picture of lengths, in pixels.
COLUMN = """([round, share]) => { const plot = document.querySelector(".ss-lengths .ss-plot");
  const { xaxis, yaxis } = plot._fullLayout, { left, top } = plot.getBoundingClientRect();
  return [left + xaxis._offset + xaxis.d2p(round + 1), top + yaxis._offset + share * yaxis._length];
}"""


def test_a_round_without_an_accepted_token_is_selected_by_its_column(pictures: Pictures) -> None:
    page = pictures.show("verify")
    lengths = values_of("verify")["lengths"]
    rounds = {**lengths["rounds"], "2": {**lengths["rounds"]["2"], "a": 0}}
    pictures.give({"lengths": {**lengths, "rounds": rounds}})
    pictures.rest()
    for number, share in ((2, 0.3), (3, 0.05), (2, 0.9)):
        page.mouse.click(*page.evaluate(COLUMN, [number, share]))
        page.wait_for_function("(round) => pictures.picked?.round === round", arg=number)
    page.mouse.click(*page.evaluate(COLUMN, [4, -0.1]))
    page.locator(".ss-lengths .barlayer .point").last.click(force=True)
    assert pictures.last_sent()["round"] == 2, "clicks above the plot and on rates select no round"


def test_the_selected_token_is_marked_also_where_its_round_has_lost_its_beginning(
    pictures: Pictures,
) -> None:
    strip = values_of("verify")["strip"]
    marked = "() => [...document.querySelectorAll('.ss-tok[data-chosen]')].map((t) => t.dataset.i)"
    tokens = {i: token for i, token in strip["tokens"].items() if int(i) >= 15}
    for old, shown in (({}, strip["tokens"]), ({"0": "before"}, tokens)):
        # Round 5 has the tokens 14 to 18.
        for token, expected in ((-3, ["16"]), (-1, ["18"]), (None, [])):
            value = {**strip, "old": old, "tokens": shown, "sel": 5, "token": token}
            pictures.give({"strip": value})
            assert pictures.rest().evaluate(marked) == expected
        pictures.page.locator(".ss-tok[data-i='16']").click()
        assert pictures.last_sent() == {"round": 5, "token": -3}


def by_keys(pictures: Pictures) -> None:
    page = pictures.page
    page.locator(".ss-node[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.key") == "-1"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.key") == "0"
    page.keyboard.press("Enter")
    assert pictures.last_sent() == {"round": 4, "node": 0}
    page.locator(".ss-round[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert pictures.last_sent() == {"round": 5, "node": None}
    page.locator(".ss-figure").first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert "1 + accepted tokens" in page.locator("#ss-tip").text_content()
    page.keyboard.press("Escape")
    assert not page.locator("#ss-tip").is_visible()


UNPACKED = """async ([packed, base]) => {
  const { unpacker } = await import(base + "packing.js");
  const unpack = unpacker();
  return packed.map((value) => unpack(value));
}"""
FIXED = """async ([told, base]) => {
  const { numberText, percent } = await import(base + "text.js");
  const { format } = await import(base + "grid_words.js");
  return told.map(([value, digits]) => [
    numberText(value, digits), percent(value, digits), format(value, "x"),
    format(value, "tokens/s"),
  ]);
}"""


def numbers() -> list[float]:
    """Numbers for tests of rounding, with ties and their neighbours."""
    halves = [k / 8 for k in range(801)] + [k / 16 for k in range(1, 400, 2)]
    beside = [x + d for x in (0.125, 2.625, 2.375, 61.5) for d in (1e-15, -1e-15, 1e-9, -1e-9)]
    decimals = [k / 1000 for k in range(5, 4000, 10)]
    shares = [n / m for m in (3, 7, 8, 40, 64, 160, 4096) for n in range(1, 60)]
    chance = random.Random(4)
    some = [chance.uniform(0, 10**e) for e in (-3, 0, 1, 2, 4) for _ in range(200)]
    return [*halves, *beside, *decimals, *shares, *some, -2.625, -0.375, 1e12 + 0.5, 0.0]


def test_the_browser_unpacks_and_rounds_as_python_does(pictures: Pictures) -> None:
    values = [*hostile_values().values(), *frames(rounds=9)[-1].values(), {}]
    packed = [pack(value) for value in values]
    assert pictures.page.evaluate(UNPACKED, [packed, BASE]) == values
    told = [(value, digits) for value in numbers() for digits in (0, 1, 2, 3)]
    rounded = pictures.page.evaluate(FIXED, [told, BASE])
    for (value, digits), shown in zip(told, rounded, strict=True):
        expected = [
            f"{value:.{digits}f}",
            f"{value:.{digits}%}".replace("%", " %"),
            f"{value:.2f}x",
            f"{value:.1f}",
        ]
        assert shown == expected, (value, digits)


LAYOUT_FAULTS = """async ([base, seeds]) => {
  const { layout } = await import(base + "tree_layout.js");
  const faults = [];
  let found = 0;
  for (let seed = 1; seed <= seeds; seed += 1) {
    let state = seed * 7919;
    const random = (below) => (state = (state * 16807) % 2147483647) % below;
    const items = [{ key: "0", parent: null, width: 40 }];
    for (let i = 1; i < 5 + random(80); i += 1) {
      const flat = seed % 2 === 0 && random(4) > 0;
      const lead = !flat && random(3) === 0 ? 0.5 : 0;
      const width = 20 + random(150);
      items.push({ key: String(i), parent: String(random(i)), width, lead, flat });
    }
    const row = 50;
    const room = { row, gap: 30, pad: 10, column: 60, beside: 22, across: 700 };
    const { places, width, height } = layout(items, room);
    const heads = new Set([...places.values()].map((place) => place.head).filter(Boolean));
    found += heads.size;
    if (seed % 2 && heads.size) faults.push([seed, "siblings in a row unasked"]);
    if (seed === 60 && !found) faults.push([seed, "no siblings in a row"]);
    const firsts = new Map();
    for (const item of items) {
      const place = places.get(item.key);
      const parent = places.get(item.parent);
      const fault = (what) => faults.push([seed, item.key, what]);
      if (place.x + place.width > width || place.x < 0) fault("outside");
      if (place.y + row / 2 > height || place.y < row / 2) fault("above or below");
      if (parent && place.x < parent.right + 30) fault("not right of its parent");
      const before = [...places.values()].filter(({ y, x }) => y === place.y && x < place.x);
      const near = Math.max(...before.map(({ x, width: wide }) => x + wide));
      const follows = Boolean(place.head) && place.head !== item.key;
      if (place.after !== (follows ? room.beside : 0)) fault("another distance from a sibling");
      if (follows && place.x - near !== room.beside) fault("no room for a mark between siblings");
      if (parent && !firsts.has(item.parent)) firsts.set(item.parent, place.y === parent.y);
      for (const other of items) {
        const there = places.get(other.key);
        const beside = place.x + place.width <= there.x || there.x + there.width <= place.x;
        const apart = Math.abs(there.y - place.y) >= row || beside;
        if (other !== item && !apart) fault("over " + other.key);
      }
    }
    for (const [key, straight] of firsts) {
      if (!straight) faults.push([seed, key, "its first child is on another row"]);
    }
  }
  return faults;
}"""


def test_the_layout_never_overlaps_and_reads_in_straight_lines(pictures: Pictures) -> None:
    assert pictures.page.evaluate(LAYOUT_FAULTS, [BASE, 60]) == []
