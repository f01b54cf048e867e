"""Votes, lengths and drafting ahead in a real Chromium: what is drawn is the value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from bench.page.looks import at_rest
from tests.ui.components.conftest import turn
from tests.ui.components.gallery import scenes
from tests.ui.components.test_drawn import TREE_NODES, shown

pytestmark = pytest.mark.browser

Show = Callable[..., Any]


def near(texts: list[str], numbers: list[float], within: float = 0.006) -> bool:
    return [float(text) for text in texts] == pytest.approx(numbers, abs=within)


def test_a_vote_is_drawn_with_its_masses_weights_and_winner(show: Show) -> None:
    value = scenes()["vote"]()["proposals"]
    page = show("vote")
    panel = page.locator("#picture-proposals")
    chips = [chip for row in value["rows"].values() for chip in row.values()]
    masses = panel.locator(".ss-chip-mass").all_text_contents()
    order = [
        token
        for row in value["rows"].values()
        for token in sorted(row.values(), key=lambda token: token["depth"])
    ]
    assert near([text.split()[1] for text in masses], [token["mass"] for token in order])
    assert "Σ: the weights of all SSMs that" in panel.locator(".ss-mass-meant").inner_text()
    assert panel.locator(".ss-chip[data-dropped]").count() == sum(not c["in_tree"] for c in chips)
    won = panel.locator(".ss-won:not([hidden])")
    assert won.count() == 1 and won.text_content() == "★ won"
    assert value["drafters"][value["winner"]]["name"] in panel.locator("tr[data-won]").inner_text()
    stars = panel.locator(".ss-chip[data-won]").all_text_contents()
    assert len(stars) == value["kept"]["nodes"] and all("★" in text for text in stars)
    assert panel.locator(".ss-vote-said").text_content() == value["sentence"]
    weights = panel.locator(".ss-weight-number").all_text_contents()
    assert near([text.split(" ")[0] for text in weights], list(value["weights"].values()))
    assert near([text.split(" ")[-1] for text in weights], list(value["after"].values()))
    assert panel.locator(".ss-mini-line").count() == 3
    ends = panel.locator(".ss-mini-end").all_text_contents()
    assert sorted(ends) == ["A", "B", "C"], "not told by colour alone"
    dashes = panel.locator(".ss-mini-line").evaluate_all(
        "nodes => nodes.map((node) => node.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 3


def test_without_a_vote_the_panel_is_as_it_was(show: Show) -> None:
    panel = show("verify").locator("#picture-proposals")
    hidden = (
        ".ss-mass-meant",
        ".ss-won",
        ".ss-dial",
        ".ss-vote-said",
        ".ss-mini",
        ".ss-weight",
        ".ss-chip-mass",
    )
    for part in hidden:
        assert not any(panel.locator(part).evaluate_all("all => all.map((n) => !n.hidden)")), part


def test_the_dial_and_the_pool_say_what_they_kept(show: Show) -> None:
    page = show("dial")
    panel = page.locator("#picture-proposals")
    kept = scenes()["dial"]()["proposals"]["kept"]
    words = panel.locator(".ss-dial-words").text_content()
    assert words.startswith(f"{kept['nodes']} of {kept['all']} nodes kept")
    track = panel.locator(".ss-dial-track").bounding_box()["width"]
    fill = panel.locator(".ss-dial-fill").bounding_box()["width"]
    wanted = (kept["nodes"] - kept["longest"]) / (kept["all"] - kept["longest"])
    assert fill / track == pytest.approx(wanted, abs=0.03)
    meant = panel.locator(".ss-mass-meant")
    assert meant.inner_text().startswith("Σ: how likely the SSMs held the path")
    turn(page, "pool")
    assert meant.inner_text() == (
        "∏: the geometric mean, by weight, of the SSMs' scores of this token "
        "after the one before it."
    )
    rows = scenes()["pool"]()["proposals"]["rows"]
    assert panel.locator(".ss-dial").is_hidden()
    assert panel.locator(".ss-chip-mass").count() == sum(len(row) for row in rows.values())
    assert "∏" in panel.locator(".ss-chip-mass").first.text_content()


def test_what_lost_the_vote_is_dotted_in_the_tree_once_and_whoever_drafted_it(show: Show) -> None:
    value = scenes()["lost"]()["tree"]
    drawn = show("lost").evaluate(TREE_NODES)
    lost = {key[1:]: node for key, node in drawn.items() if key.startswith("d")}
    assert set(lost) == set(value["dropped"]) and lost
    for key, told in value["dropped"].items():
        assert lost[key]["kind"] == "dropped" and lost[key]["text"] == shown(told["t"])
        assert lost[key]["by"] == "".join("ABC"[int(drafter)] for drafter in told["by"])


def test_the_controllers_estimates_are_columns_with_the_next_length_marked(show: Show) -> None:
    value = scenes()["vote"]()["lengths"]
    panel = show("vote").locator("#picture-lengths")
    assert value["reason"] in panel.locator(".ss-choice-said").text_content()
    heights = panel.locator(".ss-mini-col").evaluate_all(
        "nodes => nodes.map((node) => Number(node.getAttribute('height')))"
    )
    speeds = [told["tps"] for told in value["estimates"].values()]
    assert [h / max(heights) for h in heights] == pytest.approx([s / max(speeds) for s in speeds])
    tops, level = (
        panel.locator(f".ss-mini-{name}").evaluate_all(
            "(nodes, side) => nodes.map((node) => Number(node.getAttribute(side)))", side
        )
        for name, side in (("col", "y"), ("level", "y1"))
    )
    bottom, fastest = tops[0] + heights[0], max(range(len(speeds)), key=lambda i: speeds[i])
    share = (bottom - level[0]) / (bottom - tops[fastest])
    assert share == pytest.approx(value["lately"] / speeds[fastest], rel=1e-3)
    chosen = panel.locator(".ss-mini-col").evaluate_all(
        "nodes => nodes.findIndex((node) => node.classList.contains('ss-mini-chosen'))"
    )
    assert str(chosen) == str(value["next"])
    assert panel.locator(".ss-mini-end").text_content() == f"▸{value['next']}"


def test_hits_misses_and_predictions_stand_at_the_lanes(show: Show) -> None:
    value = scenes()["ahead"]()["timeline"]
    page = show("ahead")
    panel = page.locator("#picture-timeline")
    words = panel.locator(".ss-ahead-sums").text_content()
    ahead = value["ahead"]
    misses = ahead["misses"] - ahead["unused"]
    counted = f"{ahead['hits']} hits (✓), {misses} misses (✗) and {ahead['unused']} not used"
    assert counted in words
    assert f"{ahead['saved']:.1f} ms saved, {ahead['wasted']:.1f} ms wasted" in words
    assert f"for {100 * value['overlap']:.0f} % of the LLM's time a drafter worked too" in words
    assert panel.locator(".ss-ahead-what").text_content().startswith("A hit: the LLM wrote")
    assert panel.locator(".ss-ahead-key").is_visible()
    own = value["rounds"][str(value["sel"])]
    told = panel.locator(".ss-ahead-predicted").text_content()
    times = re.search(r"predicted ([\d.]+) ms, measured ([\d.]+) ms", told)
    assert times and near(list(times.groups()), [own["p"], own["ms"]], 0.051)
    check_marks(page, value)
    panel.get_by_role("button", name="Show 5 rounds around").click()


def check_marks(page: Any, value: dict[str, Any]) -> None:
    """Every bar with its mark; only drafting ahead is an outline, and each fate has its shape."""
    page.wait_for_function("document.querySelector('.ss-timeline .ss-plot')?.data")
    page.get_by_role("button", name="Show every round").click()
    spans = [span for told in value["bars"].values() for span in told.values()]
    plot = "document.querySelector('.ss-timeline .ss-plot')"
    page.wait_for_function(f"{plot}.data[0].base.length === {len(spans)}")
    marks = page.evaluate(f"{plot}.data[0].text")
    assert marks == [{"hit": "✓", "miss": "✗"}.get(span["a"], "") for span in spans]
    assert {"✓", "✗", ""} == set(marks)
    hollow, shapes = page.evaluate(
        f"""() => {{ const {{ color, pattern }} = {plot}.data[0].marker;
        const panel = getComputedStyle({plot}.closest('.ss-panel')).backgroundColor;
        return [color.map((own) => own === panel), pattern.shape]; }}"""
    )
    fates = [(span["name"] == "ahead", span["a"]) for span in spans]
    assert hollow == [ahead and fate == "open" for ahead, fate in fates]
    own = [shape for shape, (ahead, _) in zip(shapes, fates, strict=True) if ahead]
    assert own == [{"hit": ".", "miss": "x", "open": ""}[fate] for ahead, fate in fates if ahead]


def test_saved_and_wasted_time_stand_round_by_round(show: Show) -> None:
    hits = scenes()["ahead"]()["timeline"]["hits"]
    panel = show("ahead").locator("#picture-timeline")
    paths = [
        panel.locator(f".ss-mini-{way}").get_attribute("d").split("Z")[:-1]
        for way in ("up", "down")
    ]
    numbers = [[[float(n) for n in re.findall(r"[\d.]+", one)] for one in path] for path in paths]
    up = [zero - tip for _, zero, tip, _, _ in numbers[0]]
    down = [tip - zero for _, zero, tip, _, _ in numbers[1]]
    drawn = [*up, *down]
    told = [sums["saved"] for sums in hits.values()] + [sums["wasted"] for sums in hits.values()]
    scale = max(drawn) / max(told)
    assert drawn == pytest.approx([scale * time for time in told], abs=0.2)


def test_each_drafter_s_work_ahead_is_told_with_why_it_was_for_nothing(show: Show) -> None:
    value = scenes()["ahead-end"]()["timeline"]
    told = show("ahead-end").locator("#picture-timeline .ss-ahead-round").text_content()
    parts = told.removeprefix("Round 20, from drafts begun during round 19: ").split("; ")
    says = {
        "": "hit, ",
        "wrong": "miss, nothing saved",
        "unused": "right, but the round did not use its draft",
        "ended": "drafted for a next round, but the text ended",
    }
    own = value["round"].values()
    assert {"unused", "ended"} <= {one["why"] for one in own}
    for part, one in zip(parts, own, strict=True):
        name = value["drafters"][one["d"]]["name"]
        assert part.startswith(f"{name} {says[one['why']]}")
        wasted = re.search(r"([\d.]+) ms wasted \(3 guesses, together 6", part)
        assert wasted and float(wasted[1]) == pytest.approx(one["wasted"], abs=0.051)


TABLES = """(tables) => tables.map((table) => [...table.rows].map((row) =>
  [...row.cells].map((cell) => cell.textContent)))"""


def tables(page: Any, name: str) -> list[list[list[str]]]:
    """The table form of a picture: its tables' rows, the head first."""
    panel = page.locator(f"#picture-{name}")
    button = panel.get_by_role("button", name="as a table")
    button.click()
    found = panel.locator(".ss-table table").evaluate_all(TABLES)
    button.click()
    return list(found)


