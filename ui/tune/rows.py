"""A grid as plain rows, for files and endpoints. Values that were not measured are None."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from lab.figures import Estimate
from lab.grid import TEMPERATURE, Refused, value_text
from lab.order import Cell
from lab.study import Study
from lab.tables import ConfigurationRow, Results
from lab.tuned import Tuned
from storage.export_csv import csv_cell
from ui.words.spreads import spread_words

__all__ = ["run_rows", "summary_rows", "to_csv"]

Row = dict[str, Any]


def summary_rows(tuned: Tuned, refused: Sequence[Refused] = ()) -> list[Row]:
    """Rows for plain decoding at each temperature, then for each point, then for the refused
    points. `refused`: all refused points, if known, else those of `tuned.grid` are used."""
    rows = []
    for temperature, row in tuned.plains.items():
        figures = {**_fields(tuned, {TEMPERATURE: temperature}), **_figures(row, None, tuned.over)}
        rows.append({"configuration": row.name, **figures, "found": ""})
    for i, (point, row) in enumerate(zip(tuned.grid.points, tuned.rows, strict=True)):
        mark = "best" if i in tuned.bests else "within noise" if i in tuned.as_good else ""
        figures = _figures(row, tuned.lengths[i], tuned.over)
        rows.append({"configuration": row.name, **_fields(tuned, point), **figures, "found": mark})
    for one in refused or tuned.grid.refused:
        # All rows must have the same columns: the figures of a refused point are None.
        no_figures = dict.fromkeys(_figures(row, None, tuned.over))
        fields = {**_fields(tuned, one.point), **no_figures}
        rows.append({"configuration": one.name, **fields, "found": f"refused: {one.reason}"})
    return rows


def run_rows(study: Study, results: Results, tuned: Tuned) -> list[Row]:
    """A row for each measured run, in the order of measuring."""
    names = [one.name for one in tuned.grid.configurations]
    points = dict(zip(names, tuned.grid.points, strict=True))
    domains = {prompt.id: prompt.domain for prompt in study.prompts}
    return [
        {
            "configuration": cell.contestant,
            **_fields(tuned, points.get(cell.contestant, {})),
            "prompt": cell.item,
            "domain": domains[cell.item],
            "repeat": cell.repeat + 1,
            **_run_figures(study, results, cell),
        }
        for cell in study.cells()
        if cell in results
    ]


def to_csv(rows: Sequence[Row]) -> str:
    """The rows, which all have the same fields, as CSV with a header."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _fields(tuned: Tuned, point: Mapping[str, Any]) -> Row:
    values = {axis.field: point.get(axis.field) for axis in tuned.grid.axes}
    return {field: None if value is None else value_text(value) for field, value in values.items()}


def _figures(row: ConfigurationRow, length: Estimate | None, over: str) -> Row:
    return {
        "runs": row.cells,
        "tokens_per_second": row.speed,
        "slowest": row.slowest,
        "fastest": row.fastest,
        "speed_up": row.ratio.value if row.ratio else None,
        **_interval("speed_up", row.ratio, over),
        "tokens_per_pass": row.mean_acceptance_length,
        **_interval("tokens_per_pass", length, over),
        "draft_acceptance_rate": row.draft_acceptance_rate,
        "draft_share": row.draft_share,
        "ttft_ms": row.ttft_ms,
        "same_text": row.same.kind,
    }


def _interval(name: str, estimate: Estimate | None, over: str) -> Row:
    spread = estimate if estimate and estimate.groups > 1 else None
    return {
        f"{name}_low": spread.low if spread else None,
        f"{name}_high": spread.high if spread else None,
        f"{name}_spread": spread_words(spread, over) or None,
    }


def _run_figures(study: Study, results: Results, cell: Cell) -> Row:
    result = results[cell]
    stats = result.stats
    base = results.get(Cell(study.base_of(cell.contestant), cell.item, cell.repeat))
    plain_speed = base.stats.tokens_per_second if base else 0.0
    return {
        "run_id": result.run_id,
        "tokens_per_second": stats.tokens_per_second,
        "speed_up": stats.tokens_per_second / plain_speed if plain_speed else None,
        "tokens_per_pass": stats.mean_acceptance_length,
        # None if nothing was drafted: 0 would mean that every drafted token was rejected.
        "draft_acceptance_rate": stats.draft_acceptance_rate if stats.num_draft_tokens else None,
        "new_tokens": stats.num_new_tokens,
        "rounds": stats.num_rounds,
        "ttft_ms": stats.ttft_ms,
        "draft_ms": stats.draft_ms,
        "verify_ms": stats.verify_ms,
        "finish_reason": result.finish_reason,
    }
