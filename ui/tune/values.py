"""Values of Tune's pictures, of its table and of a point's runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.plurals import number_of
from lab.figures import Estimate
from lab.grid import TEMPERATURE, Axis, Grid, Refused, value_text
from lab.order import Cell
from lab.study import Study
from lab.tables import ConfigurationRow, Results
from lab.tuned import Tuned
from ui.compare.study_text import ANSWERS
from ui.run.listed import by_index
from ui.tune.words import no_gain_words, sample_words
from ui.words.glossary import GLOSSARY, Quantity
from ui.words.settings import point_words
from ui.words.spreads import SINGLE, is_noise, spread_words

__all__ = ["AXES", "axes_to_draw", "grid_value", "point_value", "points_value"]

AXES = 3
"""The most axes of a picture: rows, columns, and layers to choose from."""

SPEED_UP, SPEED = GLOSSARY["speedup"], GLOSSARY["tokens_per_second"]
LENGTH, SHARE = GLOSSARY["mean_acceptance_length"], GLOSSARY["draft_acceptance_rate"]
ACCEPTED = GLOSSARY["accepted_per_pass"]


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure and its interval, None if unknown. `spread`: the kind of interval, in words."""

    value: float | None
    low: float | None
    high: float | None
    spread: str = ""


def axes_to_draw(grid: Grid) -> tuple[Axis, ...]:
    """The axes to draw: rows, columns, layers. Axes with a single value are left out, except the
    first axis if all have a single value."""
    several = tuple(axis for axis in grid.axes if len(axis.values) > 1)
    return several[:AXES] or grid.axes[:1]


def _axis_words(axis: Axis) -> str:
    return axis.field.replace("_", " ")


def grid_value(study: Study, tuned: Tuned, measure: str) -> dict[str, Any]:
    """The picture of one `measure`, `speed` or `length` (tokens per pass).

    Two axes make a map; one axis makes a line, which has no `columns`. `layers`: the values of a
    third axis. `cells`: measured, waiting or refused points, by `_place`. All layers have the same
    scale, from `low` to `high`, so that layers can be compared.
    """
    axes = axes_to_draw(tuned.grid)
    figures = [_figure(tuned, i, measure) for i in range(len(tuned.rows))]
    values = [figure.value for figure in figures if figure.value is not None]
    has_ratios = measure == "speed" and any(row.ratio for row in tuned.rows)
    plain_speed = 1.0 if has_ratios else None
    texts = [by_index(map(value_text, axis.values)) for axis in axes]
    fields = [_axis_words(axis) for axis in axes]
    return {
        "study": study.study_id,
        "unit": "x" if has_ratios else "tokens/s" if measure == "speed" else "tokens",
        "row_field": fields[0],
        "column_field": fields[1] if len(axes) > 1 else "",
        "layer_field": fields[2] if len(axes) > 2 else "",
        "rows": texts[0],
        "columns": texts[1] if len(axes) > 1 else {},
        "layers": texts[2] if len(axes) > 2 else {},
        "ordered": all(isinstance(value, (int, float)) for value in axes[0].values),
        "cells": _cells(tuned, axes, figures, measure),
        **_scale(values, "x" if has_ratios else measure),
        "base": 1.0 if measure == "length" else plain_speed,
        "best": tuned.bests[0] if tuned.bests else -1,
    }


def _scale(values: list[float], measure: str) -> dict[str, float | None]:
    # The scale may be wider than the values' range, so that a small difference looks small. Speeds
    # divided by plain decoding's ("x") are shown around 1. Tokens per pass ("length") begin at 1,
    # plain decoding's value, and tokens per second begin at 0.
    if not values:
        return {"low": None, "high": None}
    distance = max(0.5, *(abs(value - 1) for value in values))
    around_1 = (max(0.0, 1 - distance), 1 + distance)
    low, high = {"x": around_1, "length": (1.0, 2.0)}.get(measure, (0.0, 0.0))
    return {"low": min(low, *values), "high": max(high, *values)}


def _cells(
    tuned: Tuned, axes: tuple[Axis, ...], figures: list[_Figure], measure: str
) -> dict[str, Any]:
    cells: dict[int, dict[str, Any]] = {}
    pairs = zip(tuned.grid.configurations, tuned.grid.points, strict=True)
    for i, (configuration, point) in enumerate(pairs):
        cells[_place(axes, point)] = {
            "point": i,
            "name": point_words(configuration.name),
            "value": figures[i].value,
            "low": figures[i].low,
            "high": figures[i].high,
            "spread": figures[i].spread,
            "runs": tuned.rows[i].cells,
            # Marks compare speeds: the picture of tokens per pass has none.
            "mark": _mark(tuned, i) if measure == "speed" else "",
            "found": _mark_words(tuned, i) if measure == "speed" else "",
        }
    for one in tuned.grid.refused:
        cells[_place(axes, one.point)] = {
            "point": -1,
            "name": point_words(one.name),
            "refused": one.reason,
        }
    return {str(place): cell for place, cell in sorted(cells.items())}


