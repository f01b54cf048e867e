"""The pictures of lengths and of the pipeline, and tables of pictures, in a real Chromium."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.ui.components.bare import BASE, Pictures
from tests.ui.components.gallery import values_of
from tests.ui.components.test_picture_values import near

pytestmark = pytest.mark.browser

LENGTHS = "document.querySelector('.ss-lengths .ss-plot').data"
PLOT = "document.querySelector('.ss-timeline .ss-plot')"
SHARED_NAMES = ("draft", "catch up")
TABLES = """(tables) => tables.map((table) => [...table.rows].map((row) =>
  [...row.cells].map((cell) => cell.textContent)))"""


def tables(pictures: Pictures, name: str) -> list[list[list[str]]]:
    """Each table is a list of rows. The first row is the head."""
    panel = pictures.page.locator(f"#picture-{name}")
    button = panel.get_by_role("button", name="as a table")
    button.click()
    pictures.rest()
    result = panel.locator(".ss-table table").evaluate_all(TABLES)
    button.click()
    pictures.rest()
    return list(result)


def numbers(rows: list[list[str]]) -> list[list[float]]:
    return [[float(cell) for cell in row] for row in rows]


def test_lengths_hold_rounds_estimates_and_what_the_budget_bounds(pictures: Pictures) -> None:
    page = pictures.show("verify", "lengths")
    value = values_of("verify")["lengths"]
    traces = page.evaluate(LENGTHS)
    assert len(traces) == 4
    assert traces[0]["y"] == [round_value["a"] for round_value in value["rounds"].values()]
    assert traces[2]["y"] == list(value["histogram"].values())
    bound_by_the_budget(pictures)
    estimates_of_the_controller(pictures)
    lengths = page.locator("#picture-lengths .ss-plot")
    pictures.show("plain", "lengths")
    assert lengths.get_by_text("no draft accepted").count() == 1
    assert lengths.get_by_text("position", exact=True).count() == 0, "no empty axis"
    pictures.show("verify", "lengths")
    assert lengths.get_by_text("no draft accepted").count() == 0
    assert lengths.get_by_text("position", exact=True).count() == 1


TICKS = """(axis) => {
  const boxes = [...document.querySelectorAll(`#picture-lengths .${axis}tick text`)]
    .map((one) => one.getBoundingClientRect()).sort((a, b) => a.left - b.left);
  return boxes.slice(1).map((box, i) => box.left - boxes[i].right); }"""


def test_the_numbers_below_the_histogram_do_not_touch(pictures: Pictures) -> None:
    value = dict(values_of("verify")["lengths"])
    for width, large in ((1280, False), (1000, False), (390, False), (1280, True), (390, True)):
        page = pictures.look(width=width, large=large)
        for most in (9, 10, 12, 16):
            value["histogram"] = {str(j): 1 + j % 3 for j in range(most + 1)}
            value["per_position"] = {str(j): 1 - j / 20 for j in range(most)}
            pictures.give({"lengths": value})
            pictures.rest()
            for axis in ("x2", "x3"):
                gaps = page.evaluate(TICKS, axis)
                assert gaps and min(gaps) > 3, (most, axis, width, large, gaps)


def bound_by_the_budget(pictures: Pictures) -> None:
    panel = pictures.page.locator("#picture-lengths")
    said = panel.locator(".ss-choice-said")
    lengths = values_of("verify")["lengths"]["rounds"]["0"]["s"]
    assert pictures.page.evaluate(f"{LENGTHS}[1].y[0]") == lengths > 1
    assert said.inner_text() == (
        "fixed: the length is always the one that was set; other policies change it during a "
        "run, or end each draft where its SSM is unsure."
    )
    hidden = panel.locator(".ss-choice-none, .ss-choice .ss-mini")
    assert not hidden.filter(visible=True).count()
    value = values_of("budget")["lengths"]
    line = pictures.show("budget", "lengths").evaluate(f"{LENGTHS}[1]")
    assert set(line["y"]) == {1}
    reason = "drafts at most 1 deep, because of the node budget (speculation length 8)"
    assert line["text"][0] == reason
    assert "depth allowed (dotted)" in panel.locator(".ss-plot").text_content()
    assert value["reason"] in said.inner_text()
    assert panel.locator(".ss-choice-budget").inner_text() == value["budget"]
    head, *rounds = tables(pictures, "lengths")[2]
    assert head[3:] == ["depth allowed", "speculation length"]
    assert {tuple(row[3:]) for row in rounds} == {("1", "8")}, "what is allowed, what was set"
    pictures.show("verify", "lengths")
    assert tables(pictures, "lengths")[2][0][3:] == ["speculation length"], "no column twice"


COLUMNS = """() => { const all = (name) => [...document.querySelectorAll(`.ss-lengths ${name}`)];
  const number = (node, name) => Number(node.getAttribute(name));
  const columns = all(".ss-mini-col");
  return { heights: columns.map((node) => number(node, "height")),
    tops: columns.map((node) => number(node, "y")),
    level: number(all(".ss-mini-level")[0], "y1"),
    chosen: columns.findIndex((node) => node.classList.contains("ss-mini-chosen")),
    end: all(".ss-mini-end").map((node) => node.textContent),
    said: all(".ss-choice-said")[0].textContent }; }"""


def estimates_of_the_controller(pictures: Pictures) -> None:
    value = values_of("vote")["lengths"]
    drawn = pictures.show("vote", "lengths").evaluate(COLUMNS)
    speeds = [estimate["tps"] for estimate in value["estimates"].values()]
    heights = drawn["heights"]
    assert [h / max(heights) for h in heights] == pytest.approx([s / max(speeds) for s in speeds])
    bottom = drawn["tops"][0] + heights[0]
    fastest = max(range(len(speeds)), key=lambda i: speeds[i])
    share = (bottom - drawn["level"]) / (bottom - drawn["tops"][fastest])
    assert share == pytest.approx(value["lately"] / speeds[fastest], rel=1e-3)
    assert str(drawn["chosen"]) == str(value["next"])
    assert drawn["end"] == [f"▸{value['next']}"]
    assert value["reason"] in drawn["said"]


BARS = f"""() => {{ const {{ data, parentNode }} = {PLOT}; const [all] = data;
  const panel = getComputedStyle(parentNode.closest(".ss-panel")).backgroundColor;
  const paths = [...document.querySelectorAll(".ss-timeline .ss-plot .bars .point path")];
  const swatches = [...document.querySelectorAll("#picture-timeline .ss-ahead-swatch")];
  return {{ count: data.length, swatches: swatches.map((n) => getComputedStyle(n).backgroundImage),
    bars: all.base.map((start, i) => ({{ start, ms: all.x[i], lane: all.y[i], mark: all.text[i],
      round: all.customdata[i][0], stage: all.customdata[i][1], hover: all.customdata[i][6],
      shape: all.marker.pattern.shape[i], hollow: all.marker.color[i] === panel,
      box: paths[i].getBoundingClientRect().toJSON() }})) }}; }}"""


def bars_of(pictures: Pictures, scene: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The drawn bars, and the value's spans in the same order."""
    page = pictures.show(scene, "timeline")
    page.get_by_role("button", name="Show every round").click()
    bars = pictures.rest().evaluate(BARS)["bars"]
    page.get_by_role("button", name="Show 5 rounds around").click()
    pictures.rest()
    value = values_of(scene)["timeline"]
    return list(bars), [span for own in value["bars"].values() for span in own.values()]


