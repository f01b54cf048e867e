"""A grid as CSV: every cell, and a summary line for each point. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from lab.grid import value_text
from lab.study import PLAIN, Study
from lab.tables import ConfigurationRow, Results
from lab.tuned import Tuned

__all__ = ["cells_csv", "summary_csv"]

CELL_HEADS = (
    "configuration",
    "prompt",
    "domain",
    "repeat",
    "run_id",
    "tokens_per_second",
    "speed_up",
    "tokens_per_pass",
    "draft_acceptance_rate",
    "new_tokens",
    "rounds",
    "ttft_ms",
    "draft_ms",
    "verify_ms",
    "finish_reason",
)
SUMMARY_HEADS = (
    "configuration",
    "runs",
    "tokens_per_second",
    "slowest",
    "fastest",
    "speed_up",
    "speed_up_low",
    "speed_up_high",
    "tokens_per_pass",
    "tokens_per_pass_low",
    "tokens_per_pass_high",
    "draft_acceptance_rate",
    "draft_share",
    "text",
    "found",
)


def cells_csv(study: Study, results: Results, found: Tuned) -> str:
    """A line for each measured run, in the order of measuring."""
    fields = [axis.field for axis in found.grid.axes]
    points = dict(zip((c.name for c in found.grid.configurations), found.grid.points, strict=True))
    domains = {prompt.id: prompt.domain for prompt in study.prompts}
    lines: list[Sequence[Any]] = []
    for cell in study.cells():
        if cell not in results:
            continue
        result = results[cell]
        stats = result.stats
        base = results.get(type(cell)(study.base, cell.item, cell.repeat))
        against = base.stats.tokens_per_second if base else 0.0
        lines.append(
            (
                *_values(points.get(cell.contestant), fields),
                cell.contestant,
                cell.item,
                domains[cell.item],
                cell.repeat + 1,
                result.run_id,
                stats.tokens_per_second,
                stats.tokens_per_second / against if against else None,
                stats.mean_acceptance_length,
                stats.draft_acceptance_rate,
                stats.num_new_tokens,
                stats.num_rounds,
                stats.ttft_ms,
                stats.draft_ms,
                stats.verify_ms,
                result.finish_reason,
            )
        )
    return _csv((*fields, *CELL_HEADS), lines)


def summary_csv(found: Tuned) -> str:
    """Plain decoding, then a line for each point; what was not measured is empty."""
    fields = [axis.field for axis in found.grid.axes]
    lines = [(*_values(None, fields), *_summary(found, None, found.plain))]
    for i, (point, row) in enumerate(zip(found.grid.points, found.rows, strict=True)):
        lines.append((*_values(point, fields), *_summary(found, i, row)))
    for one in found.grid.refused:
        blanks = [None] * (len(SUMMARY_HEADS) - 2)
        lines.append((*_values(one.point, fields), one.name, *blanks, f"refused: {one.reason}"))
    return _csv((*fields, *SUMMARY_HEADS), lines)


def _summary(found: Tuned, i: int | None, row: ConfigurationRow) -> tuple[Any, ...]:
    ratio = row.ratio
    length = None if i is None else found.lengths[i]
    mark = "best" if i == found.best else "within noise of the best" if i in found.as_good else ""
    return (
        row.name if i is not None else PLAIN,
        row.cells,
        row.speed,
        row.slowest,
        row.fastest,
        ratio.value if ratio else None,
        ratio.low if ratio and ratio.groups > 1 else None,
        ratio.high if ratio and ratio.groups > 1 else None,
        row.mean_acceptance_length,
        length.low if length and length.groups > 1 else None,
        length.high if length and length.groups > 1 else None,
        row.draft_acceptance_rate,
        row.draft_share,
        row.same.kind,
        mark if i is not None else "",
    )


def _values(point: dict[str, Any] | None, fields: Sequence[str]) -> list[str]:
    return ["" if point is None else value_text(point[field]) for field in fields]


def _csv(heads: Iterable[str], lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(list(heads))
    writer.writerows(["" if value is None else value for value in line] for line in lines)
    return out.getvalue()
