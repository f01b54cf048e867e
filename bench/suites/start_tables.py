"""The table of the `start` suite, and what of it misses its bound. Reads samples, runs nothing."""

from __future__ import annotations

from typing import Any

from bench.results import Results
from bench.tables import figure, table
from lab.figures import estimate, median, middle

__all__ = ["failures", "tables"]

OPEN_S = 10.0
RESIDENT_MB = 1200.0
# A run is kept in the log, not in memory: what 400 runs may leave behind is an allocator's.
GROWTH_MB = 40.0


def tables(results: Results) -> tuple[str, ...]:
    """What opening takes, and memory by how many runs there were."""
    openings = _openings(results)
    opened = estimate([[sample["opened_s"]] for sample in openings], middle)
    memory = estimate([[mb] for s in openings if (mb := s["opened_mb"]) is not None], middle)
    lines = [
        ["seconds until the page is open", figure(opened, 1), f"below {OPEN_S:g}"],
        ["resident then, MB", figure(memory, 0), f"below {RESIDENT_MB:g}"],
    ]
    for runs, mb in _by_runs(results):
        lines.append([f"resident after {runs} runs, MB", f"{mb:.0f}", f"below {RESIDENT_MB:g}"])
    if (grown := _growth(results)) is not None:
        lines.append(["growth from a fifth of the runs on, MB", f"{grown:.0f}", _bound()])
    note = f"{len(openings)} openings, each a process of its own; medians."
    return (table("Start and memory", ("", "measured", "asked"), lines, note),)


def failures(results: Results) -> tuple[str, ...]:
    """A sentence for each bound that is missed."""
    found = []
    openings = _openings(results)
    seconds = [sample["opened_s"] for sample in openings]
    if seconds and (took := median(seconds)) >= OPEN_S:
        found.append(f"the page is open after {took:.1f} s: below {OPEN_S:g} is asked")
    opened = [mb for sample in openings if (mb := sample["opened_mb"]) is not None]
    largest = max([*opened, *(mb for _, mb in _by_runs(results))], default=0.0)
    if largest >= RESIDENT_MB:
        found.append(f"{largest:.0f} MB are resident: below {RESIDENT_MB:g} is asked")
    grown = _growth(results)
    if grown is not None and grown > GROWTH_MB:
        found.append(f"memory grew by {grown:.0f} MB over the runs: {_bound()} is asked")
    return tuple(found)


def _openings(results: Results) -> list[Any]:
    return [sample for sample in results.samples if "opened_s" in sample]


def _bound() -> str:
    return f"at most {GROWTH_MB:g}"


def _by_runs(results: Results) -> list[tuple[int, float]]:
    """Of the latest application: one that was interrupted stands beside it in the samples."""
    told = [sample for sample in results.samples if sample.get("runs_mb") is not None]
    return [(s["runs"], s["runs_mb"]) for s in told if s["pid"] == told[-1]["pid"]]


def _growth(results: Results) -> float | None:
    """From a fifth of the runs on, when everything was used once, to the last."""
    told = _by_runs(results)
    if len(told) < 2:
        return None
    last = told[-1][0]
    first = next(mb for runs, mb in told if runs >= last / 5)
    return told[-1][1] - first
