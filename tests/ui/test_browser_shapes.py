"""Sizes and places of bars, lanes, lines and edges on Live, in a real Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from bench.page.playback import playback
from tests.synthetic import Mechanisms, synthetic_run
from tests.ui import sites
from tests.ui.browser import looks
from tests.ui.fakes import Script, recorded
from tests.ui.reading import becomes, in_looks
from tests.ui.sites import OpenPage, Stage

pytestmark = pytest.mark.browser

FIVE = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
SIZES = ((1280, 800), (1920, 1080))
ROUNDS = 12


def five_ssms(uses: Mechanisms) -> Script:
    return playback(synthetic_run(ROUNDS, seed=5, drafters=FIVE, mechanisms=uses))


@pytest.fixture
def live(stages: Any) -> Stage:
    stage: Stage = stages(("live",))
    stage.clear()
    stage.play(five_ssms(Mechanisms("union")))
    return stage


def at_size(page: Any, size: tuple[int, int]) -> Any:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    looks.at_rest(page)
    return page


# `most`: the longest bar's share of its track. `wrong`: the largest difference between a bar's
# share of its track and the bar's number divided by the largest number.
WHY = """() => {
  const box = (node) => node.getBoundingClientRect();
  const all = (css) => [...document.querySelectorAll(`#live-inspector ${css}`)];
  const columns = all(".ss-source").map(box);
  const shares = all(".ss-bar").map((bar) => [
    box(bar.querySelector(".ss-bar-fill")).width / box(bar.querySelector(".ss-bar-track")).width,
    parseFloat(bar.querySelector(".ss-bar-number").textContent)]);
  const [most, longest] = [0, 1].map((i) => Math.max(...shares.map((one) => one[i])));
  const spread = (values) => Math.max(...values) - Math.min(...values);
  const body = all(".ss-body")[0];
  return {
    columns: columns.length,
    alike: spread(columns.map((one) => one.width)) < 1 && spread(columns.map((one) => one.top)) < 1,
    track: Math.min(...all(".ss-bar-track").map((one) => box(one).width)),
    most,
    wrong: Math.max(...shares.map(([share, p]) => Math.abs(share - p / longest))),
    below: all(".ss-bar").every((bar) => box(bar).bottom <= box(all(".ss-meant")[0]).top + 1),
    fits: getComputedStyle(body).overflowY === "auto" || body.scrollHeight <= body.clientHeight,
    whole: body.scrollHeight <= body.clientHeight + 1,
  };
}"""
FEW = """() => [...document.querySelectorAll("#live-inspector .ss-source")].map((source) => {
  const shown = [...source.querySelectorAll(".ss-bar")].filter((bar) => bar.checkVisibility());
  const hit = source.querySelector(".ss-bar[data-hit]");
  return shown.length <= 4 && (!hit || shown.includes(hit));
}).every(Boolean)"""


def test_a_run_of_five_ssms_has_the_shapes_that_its_pictures_are_to_have(
    live: Stage, browser_page: OpenPage
) -> None:
    page = sites.ran(sites.wait_ready(browser_page(live.url, still=True)))
    why_has_the_ssms_bars_before_the_llms_pass(page, live)
    bars_of_all_models_compare_and_nothing_lies_on_them(page)
    lanes_show_whole_words_below_their_blocks_and_the_verdict_is_large(page, live)
    a_wide_screen_has_why_and_when_side_by_side(page)
    lines_to_siblings_run_between_the_rows(page)
    lines_of_a_tree_are_seen_on_its_ground(page, live)
    no_line_of_the_text_is_cut(page, live)


def bars_of_all_models_compare_and_nothing_lies_on_them(page: Any) -> None:
    page.locator("#live-tree .ss-node[data-key='0']").click()
    page.locator("#live-inspector .ss-source").nth(5).wait_for()
    for size in SIZES:
        why = at_size(page, size).evaluate(WHY)
        assert why["columns"] == 6 and why["alike"] and why["below"], (size, why)
        assert why["fits"] and why["whole"], (size, why)
        assert why["track"] >= 150, (size, why)
        assert why["most"] == pytest.approx(1, abs=0.01) and why["wrong"] < 0.02, (size, why)
    at_size(page, (1280, 700))
    assert page.evaluate(FEW), "the three most probable and the token itself"
    why = page.evaluate(WHY)
    assert why["below"] and why["fits"], why


STAGE = "document.querySelector('#live-tree .ss-stage[aria-current]')?.dataset.stage"
SOURCES = """() => [...document.querySelectorAll("#live-inspector .ss-source")]
  .filter((one) => one.querySelector(".ss-bar")).length"""


def why_has_the_ssms_bars_before_the_llms_pass(page: Any, live: Stage) -> None:
    desk = sites.desk_of(live.context)
    for stage in ("draft", "combine"):
        page.locator(f"#live-tree [data-stage={stage}]").click()
        page.wait_for_function(f"() => {STAGE} === {stage!r}")
        drafts = desk.frame().detail.drafted.drafts
        becomes(page, SOURCES, sum(bool(draft.token_ids) for draft in drafts))
        assert page.locator("#live-inspector .ss-meant").is_hidden(), (
            "the foot note is about the LLM's bars"
        )
        assert "scores" in page.locator("#live-inspector .ss-sentence").inner_text()
    page.locator("#live-tree [data-stage=commit]").click()
    page.wait_for_function(f"() => {STAGE} === 'commit'")


# For each lane: its words, and whether they are below the SVG and inside the track.
LANES = """() => [...document.querySelectorAll("#live-figures .ss-race-lane")].map((lane) => {
  const [track, svg, words] = ["track", "svg", "words"].map((name) =>
    lane.querySelector(`.ss-lane-${name}`).getBoundingClientRect());
  const inside = words.left >= track.left - 1 && words.right <= track.right + 1;
  return [lane.querySelector(".ss-lane-words").textContent, svg.bottom <= words.top + 1 && inside];
})"""
PIXELS = """() => [".ss-verdict", ".ss-verdict b", ".ss-race-speed"].map((css) => {
  const style = getComputedStyle(document.querySelector(`#live-figures ${css}`));
  return [parseFloat(style.fontSize), style.color];
})"""


def are_whole(shown: list[str], words: list[str]) -> bool:
    """The last word of `shown` may end before a sign that is no letter or digit."""
    *before, last = shown
    if words[: len(before)] != before or len(words) < len(shown):
        return False
    word = words[len(before)]
    return word.startswith(last) and not word.removeprefix(last)[:1].isalnum()


def lanes_show_whole_words_below_their_blocks_and_the_verdict_is_large(
    page: Any, live: Stage
) -> None:
    tokens = [token.text for token in sites.desk_of(live.context).frame().view.tokens]
    whole = " ".join("".join(tokens).split()).split(" ")
    for size, least in ((SIZES[0], 24), (SIZES[1], 30)):
        at_size(page, size)
        for number in (4, ROUNDS - 1):
            page.locator(f"#live-scrubber [data-r='{number}']").click()
            looks.at_rest(page)
            for words, well in page.evaluate(LANES):
                assert well, (size, words)
                shown = words.removeprefix("… ").split(" ")
                starts = [i for i in range(len(whole)) if are_whole(shown, whole[i:])]
                assert starts, (size, words)
                assert words.startswith("… ") or 0 in starts, (size, words)
        (verdict, ink), (_, accent), (_, quiet) = page.evaluate(PIXELS)
        assert verdict >= least and len({ink, accent, quiet}) == 3
        looks.large_type(page, True)
        assert page.evaluate(PIXELS)[0][0] > verdict, "larger in large type"
        looks.large_type(page, False)


PANES = """() => [...document.querySelectorAll("#live-dock > .sp-pane")]
  .filter((pane) => pane.checkVisibility()).map((pane) => {
    const { left, right, top } = pane.getBoundingClientRect();
    return [pane.className.match(/sp-pane-(\\w+)/)[1], left, right, top];
  })"""


def a_wide_screen_has_why_and_when_side_by_side(page: Any) -> None:
    at_size(page, SIZES[0])
    assert [pane[0] for pane in page.evaluate(PANES)] == ["why"]
    sites.dock(page, "when")
    assert [pane[0] for pane in page.evaluate(PANES)] == ["when"]
    at_size(page, SIZES[1])
    for name in ("when", "why"):
        if name != "when":
            sites.dock(page, name)
        why, when = page.evaluate(PANES)
        assert (why[0], when[0]) == ("why", "when") and why[2] <= when[1] and why[3] == when[3]
    sites.dock(page, "who")
    assert [pane[0] for pane in page.evaluate(PANES)] == ["who"]
    sites.dock(page, "why")


CUT_LINES = """() => {
  const scroll = document.querySelector("#live-strip .ss-scroll");
  const { top, bottom } = scroll.getBoundingClientRect();
  return [...scroll.querySelectorAll(".ss-tok")].flatMap((token) => [...token.getClientRects()])
    .filter((box) => box.width > 3 && (Math.abs(box.top + 1 - top) + Math.abs(box.bottom - 1 - top)
      < box.height - 2 || Math.abs(box.top + 1 - bottom) + Math.abs(box.bottom - 1 - bottom)
      < box.height - 2)).map((box) => [box.top - top, box.bottom - bottom]);
}"""


FADE = """() => {
  const scroll = document.querySelector("#live-strip .ss-scroll");
  const [box, fade] = [getComputedStyle(scroll), getComputedStyle(scroll, "::after")];
  return [[fade.bottom, box.paddingBottom], [fade.marginLeft, box.paddingLeft]]
    .map(([offset, padding]) => parseFloat(offset) <= -parseFloat(padding));
}"""


def no_line_of_the_text_is_cut(page: Any, live: Stage) -> None:
    live.play(recorded(60))
    sites.ran_again(page, live.context)
    for size in SIZES:
        at_size(page, size)
        for number in (0, 37, 59):
            page.locator(f"#live-scrubber [data-r='{number}']").click()
            looks.at_rest(page)
            becomes(page, CUT_LINES, [])
    assert page.evaluate(FADE) == [True, True], "the fade covers the padding, where lines go on too"


# For each kind of edge and of box border, the least contrast with the tree's background.
EDGES = """() => {
  const rgb = (css) => css.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (css) => {
    const [r, g, b] = rgb(css).map((v) => v / 255).map((v) =>
      v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = rgb(getComputedStyle(document.querySelector("#live-tree .ss-viewport"))
    .backgroundColor);
  const found = {};
  for (const line of document.querySelectorAll("#live-tree :is(.ss-edge, .ss-box)")) {
    const style = getComputedStyle(line);
    if (style.stroke === "none") continue;
    const over = (v, i) => v * style.opacity + ground[i] * (1 - style.opacity);
    const part = rgb(style.stroke).map(over);
    const [a, b] = [`${part}`, `${ground}`].map(light).sort((x, y) => y - x);
    const kind = line.getAttribute("class").match(/ss-e-(\\w+)/)?.[1]
      ?? line.parentElement.getAttribute("class").match(/ss-n-(\\w+)/)[1];
    found[kind] = Math.min(found[kind] ?? 99, (a + 0.05) / (b + 0.05));
  }
  return found;
}"""


def lines_of_a_tree_are_seen_on_its_ground(page: Any, live: Stage) -> None:
    kinds: set[str] = set()
    for combine in ("union", "vote"):
        if combine == "vote":
            uses = Mechanisms("vote", "goodput", "ahead")
            live.play(five_ssms(uses))
            sites.ran_again(page, live.context)
        for look in in_looks(page, (1280, True), (1280, False)):
            for number in (2, 5):
                page.locator(f"#live-scrubber [data-r='{number}']").click()
                looks.at_rest(page)
                contrast = page.evaluate(EDGES)
                kinds.update(contrast)
                assert min(contrast.values()) >= 3, (combine, number, look, contrast)
    assert kinds >= {"not_reached", "rejected", "dropped", "accepted"}


# For nodes of ordinary and of least height: the distances, in units of the drawing, from an edge
# over a sibling to the boxes below and above the edge.
BRACKETS = """async (base) => {
  const { edgePath } = await import(base + "tree_layout.js");
  const { sizes } = await import(base + "tree_node.js");
  return [sizes(1, true, true, true), sizes(1, true, true, true, true)].map((size) => {
    const child = { x: 200, y: 100, width: 40 };
    const head = { x: 120, y: 100, width: 40 };
    const path = edgePath({ x: 0, y: 100, width: 40, right: 40 }, child, size, head);
    const over = Number(path.match(/V([\\d.]+)H/)[1]);
    return [100 - size.height / 2 - over, over - (100 - size.row + size.height / 2)];
  });
}"""


def lines_to_siblings_run_between_the_rows(page: Any) -> None:
    base = page.evaluate("() => document.querySelector('link[href*=\"/tree.css\"]').href")
    for below, above in page.evaluate(BRACKETS, base.removesuffix("tree.css")):
        assert below >= 5 and above >= 5, "pixels from the boxes of both rows"
