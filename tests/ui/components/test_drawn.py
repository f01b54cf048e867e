"""The pictures in a real Chromium: what is drawn is the value, hostile text and all.

Every page here is watched: a console error or a request to another host fails its test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.components.conftest import turn
from tests.ui.components.gallery import ORDER, scenes
from tests.ui.components.samples import HOSTILE

pytestmark = pytest.mark.browser

Show = Callable[..., Any]


TREE_NODES = """() => Object.fromEntries([...document.querySelectorAll(".ss-node")].map((node) => [
  node.dataset.key,
  { kind: node.classList[1].slice(5), text: node.querySelector(".ss-node-text").textContent,
    by: [...node.querySelectorAll(".ss-svg-badge text")].map((b) => b.textContent).join("") }]))"""


def shown(text: str) -> str:
    """A short token's text as the tree shows it."""
    return text.replace(" ", "␣").replace("\n", "↵")


# -- what is drawn is the value --


def test_the_tree_draws_exactly_the_nodes_of_the_value(show: Show) -> None:
    value = scenes()["verify"]()["tree"]
    drawn = show("verify").evaluate(TREE_NODES)
    assert {key for key in drawn if key.isdigit()} == set(value["nodes"])
    for key, node in value["nodes"].items():
        letters = "".join("ABC"[int(drafter)] for drafter in node["by"])
        assert drawn[key]["kind"] == node["outcome"]
        assert drawn[key]["text"] == shown(node["t"])
        assert drawn[key]["by"] == letters
    assert drawn["-1"]["text"] == shown(value["root"]["t"])
    assert drawn["own"] == {
        "kind": value["own"]["kind"],
        "text": shown(value["own"]["t"]),
        "by": "",
    }
    assert len([key for key in drawn if key.startswith("d")]) == len(value["dropped"])