def test_the_pipeline_draws_every_span_with_its_mark_and_shape(pictures: Pictures) -> None:
    few = pictures.show("verify", "timeline").evaluate(BARS)
    bars, spans = bars_of(pictures, "verify")
    assert few["count"] == 1 and 5 * 4 < len(few["bars"]) < len(spans), "five rounds of thirty"
    assert [bar["start"] for bar in bars] == [span["start"] for span in spans]
    script = "performance.getEntriesByType('resource').filter((r) => r.name.includes('plotly'))"
    assert pictures.page.evaluate(f"{script}.length") == 1, "loaded once"
    fates_of_drafts_made_ahead(pictures)
    saved_and_wasted(pictures)
    value = values_of("split")["timeline"]["ahead"]
    marks = [bar["mark"] for bar in bars_of(pictures, "split")[0]]
    assert marks.count("✔") == value["hits"] > 0, "one for each hit, however many bars it took"
    assert marks.count("✗") == value["misses"] - value["unused"] > 0


def fates_of_drafts_made_ahead(pictures: Pictures) -> None:
    bars, spans = bars_of(pictures, "ahead")
    marks = [bar["mark"] for bar in bars]
    assert marks == [{"hit": "✔", "miss": "✗"}.get(span["a"], "") for span in spans]
    assert {"✔", "✗", ""} == set(marks)
    fates = [(span["name"] == "ahead", span["a"]) for span in spans]
    assert [bar["hollow"] for bar in bars] == [ahead and fate == "open" for ahead, fate in fates]
    own = [bar["shape"] for bar, (ahead, _) in zip(bars, fates, strict=True) if ahead]
    assert own == [{"hit": ".", "miss": "x", "open": ""}[fate] for ahead, fate in fates if ahead]
    shapes: dict[str, set[str]] = {}
    for bar in bars:
        name = bar["hover"] if bar["stage"] == "ahead" else bar["stage"]
        shapes.setdefault(name, set()).add(bar["shape"])
    assert all(len(own) == 1 for own in shapes.values()), shapes
    assert [name for name, own in shapes.items() if own & {"/", "\\"}] == ["catch up"]
    named = [own for name, own in shapes.items() if name.startswith("<br>")]
    assert len(set.union(*named)) == len(named) == 3
    swatches = pictures.page.evaluate(BARS)["swatches"]
    assert len(swatches) == len(set(swatches)) == 3