def _place(axes: tuple[Axis, ...], point: dict[str, Any]) -> int:
    """The index of a point's cell, layer by layer, row by row."""
    indices = [axis.values.index(point[axis.field]) for axis in axes]
    sizes = [len(axis.values) for axis in axes]
    row, column, layer = (*indices, 0, 0)[:AXES]
    rows, columns = (*sizes, 1)[:2]
    return (layer * rows + row) * columns + column


def _mark(tuned: Tuned, i: int) -> str:
    """`best`, `near` (within noise of the best) or empty."""
    # Each temperature has its own best point. The only point at a temperature has no rival.
    if len(tuned.temperatures) > 1 and len(tuned.beside(i)) == 1:
        return ""
    return "best" if i in tuned.bests else "near" if i in tuned.as_good else ""


def _mark_words(tuned: Tuned, i: int) -> str:
    """The mark as a glyph and its meaning."""
    mark = _mark(tuned, i)
    if not mark:
        return ""
    no_gain = no_gain_words(tuned, next(best for best in tuned.bests if best in tuned.beside(i)))
    # The star means that the measurements show a gain over plain decoding.
    best_glyph = "▴" if no_gain else "★"
    at = " at its temperature" if len(tuned.temperatures) > 1 else ""
    words = f"highest measured{at}, {no_gain}" if no_gain else f"highest speed-up measured{at}"
    return f"{best_glyph} {words}" if mark == "best" else f"≈ within noise of {best_glyph}"


def _figure(tuned: Tuned, i: int, measure: str) -> _Figure:
    """A speed is the ratio to plain decoding, or tokens per second if no point has a ratio."""
    row = tuned.rows[i]
    if measure == "length":
        return _with_interval(row.mean_acceptance_length, tuned.lengths[i], tuned.over)
    if any(one.ratio for one in tuned.rows):
        return _with_interval(row.ratio.value if row.ratio else None, row.ratio, tuned.over)
    return _Figure(row.speed, row.slowest, row.fastest, "slowest to fastest run")


def _with_interval(value: float | None, estimate: Estimate | None, over: str) -> _Figure:
    # The interval of a single group has no width.
    if estimate is None or estimate.groups < 2:
        return _Figure(value, None, None)
    return _Figure(value, estimate.low, estimate.high, spread_words(estimate, over))


# -- the table --


def points_value(study: Study, tuned: Tuned) -> dict[str, Any]:
    """The table's value. A row's `point` is the point's index, or a negative number for plain
    decoding and for refused points. A cell has its text `t`; if rows can be sorted by the cell, it
    also has a number `v`, by which they are sorted."""
    best = tuned.bests[0] if tuned.bests else None
    heads = [_axis_words(axis) for axis in tuned.grid.axes]
    heads += [SPEED_UP.label, "spread", SPEED.label, LENGTH.label]
    heads += [ACCEPTED.label, "same text?", "runs"]
    negative_numbers = itertools.count(-1, -1)
    rows = []
    for temperature, row in tuned.plains.items():
        point: dict[str, Any] = {tuned.grid.axes[0].field: "plain"}
        if temperature is not None:
            point[TEMPERATURE] = temperature
        rows.append(_row(next(negative_numbers), _axis_values(tuned.grid, point), row))
    for i, (point, row) in enumerate(zip(tuned.grid.points, tuned.rows, strict=True)):
        marks = {"mark": _mark(tuned, i), "found": _mark_words(tuned, i)}
        rows.append({**_row(i, _axis_values(tuned.grid, point), row), **marks})
    rows += [_refused_row(next(negative_numbers), tuned.grid, one) for one in tuned.grid.refused]
    spread = "" if best is None else spread_words(tuned.rows[best].ratio, tuned.over)
    return {
        "study": study.study_id,
        "words": _measured_words(study, tuned, spread),
        "heads": by_index(heads),
        "spread": spread,
        "samples": sample_words(study),
        "rows": by_index(rows),
        "best": -1 if best is None else best,
    }


def _axis_values(grid: Grid, point: Mapping[str, Any]) -> list[Any]:
    values = (point.get(axis.field) for axis in grid.axes)
    return ["" if value is None else value for value in values]


