"""The results of a lesson's runs: one row per run, computed from the run's view."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from core.events import RunStats
from core.plurals import number_of
from lab.figures import Estimate
from ui.run.listed import by_index
from ui.run.view import RoundView, View
from ui.words.glossary import GLOSSARY
from ui.words.spreads import SINGLE, range_words

__all__ = [
    "TIMES",
    "Evidence",
    "Measured",
    "compare_repeats",
    "every_repeat",
    "leader",
    "measured_row",
    "ranked_words",
    "runs_table_value",
    "time_words",
    "times",
]

WARM_UP_PASSES = 1
"""Passes at a run's start that medians leave out, since they are slower."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished run.

    Medians over the rounds after the first WARM_UP_PASSES, if there are any: `pass_tokens`: tokens
    in a pass of the LLM, including the root; `pass_ms`: milliseconds of a pass; `exchange_ms`:
    milliseconds that rank 0 spends in the exchanges of a pass. Means over all rounds: `round_ms`:
    milliseconds of a round; `num_drafted`: nodes before a schedule drops some; `num_verified`:
    nodes that the LLM verified. `max_accepted`, `max_written`: the most drafted tokens accepted,
    and the most tokens written, in one round. `weights`, `scores`: each drafter's weight and each
    SSM's routing score at the end. `num_ahead`: drafts made ahead, of which `num_hits` were used.
    `exchanges`: how often the ranks of a divided LLM exchange data in a pass; 0 for one process.

    `repeats`: the same run, measured several times in turns with the lesson's other runs. The table
    shows the medians of the repeats' times. Without repeats it shows the run's own times.
    """

    label: str
    run_id: str
    stats: RunStats
    pass_tokens: float
    pass_ms: float
    round_ms: float
    max_accepted: int
    max_written: int
    weights: Mapping[str, float]
    num_hits: int
    num_ahead: int
    scores: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    num_drafted: float = 0.0
    num_verified: float = 0.0
    exchanges: int = 0
    exchange_ms: float = 0.0
    repeats: tuple[Measured, ...] = ()

    @property
    def own(self) -> int:
        """Tokens that the LLM wrote itself."""
        return self.stats.num_new_tokens - self.stats.num_accepted_tokens


def measured_row(label: str, view: View) -> Measured:
    """The row of a run that has ended with at least one round."""
    stats = view.stats
    warm = view.rounds[WARM_UP_PASSES:] or view.rounds
    forward_ms = [sum(span.ms for span in line.spans if span.name == "forward") for line in warm]
    ahead = [one for line in view.rounds for one in line.ahead]
    last = view.last.completed if view.last else None
    decode_ms = 1000 * stats.num_new_tokens / max(stats.tokens_per_second, 1e-9)
    return Measured(
        label=label,
        run_id=view.run_id,
        stats=stats,
        pass_tokens=statistics.median(line.nodes + 1 for line in warm),
        pass_ms=statistics.median(forward_ms),
        round_ms=decode_ms / stats.num_rounds,
        max_accepted=max(line.accepted for line in view.rounds),
        max_written=max(line.emitted for line in view.rounds),
        weights=MappingProxyType(dict(last.weights if last else {})),
        num_hits=sum(one.hit for one in ahead),
        num_ahead=len(ahead),
        scores=MappingProxyType({one.drafter: one.score for one in last.routing} if last else {}),
        num_drafted=statistics.mean(_num_drafted(line) for line in view.rounds),
        num_verified=statistics.mean(line.nodes for line in view.rounds),
        exchanges=max((one.collectives for line in warm for one in line.traffic), default=0),
        exchange_ms=statistics.median(line.traffic[0].ms if line.traffic else 0.0 for line in warm),
    )


def _num_drafted(line: RoundView) -> int:
    return line.scheduled.num_drafted if line.scheduled is not None else line.nodes


@dataclass(frozen=True, slots=True)
class Evidence:
    """The rows of one lesson by label; `latest`: the label of the displayed run."""

    rows: Mapping[str, Measured]
    latest: str = ""

    @property
    def last(self) -> Measured | None:
        """The row of the displayed run; None without one."""
        return self.rows.get(self.latest)

    def of(self, *labels: str) -> tuple[Measured, ...] | None:
        """The rows with these labels; None if one of them is missing."""
        rows = tuple(self.rows[label] for label in labels if label in self.rows)
        return rows if len(rows) == len(labels) else None


def leader(values: Mapping[str, float], within: float) -> str | None:
    """The name of the largest value; None if another value is less than `within` below it."""
    top = max(values.values())
    first, *more = (name for name, value in values.items() if top - value < within)
    return None if more else first


def ranked_words(values: Mapping[str, float], places: int) -> str:
    """Names with their values, the largest first."""
    in_order = sorted(values.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {value:.{places}f}" for name, value in in_order)


TIMES = ("pass_ms", "token_ms", "round_ms", "tokens_per_second")
"""Columns of times and speeds: each cell is the median over the row's repeats."""