def saved_and_wasted(pictures: Pictures) -> None:
    hits = values_of("ahead")["timeline"]["hits"]
    panel = pictures.page.locator("#picture-timeline")
    paths = [
        panel.locator(f".ss-mini-{w}").get_attribute("d").split("Z")[:-1] for w in ("up", "down")
    ]
    corners = [[[float(n) for n in re.findall(r"[\d.]+", one)] for one in path] for path in paths]
    drawn = [zero - tip for _, zero, tip, _, _ in corners[0]]
    drawn += [tip - zero for _, zero, tip, _, _ in corners[1]]
    sums_shown = [sums["saved"] for sums in hits.values()] + [
        sums["wasted"] for sums in hits.values()
    ]
    scale = max(drawn) / max(sums_shown)
    assert drawn == pytest.approx([scale * time for time in sums_shown], abs=0.2)


def test_ssms_that_drafted_together_are_all_in_sight_and_share_the_time(pictures: Pictures) -> None:
    drafts_at_once_lie_apart(pictures)
    for bar, span in zip(*bars_of(pictures, "together"), strict=True):
        length = span["end"] - span["start"]
        assert bar["ms"] == pytest.approx(length) and bar["start"] == span["start"]
        if bar["stage"] not in SHARED_NAMES:
            assert bar["hover"] == "" and "own" not in span
            continue
        together = "caught up" if span["name"] == "catch_up" else "drafted"
        counted = f"{span['own']:.2f} ms of it are counted for this one"
        assert bar["hover"] == f"<br>{together} together with the other SSMs;<br>{counted}"
        assert span["own"] == pytest.approx(length / 3, abs=1e-3)
    the_table_tells_what_is_counted(pictures)
    panel = pictures.show("commit", "timeline").locator("#picture-timeline")
    assert "together" not in panel.inner_text()
    assert "counted" not in str(tables(pictures, "timeline")[-1])


