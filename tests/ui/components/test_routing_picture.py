"""The routing picture in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.components.bare import Pictures
from tests.ui.components.gallery import values_of

pytestmark = pytest.mark.browser

# For each path of cells: the SSM, the part, the cells' left edges, the shade, the fill.
CELLS = """() => [...document.querySelectorAll("#picture-routing path[data-ssm]")].map((path) => [
  path.dataset.ssm, path.getAttribute("class").replace("ss-routing-", ""),
  [...path.getAttribute("d").matchAll(/M([\\d.]+)/g)].map((found) => Number(found[1])),
  Number(path.getAttribute("fill-opacity")), path.style.fill])"""
BOXES = {"routed": 1, "explored": 2, "waiting": 1, "chosen": 2}


def cells_of(page: Any) -> dict[tuple[str, int], tuple[str, float]]:
    """Maps (SSM, column) to (part, shade)."""
    paths = [path for path in page.evaluate(CELLS) if path[1] != "lost"]
    edges = sorted({edge for _, _, own, _, _ in paths for edge in own})
    results: dict[tuple[str, int], tuple[str, float]] = {}
    for ssm, part, own, shade, _ in paths:
        assert len(own) == BOXES[part] * len(set(own)), "each part has its own shape"
        results |= {(ssm, edges.index(edge)): (part, shade) for edge in own}
    return results


def crosses(page: Any) -> int:
    return sum(len(own) // 2 for _, part, own, _, _ in page.evaluate(CELLS) if part == "lost")


def test_every_cell_has_the_shape_of_its_part_and_the_shade_of_its_score(
    pictures: Pictures,
) -> None:
    for scene in ("routed", "switched"):
        value = values_of(scene)["routing"]
        page = pictures.show(scene, "routing")
        cells = cells_of(page)
        numbers = sorted(map(int, value["rounds"]))
        lost = 0
        for place, number in enumerate(numbers):
            told = value["rounds"][str(number)]
            shades = []
            for key, cell in told.items():
                if cell["r"] == "lost":
                    lost += 1
                    continue
                part, shade = cells.pop((value["ssms"][key], place))
                assert part == cell["r"], (scene, number, key)
                shades.append((cell["s"], shade))
            assert [s for _, s in sorted(shades)] == sorted(s for _, s in shades), (
                "a higher score is darker"
            )
        assert not cells and crosses(page) == lost
        marks = page.locator("#picture-routing .ss-routing-switch")
        told = marks.evaluate_all("nodes => nodes.map((n) => n.dataset.round)")
        assert told == list(value["switches"]) != []
    assert lost > 0 and len({fill for *_, fill in page.evaluate(CELLS)}) == 5 + 1
    names = page.locator("#picture-routing .ss-routing-name").all_text_contents()
    assert names == list(value["ssms"].values())
    letters = page.locator("#picture-routing .ss-svg-badge text").all_text_contents()
    assert letters == ["A", "B", "C", "D", "E"], "letters, not colour alone, tell them apart"


def test_a_click_selects_the_round_and_its_tip_says_the_part(pictures: Pictures) -> None:
    value = values_of("routed")["routing"]
    page = pictures.show("routed", "routing")
    assert page.locator("#picture-routing .ss-words").text_content() == value["sentence"]
    assert page.locator("#picture-routing .ss-routing-cost").text_content() == value["cost"]
    box = page.locator("#picture-routing .ss-routing-sel").bounding_box()
    page.mouse.click(box["x"] - 1.5 * box["width"], box["y"] + 0.7 * box["height"])
    assert pictures.last_sent() == {"round": value["sel"] - 2, "node": None}
    cell = value["rounds"][str(value["sel"] - 2)]["3"]
    tip = page.locator("#ss-tip").text_content()
    assert f"Round {value['sel'] - 1}" in tip and value["ssms"]["3"] in tip
    assert f"{cell['s']:.2f}" in tip


def test_it_has_a_table_is_accessible_and_there_only_where_a_rule_chooses(
    pictures: Pictures, axe: Callable[..., list[str]]
) -> None:
    value = values_of("switched")["routing"]
    page = pictures.show("switched", "routing")
    panel = page.locator("#picture-routing")
    for dark in (False, True):
        pictures.look(dark=dark)
        assert axe(page, "#picture-routing") == []
    panel.get_by_role("button", name="as a table").click()
    table = pictures.rest().locator("#picture-routing .ss-table table").nth(1)
    rows = table.locator("tbody tr").all_inner_texts()
    assert len(rows) == len(value["rounds"])
    for row, number in zip(rows, value["rounds"], strict=True):
        cells = row.split("\t")
        parts = {"routed": "drafts", "waiting": "left out", "lost": "lost"}
        parts["chosen"] = "chosen, but nothing was drafted"
        expected = [f"{parts[c['r']]}, {c['s']:.0f}" for c in value["rounds"][number].values()]
        assert cells[0] == str(int(number) + 1) and cells[1:6] == expected
        assert cells[6] == ("changed" if number in value["switches"] else "")
    assert rows[10].split("\t")[7] == value["reasons"]["10"]
    pictures.show("verify", "routing")
    assert not panel.locator(".ss-panel").is_visible()
    assert pictures.show("routed", "routing").locator("#picture-routing .ss-panel").is_visible()


TREE = """() => Object.fromEntries([...document.querySelectorAll("#picture-tree .ss-node")]
  .map((node) => [node.dataset.key,
    [...node.querySelectorAll(".ss-svg-badge text")].map((text) => text.textContent).join("")]))"""
RAILS = """() => [...document.querySelectorAll("#picture-tree .ss-rail")].map((rail) => {
  const [band, box] = [rail.querySelector("rect"), document.querySelector(
    `#picture-tree .ss-node[data-key='${rail.dataset.key}'] .ss-box`)]
    .map((node) => node.getBoundingClientRect());
  return [rail.dataset.key, band.left < box.left && band.right > box.right
    && band.top < box.top && band.bottom > box.bottom]; })"""


def test_a_fused_tree_shows_its_trunk_and_whose_token_each_node_is(pictures: Pictures) -> None:
    value = values_of("routed")["tree"]
    page = pictures.show("routed", "tree")
    letters = page.evaluate(TREE)
    expected = {key: "ABCDE"[int(node["origin"])] for key, node in value["nodes"].items()}
    assert {key: letters[key] for key in expected} == expected
    trunk = [key for key, node in value["nodes"].items() if node["trunk"]]
    assert sorted(page.evaluate(RAILS)) == sorted([key, True] for key in trunk)
    assert 0 < len(trunk) < len(expected)
    label = page.locator(f"#picture-tree .ss-node[data-key='{trunk[0]}']").get_attribute(
        "aria-label"
    )
    assert "on the trunk, token of" in label, "the label says it too, not the band alone"
    panel = page.locator("#picture-tree")
    assert panel.locator(".ss-fused-meant").is_visible()
    panel.get_by_role("button", name="as a table").click()
    rows = [
        row.split("\t")
        for row in pictures.rest().locator("#picture-tree tbody tr").all_inner_texts()
    ]
    told = {row[0]: (row[4][:1], row[5]) for row in rows if row[0] in expected}
    parts = {True: "trunk", False: "side leaf"}
    assert told == {
        key: (expected[key], parts[node["trunk"]]) for key, node in value["nodes"].items()
    }
    pictures.show("verify", "tree")
    assert not page.locator("#picture-tree .ss-rail").count()
    assert panel.locator(".ss-fused-meant").is_hidden()


REGRET_IN_SIGHT = """() => { const box = document.querySelector(".ss-regret .ss-scroll");
  return box.scrollWidth <= box.clientWidth + 1; }"""


def test_regret_is_asked_for_by_a_button_and_shown_in_a_sentence_and_rows(
    pictures: Pictures, axe: Callable[..., list[str]]
) -> None:
    pictures.give({"routing": {**values_of("routed")["routing"], "ask": False}})
    page = pictures.rest()
    panel = page.locator("#picture-routing")
    ask = panel.get_by_role("button", name="Count afterwards")
    assert not ask.is_visible() and not panel.locator(".ss-regret").is_visible(), "the run goes on"
    value = values_of("regretted")["routing"]["regret"]
    pictures.show("regretted", "routing")
    ask.click()
    assert pictures.last_sent() == {} and page.evaluate("() => pictures.event") == "submit"
    assert panel.locator(".ss-regret-said").text_content() == value["sentence"]
    rows = panel.locator(".ss-regret-rows tbody tr")
    told = [row.split("\t") for row in rows.all_inner_texts()]
    expected = [
        [r["drafters"], str(r["passes"]), f"{r['tokens']:.2f}", r["regret"] or "–"]
        for r in value["rows"].values()
    ]
    assert told == expected and len(expected) == 1 + 1 + 5 + 1
    assert axe(page, "#picture-routing") == []
    for width in (390, 1280):
        assert pictures.look(width=width).evaluate(REGRET_IN_SIGHT), width
    panel.get_by_role("button", name="as a table").click()
    again = pictures.rest().locator("#picture-routing .ss-table table").nth(2)
    assert [r.split("\t") for r in again.locator("tbody tr").all_inner_texts()] == expected


def test_the_line_below_says_of_when_the_scores_are(pictures: Pictures) -> None:
    value = {**values_of("routed")["routing"], "parts": {}}
    for scored, message in (("", ": "), ("as of the prompt's end", ", as of the prompt's end: ")):
        pictures.give({"routing": {**value, "scored": scored}})
        meant = pictures.rest().locator("#picture-routing .ss-meant").last.inner_text()
        assert meant.startswith(f"Right: scores of the selected round{message}")


def test_it_says_that_regret_is_counted_on_request(pictures: Pictures) -> None:
    value = values_of("routed")["routing"]
    regret = value["regret"] or {"sentence": "SYNTHETIC: it took no pass more", "rows": {}}
    for ask, counted in ((True, {}), (True, regret), (False, {})):
        pictures.give({"routing": {**value, "ask": ask, "regret": counted}})
        meant = pictures.rest().locator("#picture-routing .ss-meant").last.inner_text()
        assert ("is computed on request" in meant) == (ask and not counted)