def _measured_words(study: Study, tuned: Tuned, spread: str) -> str:
    sampling = study.sampling
    count_words = (
        (len(tuned.rows), "point"),
        (len(study.prompts), "prompt"),
        (study.repeats, "repeat"),
    )
    counts = ", ".join(number_of(n, noun) for n, noun in count_words)
    has_temperatures = any(axis.field == TEMPERATURE for axis in tuned.grid.axes)
    settings = "" if has_temperatures else f"temperature {sampling.temperature:g}, "
    settings += f"{number_of(sampling.max_new_tokens, 'token')} at most"
    spread_text = f"Spread of the speed-up: {spread}." if spread else ""
    return " ".join(filter(None, (f"{counts}; {settings}.", sample_words(study), spread_text)))


def _row(point: int, values: list[Any], row: ConfigurationRow) -> dict[str, Any]:
    cells = [
        *(_cell(value_text(value), value) for value in values),
        _number(SPEED_UP, row.ratio.value if row.ratio else None),
        _spread_cell(row.ratio),
        _number(SPEED, row.speed),
        _number(LENGTH, row.mean_acceptance_length),
        _cell(_accepted_text(row), row.draft_acceptance_rate),
        _cell(ANSWERS[row.same.kind]),
        _cell(str(row.cells), row.cells),
    ]
    by_number = {str(i): cell for i, cell in enumerate(cells)}
    return {"point": point, "mark": "", "found": "", "cells": by_number}


def _accepted_text(row: ConfigurationRow) -> str:
    """`2.5 of 2.9`: accepted tokens, and depth of the drafts, both per pass."""
    # The mean acceptance length includes the LLM's own token.
    accepted = (row.mean_acceptance_length or 1.0) - 1
    return ACCEPTED.part_text(accepted, row.drafted_per_pass)


def _spread_cell(ratio: Estimate | None) -> dict[str, Any]:
    if ratio is None:
        return _cell("–")
    if ratio.groups < 2:
        return _cell(SINGLE)
    return _cell(f"{ratio.low:.2f} to {ratio.high:.2f}", ratio.half_width)


def _refused_row(number: int, grid: Grid, one: Refused) -> dict[str, Any]:
    values = _axis_values(grid, one.point)
    cells = [*(_cell(value_text(value), value) for value in values), _cell(one.reason)]
    return {
        "point": number,
        "mark": "refused",
        "found": "✕ cannot run",
        "cells": by_index(cells),
    }


def _number(quantity: Quantity, value: float | None) -> dict[str, Any]:
    return _cell(quantity.text(value), value)


def _cell(text: str, value: Any = None) -> dict[str, Any]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"t": text, "v": value} if is_number else {"t": text}


# -- one point --


def point_value(study: Study, results: Results, tuned: Tuned, point: int) -> dict[str, Any]:
    """A point's figures and runs; {} if there is no such point."""
    if not 0 <= point < len(tuned.rows):
        return {}
    row = tuned.rows[point]
    runs = {
        str(i): _run(study, results, cell)
        for i, cell in enumerate(c for c in study.cells() if c.contestant == row.name)
        if cell in results
    }
    figures = (
        (SPEED_UP, row.ratio.value if row.ratio else None),
        (SPEED, row.speed),
        (LENGTH, row.mean_acceptance_length),
        (SHARE, row.draft_acceptance_rate),
        (GLOSSARY["num_rounds"], row.rounds),
        (GLOSSARY["ttft_ms"], row.ttft_ms),
        (GLOSSARY["draft_share"], row.draft_share),
    )
    texts = [(quantity.label, quantity.text(value)) for quantity, value in figures]
    texts.insert(3, (ACCEPTED.label, _accepted_text(row)))
    return {
        "study": study.study_id,
        "point": point,
        "name": point_words(row.name),
        "mark": _mark(tuned, point),
        "found": _mark_words(tuned, point),
        "figures": by_index({"name": name, "text": text} for name, text in texts),
        "heads": by_index(["run", "prompt", "repeat", SPEED.label, SPEED_UP.label, LENGTH.label]),
        "runs": runs,
    }


def _run(study: Study, results: Results, cell: Cell) -> dict[str, str]:
    result = results[cell]
    base = results.get(Cell(study.base_of(cell.contestant), cell.item, cell.repeat))
    speed, length = result.stats.tokens_per_second, result.stats.mean_acceptance_length
    plain_speed = base.stats.tokens_per_second if base else 0.0
    return {
        "run": result.run_id,
        "prompt": cell.item,
        "repeat": str(cell.repeat + 1),
        "tps": SPEED.text(speed),
        "ratio": _ratio_text(speed / plain_speed, length) if plain_speed else "–",
        "mean": LENGTH.text(length),
    }


def _ratio_text(ratio: float, tokens_per_pass: float) -> str:
    return SPEED_UP.text(ratio) + " (noise)" * is_noise(ratio, tokens_per_pass)