def drafts_at_once_lie_apart(pictures: Pictures) -> None:
    page = pictures.show("together", "timeline")
    bars = page.evaluate(BARS)["bars"]
    drafts = [bar for bar in bars if bar["round"] == 4 and bar["stage"] == "draft"]
    assert sorted(bar["lane"] for bar in drafts) == [0, 1, 2]
    lefts = {round(bar["box"]["left"]) for bar in drafts}
    widths = {round(bar["box"]["width"]) for bar in drafts}
    assert len(lefts) == len(widths) == 1 and widths.pop() > 3
    rows = sorted((bar["box"]["top"], bar["box"]["bottom"]) for bar in drafts)
    assert all(upper[1] <= lower[0] for upper, lower in zip(rows, rows[1:], strict=False))
    box = drafts[0]["box"]
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = page.locator(".ss-timeline .ss-plot .hoverlayer .hovertext")
    words = r"drafted together with the other SSMs;\s*[\d.]+ ms of it are counted"
    hover.filter(has_text=re.compile(words)).wait_for()
    page.mouse.move(0, 0)


def the_table_tells_what_is_counted(pictures: Pictures) -> None:
    panel = pictures.page.locator("#picture-timeline")
    assert "each is counted for its part of it" in panel.inner_text()
    caption = panel.locator("caption", has_text="What every worker did")
    head, *rows = tables(pictures, "timeline")[-1]
    assert "SSMs that drafted together share that time" in caption.text_content()
    assert head[4:6] == ["duration (ms)", "counted for it (ms)"]
    drafted = [row for row in rows if row[2] in SHARED_NAMES]
    for row in drafted:
        assert float(row[5]) == pytest.approx(float(row[4]) / 3, abs=0.01)
    assert all(row[4] == row[5] for row in rows if row[2] not in SHARED_NAMES)
    counted = sum(float(row[5]) for row in drafted)
    share = values_of("together")["timeline"]["share"]["draft"]
    assert counted == pytest.approx(share, abs=0.005 * len(drafted))


TOUCHING = """() => {
  const svg = document.querySelector(".ss-ahead-times svg");
  const texts = [...svg.querySelectorAll(".ss-mini-end, .ss-mini-title")];
  const boxes = texts.map((node) => [node.textContent, node.getBBox()]);
  const apart = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x
    || a.y + a.height <= b.y + 1 || b.y + b.height <= a.y + 1;
  return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => !apart(a, b)).map(([other]) => `${one} on ${other}`));
}"""


def test_what_is_cut_is_marked_and_reported_and_its_numbers_do_not_touch(
    pictures: Pictures,
) -> None:
    rounds = values_of("peaks")["timeline"]["rounds"]
    cut = {int(n): one["ms"] for n, one in rounds.items() if one["ms"] > 100 - 1}
    pictures.show("peaks", "timeline")
    for width in (390, 1280):
        page = pictures.look(width=width)
        assert page.evaluate(TOUCHING) == [], width
        chart = page.locator("#picture-timeline .ss-ahead-times")
        marks = chart.locator(".ss-mini-peak title").all_text_contents()
        labels = [f"round {n + 1}, measured: {ms:.0f}" for n, ms in cut.items()]
        assert sorted(marks) == sorted(labels), width
        printed = chart.locator(".ss-mini-end").all_text_contents()
        assert 2 <= len(printed) < len(cut) and f"{max(cut.values()):.0f}" in printed, width


def test_the_table_forms_have_every_figure_of_the_charts(pictures: Pictures) -> None:
    pictures.show("vote", "lengths", "timeline", "proposals")
    table_of_lengths(pictures)
    table_of_the_pipeline(pictures)
    value = values_of("vote")["proposals"]
    tokens, weights = tables(pictures, "proposals")
    assert len(tokens) == 1 + sum(map(len, value["rows"].values()))
    history = [[int(n) + 1, *w.values()] for n, w in value["history"].items()]
    for row, expected in zip(numbers(weights[1:]), history, strict=True):
        assert row == pytest.approx(expected, abs=0.006)