def times(row: Measured, column: str) -> tuple[float, ...]:
    """The values of a column of TIMES in the row's repeats; without repeats the run's own value."""
    return tuple(_cell(one, column) for one in row.repeats or (row,))


def compare_repeats(
    rows: tuple[Measured, ...], column: str, by: Callable[[float, float], float]
) -> Estimate:
    """Compares a column of TIMES in two rows by `by(second, first)`. The estimate's value compares
    the medians; its ends are the lowest and the highest value that a single repeat gives."""
    pairs = list(zip(*(times(row, column) for row in rows), strict=False))
    values = [by(second, first) for first, second in pairs]
    first, second = (cell(row, column) for row in rows)
    return Estimate(by(second, first), min(values), max(values), len(values), ends=True)


def every_repeat(estimate: Estimate) -> str:
    """For example `in each of 3 repeats`."""
    return f"in each of {number_of(estimate.groups, 'repeat')}"


def time_words(row: Measured, column: str) -> str:
    """For example `12.3 ms (11.9 to 13.0 in 3 repeats)`; `column`: a column of milliseconds."""
    values = times(row, column)
    median = statistics.median(values)
    spread = Estimate(median, min(values), max(values), len(values), ends=True)
    return f"{median:.1f} ms ({range_words(spread, 1)})"


def runs_table_value(
    evidence: Evidence,
    columns: Sequence[str],
    planned: Iterable[str] = (),
    *,
    timed: bool = False,
    measuring: bool = False,
) -> dict[str, Any]:
    """The table of a lesson's runs as plain values. `columns`: names in GLOSSARY. `planned`:
    labels of all runs; runs that were not made yet get empty rows (`coming`), so that the table
    keeps its height.

    `timed`: whether times are measured in repeats; if so, below each time there is room for its
    range (`ranges`). `measuring`: whether times are still being measured; if so, none is shown."""
    heads = by_index({"t": GLOSSARY[name].label, "means": GLOSSARY[name].means} for name in columns)
    return {
        "note": _times_note(evidence, columns, timed, measuring),
        "timed": {str(at): True for at, name in enumerate(columns) if timed and name in TIMES},
        "head": heads,
        "rows": {
            str(at): {
                "label": row.label,
                "latest": row.label == evidence.latest,
                "cells": by_index(
                    "…" if measuring and name in TIMES else GLOSSARY[name].text(cell(row, name))
                    for name in columns
                ),
                "ranges": {} if measuring else _ranges(row, columns),
            }
            for at, row in enumerate(evidence.rows.values())
        },
        "coming": {
            str(at): label
            for at, label in enumerate(label for label in planned if label not in evidence.rows)
        },
    }


def _times_note(evidence: Evidence, columns: Sequence[str], timed: bool, measuring: bool) -> str:
    """How the table's times were obtained, in words; empty if the table has no times."""
    if not set(TIMES).intersection(columns):
        return ""
    if not timed:
        return "times: medians of a run's passes"
    counts = {len(times(row, TIMES[0])) for row in evidence.rows.values()}
    if measuring or not counts:
        return "times: medians of repeats"
    if len(counts) > 1 or counts == {1}:
        return f"times: {SINGLE} where no range is below"
    return f"times: medians of {counts.pop()} repeats"


def _ranges(row: Measured, columns: Sequence[str]) -> dict[str, str]:
    return {
        str(at): " to ".join(GLOSSARY[name].text(end) for end in (min(values), max(values)))
        for at, name in enumerate(columns)
        if name in TIMES and len(values := times(row, name)) > 1
    }


def cell(row: Measured, column: str) -> float:
    """The number in a column of GLOSSARY; for a column of TIMES the median over the repeats."""
    return statistics.median(times(row, column)) if column in TIMES else _cell(row, column)


def _cell(row: Measured, column: str) -> float:
    """The run's own number, without its repeats."""
    stats = row.stats
    return {
        "pass_tokens": row.pass_tokens,
        "pass_nodes": row.pass_tokens - 1,
        "pass_ms": row.pass_ms,
        "token_ms": row.pass_ms / row.pass_tokens,
        "num_new_tokens": float(stats.num_new_tokens),
        "num_rounds": float(stats.num_rounds),
        "exchanges": float(row.exchanges),
        "exchange_ms": row.exchange_ms,
        "round_drafted": row.num_drafted,
        "round_verified": row.num_verified,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "round_ms": row.round_ms,
        "tokens_per_second": stats.tokens_per_second,
    }[column]