def test_the_accepted_path_and_the_llms_own_token_read_along_the_top(show: Show) -> None:
    page = show("verify")
    value = scenes()["verify"]()["tree"]
    tops = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".ss-node")].map((node) =>
          [node.dataset.key, node.transform.baseVal.consolidate().matrix.f]))"""
    )
    path = [key for key, node in value["nodes"].items() if node["outcome"] == "accepted"]
    assert {tops[key] for key in ("-1", *path, "own")} == {tops["-1"]}
    assert all(top >= tops["-1"] for top in tops.values())


def test_stages_show_drafts_apart_then_one_tree_then_the_verdict(show: Show) -> None:
    page = show("draft")
    value = scenes()["draft"]()["tree"]
    drafts = page.evaluate(TREE_NODES)
    assert len(drafts) == 1 + sum(len(draft) for draft in value["drafts"].values())
    assert {node["by"] for key, node in drafts.items() if key.startswith("d1.")} == {"B"}
    assert page.locator(".ss-heading").all_text_contents() == [
        f"{letter}  {told['name']}"
        for letter, told in zip("ABC", value["drafters"].values(), strict=True)
    ]
    assert not {"accepted", "rejected"} & {node["kind"] for node in drafts.values()}
    turn(page, "combine")
    assert page.locator(".ss-stage[aria-current]").get_attribute("data-stage") == "combine"
    combined = page.evaluate(TREE_NODES)
    assert "own" not in combined and "pending" in {node["kind"] for node in combined.values()}
    turn(page, "verify")
    assert "LLM wanted" in page.locator(".ss-n-recovered").text_content()
    turn(page, "commit")
    assert (
        page.locator(".ss-tree .ss-words").text_content().startswith("One pass of the LLM brought")
    )


def test_a_small_tree_fills_its_panel_and_a_large_one_is_not_grown(show: Show) -> None:
    page = show("plain")
    zoom = float(page.locator("#picture-tree .ss-viewport").get_attribute("data-zoom"))
    assert 1.2 < zoom <= 1.7
    box = page.locator("#picture-tree .ss-viewport").bounding_box()
    tree = page.locator("#picture-tree .ss-tree-svg").bounding_box()
    above, below = tree["y"] - box["y"], box["y"] + box["height"] - tree["y"] - tree["height"]
    assert above == pytest.approx(below, abs=3), "in the middle"
    turn(page, "large")
    zoom = float(page.locator("#picture-tree .ss-viewport").get_attribute("data-zoom"))
    assert zoom <= 1


def test_a_text_of_line_ends_alone_is_seen(show: Show) -> None:
    page = show("feeds")
    tokens = page.locator("#picture-strip .ss-tok")
    assert tokens.count() == page.locator("#picture-strip .ss-mark[data-glyph='↵']").count() > 5
    width = "(nodes) => Math.min(...nodes.map((node) => node.getClientRects()[0].width))"
    assert tokens.evaluate_all(width) > 4, "wide enough to point at"
    copied = page.locator("#picture-strip .ss-flow").evaluate("(node) => node.textContent")
    assert not copied.strip(), "and it copies as it is"


def test_where_nothing_was_accepted_there_is_no_empty_axis(show: Show) -> None:
    page = show("plain")
    lengths = page.locator("#picture-lengths")
    lengths.get_by_text("no draft accepted").wait_for()
    rate = page.locator("#picture-figures [data-key=draft_acceptance_rate] .ss-figure-value")
    assert rate.text_content() == "–", "a rate of no drafts at all is none"
    assert lengths.get_by_text("position", exact=True).count() == 0
    turn(page, "verify")
    lengths.get_by_text("position", exact=True).wait_for()
    assert lengths.get_by_text("no draft accepted").count() == 0


LAYOUT_FAULTS = """async ([base, seeds]) => {
  const { layout } = await import(base + "tree_layout.js");
  const faults = [];
  for (let seed = 1; seed <= seeds; seed += 1) {
    let state = seed * 7919;
    const random = (below) => (state = (state * 16807) % 2147483647) % below;
    const items = [{ key: "0", parent: null, width: 40 }];
    for (let i = 1; i < 5 + random(80); i += 1) {
      const lead = random(3) === 0 ? 0.5 : 0;
      items.push({ key: String(i), parent: String(random(i)), width: 20 + random(150), lead });
    }
    const row = 50;
    const { places, width, height } = layout(items, { row, gap: 30, pad: 10, column: 60 });
    const firsts = new Map();
    for (const item of items) {
      const place = places.get(item.key);
      const parent = places.get(item.parent);
      const fault = (what) => faults.push([seed, item.key, what]);
      if (place.x + place.width > width || place.x < 0) fault("outside");
      if (place.y + row / 2 > height || place.y < row / 2) fault("above or below");
      if (parent && place.x < parent.right + 30) fault("not right of its parent");
      if (parent && !firsts.has(item.parent)) firsts.set(item.parent, place.y === parent.y);
      for (const other of items) {
        const there = places.get(other.key);
        const apart = Math.abs(there.y - place.y) >= row || there.x !== place.x;
        if (other !== item && !apart) fault("over " + other.key);
      }
    }
    for (const [key, straight] of firsts) {
      if (!straight) faults.push([seed, key, "its first child is on another row"]);
    }
  }
  return faults;
}"""


def test_the_layout_never_overlaps_and_reads_in_straight_lines(show: Show) -> None:
    page = show("empty")
    sheet = page.locator("link[href*='specscope/']").first.evaluate("node => node.href")
    base = sheet.rsplit("/", 1)[0] + "/"
    assert page.evaluate(LAYOUT_FAULTS, [base, 60]) == []


def test_a_tree_of_many_nodes_is_drawn_whole_and_legible(show: Show) -> None:
    page = show("large")
    assert page.locator(".ss-node").count() == 96 + 2
    sizes = page.locator(".ss-node-text").evaluate_all(
        "nodes => nodes.map((n) => n.getBoundingClientRect().height)"
    )
    assert round(min(sizes)) >= 10, "smaller text cannot be read from afar"
    boxes = page.locator(".ss-viewport").bounding_box()
    assert boxes["height"] < 600, "the panel scrolls, the page does not grow"
    page.get_by_role("button", name="Fit the whole tree").click()
    assert page.evaluate("""() => { const v = document.querySelector(".ss-viewport");
      return v.scrollHeight <= v.clientHeight + 20 && v.scrollWidth <= v.clientWidth + 20 }""")


def test_a_plain_round_shows_the_llms_token_alone(show: Show) -> None:
    drawn = show("plain").evaluate(TREE_NODES)
    assert set(drawn) == {"-1", "own"} and drawn["own"]["kind"] == "plain"


def test_the_strip_is_the_text_and_copies_as_it_is(show: Show) -> None:
    value = scenes()["verify"]()["strip"]
    written = "".join(value["tokens"][key]["t"] for key in sorted(value["tokens"], key=int))
    page = show("verify")
    assert page.locator(".ss-flow").evaluate("node => node.textContent") == written
    kinds = page.locator(".ss-tok[data-i]").evaluate_all(
        "nodes => nodes.map((node) => node.className.split('ss-k-')[1].split(' ')[0])"
    )
    assert kinds == [value["tokens"][key]["k"] for key in sorted(value["tokens"], key=int)]
    white = page.get_by_role("button", name="Show white space")
    white.click()
    copied = page.evaluate(
        """() => { getSelection().selectAllChildren(document.querySelector(".ss-flow"));
          return getSelection().toString(); }"""
    )
    white.click()
    assert copied.strip("\n") == written.strip("\n"), "the glyphs are not part of the text"


def test_figures_proposals_inspector_and_legend_say_what_the_value_says(show: Show) -> None:
    values = scenes()["verify"]()
    page = show("verify")
    cards = dict(
        page.locator(".ss-figure").evaluate_all(
            """nodes => nodes.map((n) =>
              [n.dataset.key, n.querySelector('.ss-figure-value').textContent])"""
        )
    )
    assert cards["num_rounds"] == str(int(values["figures"]["num_rounds"]))
    assert float(cards["mean_acceptance_length"]) == pytest.approx(
        values["figures"]["mean_acceptance_length"], abs=0.006
    )
    chips = page.locator(".ss-chip").count()
    assert chips == sum(len(rows) for rows in values["proposals"]["rows"].values())
    bars = page.locator(".ss-bar").count()
    assert bars == sum(len(rows) for rows in values["inspector"]["bars"].values())
    assert values["inspector"]["title"] in page.locator(".ss-inspected-title").text_content()
    legend = page.locator("#picture-legend").text_content()
    assert all(told["name"] in legend for told in values["legend"]["drafters"].values())


def test_the_charts_hold_the_values_in_few_traces(show: Show) -> None:
    values = scenes()["verify"]()
    page = show("verify")
    page.wait_for_function("document.querySelectorAll('.ss-plot .main-svg').length >= 4")
    lengths = page.evaluate("document.querySelector('.ss-lengths .ss-plot').data")
    assert len(lengths) == 4
    assert lengths[0]["y"] == [told["a"] for told in values["lengths"]["rounds"].values()]
    assert lengths[2]["y"] == list(values["lengths"]["histogram"].values())
    bars = page.evaluate("document.querySelector('.ss-timeline .ss-plot').data")
    spans = [span for told in values["timeline"]["bars"].values() for span in told.values()]
    assert len(bars) == 1 and 5 * 4 < len(bars[0]["base"]) < len(spans), "five rounds of thirty"
    page.get_by_role("button", name="Show every round").click()
    starts = [span["start"] for span in spans]
    plot = "document.querySelector('.ss-timeline .ss-plot')"
    page.wait_for_function(f"{plot}.data[0].base.length === {len(spans)}")
    assert page.evaluate(f"{plot}.data[0].base") == starts
    page.get_by_role("button", name="Show 5 rounds around").click()
    loaded = page.evaluate(
        "performance.getEntriesByType('resource').filter((r) => r.name.includes('plotly')).length"
    )
    assert loaded == 1


# -- hostile text --


def test_hostile_text_is_inert_and_visible(show: Show) -> None:
    page = show("hostile")
    for name in ORDER:
        page.locator(f"#picture-{name}").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelectorAll('.ss-plot .main-svg').length >= 4")
    assert page.evaluate("window.pwned") is None
    assert page.locator(".ss-panel img, .ss-panel script").count() == 0
    strip = page.locator(".ss-flow").evaluate("node => node.textContent")
    assert strip == "".join(HOSTILE)
    visible = page.locator(".ss-inspector .ss-sentence").text_content()
    assert "<img src=x onerror=" in visible and "${window.pwned" in visible and "⟨RLO⟩" in visible
    nodes = page.evaluate(TREE_NODES)
    assert nodes["2"]["text"].startswith("${window") and "␀␁␛[31m" in nodes["6"]["text"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".ss-node[data-key='0']").hover()
    assert "<img src=x" in page.locator("#ss-tip").text_content()
    assert page.evaluate("window.pwned") is None