def test_the_tables_of_text_and_tree_name_the_llms_tokens_as_the_legend_does(
    pictures: Pictures,
) -> None:
    page = pictures.show("verify", "strip", "tree")
    legend = page.locator("#picture-strip .ss-legend-item").all_inner_texts()
    [text] = tables(pictures, "strip")
    kinds = {row[text[0].index("kind")] for row in text[1:]}
    assert len(kinds) > 1 and all(any(kind in item for item in legend) for kind in kinds), kinds
    [tree] = tables(pictures, "tree")
    own = [row[tree[0].index("outcome")] for row in tree[1:] if "LLM" in " ".join(row)]
    assert own == ["LLM after a rejection"]


def table_of_lengths(pictures: Pictures) -> None:
    value = values_of("vote")["lengths"]
    rates, often, rounds, selected = tables(pictures, "lengths")
    assert len(rounds) == 1 + len(value["rounds"])
    assert often[1:] == [[j, str(n)] for j, n in value["histogram"].items()] != []
    expected = [[str(int(i) + 1), f"{100 * r:.1f} %"] for i, r in value["per_position"].items()]
    assert [row[:2] for row in rates[1:]] == expected != []
    estimates = [[int(n), e["t"], e["ms"], e["tps"], e["n"]] for n, e in value["estimates"].items()]
    for row, expected in zip(numbers([row[:5] for row in selected[1:]]), estimates, strict=True):
        assert row == pytest.approx(expected, abs=0.051)
    assert [row[0] for row in selected[1:] if row[5]] == [str(value["next"])]
    caption = pictures.page.locator("#picture-lengths caption").nth(3).text_content()
    assert value["reason"].replace("->", "→") in caption


def table_of_the_pipeline(pictures: Pictures) -> None:
    value = values_of("vote")["timeline"]
    ahead, lanes = tables(pictures, "timeline")
    assert len(lanes) == 1 + sum(map(len, value["bars"].values()))
    for row in ahead[1:]:
        number = str(int(row[0]) - 1)
        hit, times = value["hits"].get(number, {}), value["rounds"].get(number, {})
        hit = {**hit, "misses": hit["misses"] - hit["unused"]} if hit else hit
        expected = [hit.get(name) for name in ("hits", "misses", "unused", "saved", "wasted")]
        expected += [times.get("p"), times.get("ms"), times.get("all")]
        for cell, one in zip(row[1:], expected, strict=True):
            assert (cell == "") if one is None else near([cell], [one])
    assert len(ahead) == 1 + len({*value["hits"], *value["rounds"]})


RATIO_TICKS = """async ([address, high]) => {
  const { intervalBars } = await import(address);
  const section = document.querySelector("#picture-lengths .ss-panel");
  const chart = intervalBars({ section });
  chart.node.style.width = "500px";
  section.append(chart.node);
  const measured = { value: 0.8 * high, low: 0.7 * high, high };
  const bar = { key: "2", name: "sequence", color: "#000", ...measured };
  const format = (value) => value.toFixed(1);
  chart.draw({ bars: [bar], level: 1, format, label: "Speeds" });
  while (!chart.node.querySelector(".ss-mini-tick")) await new Promise(requestAnimationFrame);
  const ticks = [...chart.node.querySelectorAll(".ss-mini-tick")].map((one) => one.textContent);
  chart.node.remove();
  return ticks.map(Number).sort((a, b) => a - b);
}"""


def test_an_axis_of_speeds_has_numbers_all_along(pictures: Pictures) -> None:
    page = pictures.show("verify", "lengths")
    for high, wanted in (
        (1.1, [0, 1]),
        (2.57, [0, 1, 2, 3]),
        (3.2, [0, 1, 2, 3, 4]),
        (9.5, [1, 4, 6, 8, 10]),
    ):
        assert page.evaluate(RATIO_TICKS, [f"{BASE}hbars.js", high]) == wanted
