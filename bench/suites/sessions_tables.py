"""The tables of the `sessions` suite: medians beside what each call may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.results import Results
from bench.suites.sessions_cases import Case
from bench.tables import table
from lab.figures import median

__all__ = ["failures", "tables"]

NOTE = "Wall time of one call, in milliseconds. SYNTHETIC runs: no model made them."


def tables(results: Results, cases: Sequence[Case], made: str) -> tuple[str, ...]:
    """What the log holds, and every case's median, best and worst."""
    logs = [
        (one["runs"], one["nodes"], one["rows"], f"{one['seconds']:.1f}", f"{one['megabytes']:.0f}")
        for one in results.where(case=made)
    ]
    heads = ("runs", "nodes", "rows of rounds", "seconds to make", "MB")
    timed = ("call", "found", "median ms", "least", "most", "repeats", "may take")
    rows = [_row(results, case) for case in cases if _times(results, case)]
    return (table("The log", heads, logs), table("Calls", timed, rows, NOTE))


def failures(results: Results, cases: Sequence[Case]) -> tuple[str, ...]:
    """One sentence for each case whose median is above what it may take."""
    found = []
    for case in cases:
        times = _times(results, case)
        if times and case.limit_ms is not None and median(times) > case.limit_ms:
            found.append(f"{case.name}: {median(times):.1f} ms, {case.limit_ms:.0f} ms are allowed")
    return tuple(found)


def _times(results: Results, case: Case) -> list[float]:
    return [sample["ms"] for sample in results.where(case=case.name)]


def _row(results: Results, case: Case) -> tuple[Any, ...]:
    times = _times(results, case)
    found = [sample["found"] for sample in results.where(case=case.name)]
    limit = "" if case.limit_ms is None else f"{case.limit_ms:.0f}"
    figures = (f"{f(times):.1f}" for f in (median, min, max))
    return (case.name, found[0], *figures, len(times), limit)
