"""Helpers for browser tests that start a run, read its events and check its charts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from core.config import SpeculationConfig
from core.events import (
    Combined,
    Drafted,
    Event,
    RoundCompleted,
    RunCompleted,
    RunStarted,
    RunStats,
    Span,
    Verified,
)
from storage import RunQuery
from tests.ui.browser.looks import frames
from tests.ui.reading import read, steady
from tests.ui.sites import (
    all_panes,
    choose,
    close_drawer,
    number_box,
    open_drawer,
    shows,
    wait_drawn,
    wait_run,
    wait_usable,
)
from ui.form.form import EXAMPLES
from ui.server.context import Context

TOKENS = 40
STILL_FRAMES = 15  # about a quarter of a second


@dataclass(frozen=True)
class Recorded:
    started: RunStarted
    drafted: list[Drafted]
    combined: list[Combined]
    verified: list[Verified]
    completed: list[RoundCompleted]
    stats: RunStats


def latest_run(context: Context) -> Recorded:
    context.store.flush()
    return recording_of(context, context.store.runs(RunQuery()).rows[0].run_id)


def recording_of(context: Context, run_id: str) -> Recorded:
    context.store.flush()
    events = context.store.events(run_id)

    def events_of(kind: type[Event]) -> list[Any]:
        return [event for event in events if isinstance(event, kind)]

    kinds = (Drafted, Combined, Verified, RoundCompleted)
    (started,), (ended,) = events_of(RunStarted), events_of(RunCompleted)
    return Recorded(started, *map(events_of, kinds), ended.stats)


def prepare(
    page: Any,
    preset: str,
    tokens: int = TOKENS,
    example: str = "story",
    panes: bool = True,
    **fields: str,
) -> None:
    """`panes`: show all panes of the dock, since a closed pane is not drawn."""
    text = next(text for name, text in EXAMPLES if name.lower() == example)
    page.fill("#prompt textarea", text)
    open_drawer(all_panes(page) if panes else page)
    wait_usable(page, number_box(page, "sampling-max_new_tokens")).fill(str(tokens))
    page.get_by_text("Every setting of the engine").click()
    choose(close_drawer(page), "preset", preset)
    config = SpeculationConfig.preset(preset)
    for name in ("combine", "length", "pipeline"):  # the server fills in the fields
        shows(page, name, getattr(config, name))
    for name, value in fields.items():
        choose(page, f"field-{name}", value)
    if fields:
        close_drawer(page)


def wait_finished(page: Any) -> None:
    wait_run(page)
    wait_drawn(page)
    wait_all_drawn(page)


def wait_all_drawn(page: Any) -> None:
    """Pictures out of sight are drawn up to a second later than others."""
    frames(page)
    page.evaluate("() => { window.specscopeStillFrames = 0; }")
    page.wait_for_function(
        """(needed) => {
        const pending = document.querySelector('[data-pending]');
        window.specscopeStillFrames = pending ? 0 : window.specscopeStillFrames + 1;
        return window.specscopeStillFrames > needed;
        }""",
        arg=STILL_FRAMES,
    )


def click_round(page: Any, number: int, where: str = "live") -> None:
    """The text must not move: a press on one line and a release on another make no click."""
    css = f"#{where}-strip .ss-round[data-r='{number}']"
    page.locator(css).first.scroll_into_view_if_needed()
    steady(page, f"() => document.querySelector(`{css}`).getBoundingClientRect().top")
    page.locator(css).first.click()


def select_round(page: Any, number: int, where: str = "live") -> None:
    click_round(page, number, where)
    page.locator(f"#{where}-proposals").get_by_text(f"Round {number + 1}:").wait_for()
    page.locator(f"#{where}-tree").get_by_text(f"Round {number + 1}", exact=True).wait_for()
    wait_all_drawn(page)


def number_in(text: str) -> float:
    """A label like `<0.01` counts as 0."""
    match = re.search(r"(<?)([\d.]+)", text)
    assert match, text
    return 0.0 if match[1] else float(match[2])


def close(text: str, value: float) -> bool:
    return number_in(text) == pytest.approx(value, abs=0.0105)


def with_draft(run: Recorded, dropping: bool = False) -> list[int]:
    """Rounds whose token tree is not empty. `dropping`: only rounds with dropped tokens."""
    results = [r for r, tree in enumerate(run.combined) if tree.token_ids]
    return [r for r in results if run.combined[r].dropped] if dropping else results


ROUNDING_PX = 0.11  # coordinates are written with one decimal
SMALL_CHART = """(svg) => ({
  height: svg.clientHeight,
  ticks: [...svg.querySelectorAll(".ss-mini-tick[text-anchor=end]")]
    .map((tick) => [tick.textContent, Number(tick.getAttribute("y"))]),
  lines: [...svg.querySelectorAll(".ss-mini-line")].map((line) => line.getAttribute("d")),
  columns: [...svg.querySelectorAll(".ss-mini-col")].map((column) =>
    ["y", "height"].map((name) => Number(column.getAttribute(name)))),
})"""


@dataclass(frozen=True)
class Axis:
    """The value 0 is at y = `zero`, and the value `most` is at y = `top`, in pixels."""

    zero: float
    top: float
    most: float

    def value(self, y: float) -> float:
        return self.most * (self.zero - y) / (self.zero - self.top)

    @property
    def step(self) -> float:
        return abs(self.most * ROUNDING_PX / (self.zero - self.top)) + 1e-9


def mini(page: Any, chart: str) -> tuple[dict[str, Any], Axis]:
    drawn = page.locator(f"{chart} .ss-mini-svg").evaluate(SMALL_CHART)
    (zero, bottom), (most, top) = drawn["ticks"][0], drawn["ticks"][-1]
    assert zero == "0" and bottom > 0.75 * drawn["height"] and top < 0.4 * drawn["height"]
    return drawn, Axis(bottom, top, float(most))


def check_curve(page: Any, chart: str, series: list[list[tuple[int, float]]]) -> None:
    """Each of `series` lists the points (round, value) of a line."""
    drawn, axis = mini(page, chart)
    assert len(drawn["lines"]) == len(series)
    for path, expected in zip(drawn["lines"], series, strict=True):
        points = [tuple(map(float, part.split())) for part in re.split("[ML]", path)[1:]]
        assert len(points) == len(expected)
        ends = [points[0][0], points[-1][0]]
        per_round = (ends[1] - ends[0]) / max(1, expected[-1][0] - expected[0][0])
        for (x, y), (number, value) in zip(points, expected, strict=True):
            assert x == pytest.approx(ends[0] + per_round * (number - expected[0][0]), abs=0.2)
            assert axis.value(y) == pytest.approx(min(value, axis.most), abs=axis.step)


def check_columns(page: Any, chart: str, values: list[float]) -> None:
    """A column is at least one pixel high."""
    drawn, axis = mini(page, chart)
    for (y, height), value in zip(drawn["columns"], values, strict=True):
        assert axis.value(y) == pytest.approx(value, abs=axis.step)
        assert height == pytest.approx(max(1.0, axis.zero - y), abs=ROUNDING_PX)


LENGTH_TRACES = """() => Object.fromEntries(document.querySelector("#live-lengths .js-plotly-plot")
  .data.map(({ name, x, y }) => [name, { x, y }]))"""


def check_lengths(page: Any, run: Recorded) -> None:
    drawn = read(page, LENGTH_TRACES)
    numbers = [completed.round + 1 for completed in run.completed]
    for name, expected in (
        ("accepted", [completed.num_accepted for completed in run.completed]),
        ("speculation length", [completed.speculation_length for completed in run.completed]),
    ):
        assert (drawn[name]["x"], drawn[name]["y"]) == (numbers, expected), name
    rates = run.stats.acceptance_rate_per_position
    assert drawn["rate"]["y"] == pytest.approx(list(rates), abs=1e-4)
    assert drawn["histogram"]["y"] == list(run.stats.acceptance_histogram)


# The bars of one round: start and duration in ms, lane, name of the stage.
BARS = """(number) => {
  const { data, layout } = document.querySelector("#live-timeline .ss-plot");
  const [{ base, x, y, customdata }] = data ?? [{ customdata: [] }];
  const { tickvals, ticktext } = layout?.yaxis ?? {};
  const bars = customdata.flatMap(([round, name], i) => round === number
    ? [[base[i], x[i], ticktext[tickvals.indexOf(y[i])].split("  ").at(-1), name]] : []);
  return bars.length > 0 && bars;
}"""


def check_lanes(page: Any, run: Recorded, number: int) -> None:
    bars = sorted(bar for bar in read(page, BARS, number) if bar[3] != "prefill")
    spans = [s for s in run.completed[number].spans if s.name != "prefill"]
    expected = sorted((s.start_ms, s.end_ms - s.start_ms, lane(s)) for s in spans)
    assert [bar[2] for bar in bars] == [span[2] for span in expected]
    for bar, span in zip(bars, expected, strict=True):
        assert tuple(bar[:2]) == pytest.approx(span[:2], abs=2e-3)


def lane(span: Span) -> str:
    return {"llm": "LLM", "verify": "verdict"}.get(span.lane, span.lane)


def round_times(run: Recorded) -> list[tuple[int, float, float]]:
    """(round, `stages_ms`, predicted milliseconds) of each round with a prediction."""
    return [(c.round, stages_ms(c), c.predicted_ms) for c in run.completed if c.predicted_ms > 0]


def stages_ms(completed: RoundCompleted) -> float:
    """A round's time as length policies observe it."""
    own = [s for s in completed.spans if s.name not in ("prefill", "ahead")]
    hidden = sum(entry.saved_ms for entry in completed.ahead if entry.is_certain)
    return sum(s.ms for s in own) - hidden + completed.between_ms