def numbers(rows: list[list[str]]) -> list[list[float]]:
    return [[float(cell) for cell in row] for row in rows]


def test_the_table_forms_have_every_figure_of_the_charts(show: Show) -> None:
    page, values = show("vote"), scenes()["vote"]()
    lengths, timeline, proposals = (values[n] for n in ("lengths", "timeline", "proposals"))
    rates, often, rounds, chosen = tables(page, "lengths")
    assert len(rounds) == 1 + len(lengths["rounds"])
    assert often[1:] == [[j, str(n)] for j, n in lengths["histogram"].items()] != []
    wanted = [[str(int(i) + 1), f"{100 * r:.1f} %"] for i, r in lengths["per_position"].items()]
    assert [row[:2] for row in rates[1:]] == wanted != []
    estimates = [
        [int(n), e["t"], e["ms"], e["tps"], e["n"]] for n, e in lengths["estimates"].items()
    ]
    for row, wanted in zip(numbers([row[:5] for row in chosen[1:]]), estimates, strict=True):
        assert row == pytest.approx(wanted, abs=0.051)
    assert [row[0] for row in chosen[1:] if row[5]] == [str(lengths["next"])]
    caption = page.locator("#picture-lengths caption").nth(3).text_content()
    assert lengths["reason"].replace("->", "→") in caption
    ahead, lanes = tables(page, "timeline")
    assert len(lanes) == 1 + sum(map(len, timeline["bars"].values()))
    for row in ahead[1:]:
        number = str(int(row[0]) - 1)
        hit, times = timeline["hits"].get(number, {}), timeline["rounds"].get(number, {})
        hit = {**hit, "misses": hit["misses"] - hit["unused"]} if hit else hit
        wanted = [hit.get(name) for name in ("hits", "misses", "unused", "saved", "wasted")]
        wanted += [times.get("p"), times.get("ms"), times.get("all")]
        for cell, value in zip(row[1:], wanted, strict=True):
            assert (cell == "") if value is None else near([cell], [value])
    assert len(ahead) == 1 + len({*timeline["hits"], *timeline["rounds"]})
    tokens, weights = tables(page, "proposals")
    assert len(tokens) == 1 + sum(map(len, proposals["rows"].values()))
    history = [[int(n) + 1, *w.values()] for n, w in proposals["history"].items()]
    for row, wanted in zip(numbers(weights[1:]), history, strict=True):
        assert row == pytest.approx(wanted, abs=0.006)


CUT = """() => [
  ...[".ss-vote-said", ".ss-proposals .ss-words", ".ss-timeline .ss-words", ".ss-choice-said"]
    .map((name) => document.querySelector(name))
    .filter((p) => p.scrollHeight > p.clientHeight + 1 || p.scrollWidth > p.clientWidth + 1)
    .map((p) => p.textContent),
  ...[...document.querySelectorAll(".ss-mini-title")]
    .map((title) => [title, title.getBBox(), title.ownerSVGElement.clientWidth])
    .filter(([, box, width]) => box.x + box.width > width + 1)
    .map(([title]) => title.textContent),
]"""
IN_SIGHT = """(scroll) => {
  const right = (node) => node.getBoundingClientRect().right;
  const depths = [...scroll.querySelectorAll("thead th")].slice(1);
  return depths.filter((depth) => right(depth) <= right(scroll) + 1).length;
}"""


@pytest.mark.parametrize("large", [False, True], ids=["ordinary", "large"])
@pytest.mark.parametrize(("scene", "depths"), [("vote", 3), ("pool", 3), ("dial", 2)])
def test_no_words_are_cut_on_a_phone_and_more_than_one_depth_is_in_sight(
    show: Show, scene: str, depths: int, large: bool
) -> None:
    page = show(scene)
    page.set_viewport_size({"width": 390, "height": 900})
    switch = "(on) => document.documentElement.classList.toggle('ss-large', on)"
    page.evaluate(switch, large)
    try:
        at_rest(page)
        at_rest(page)  # what was drawn may have changed the size of others
        assert page.evaluate(CUT) == []
        seen = page.locator("#picture-proposals .ss-scroll").evaluate(IN_SIGHT)
        assert seen >= (depths if not large else depths - 1)
    finally:
        page.evaluate(switch, False)


def test_a_note_is_marked_in_the_text_and_told_on_hover(show: Show) -> None:
    value = scenes()["vote"]()["strip"]
    page = show("vote")
    noted = page.locator("#picture-strip .ss-round[data-noted]")
    assert [noted.nth(i).get_attribute("data-r") for i in range(noted.count())] == list(
        value["notes"]
    )
    noted.first.locator(".ss-tok").first.hover()
    tip = page.locator("#ss-tip").text_content()
    assert "drafter ssm-stories failed" in tip and "noted" in tip
