"""The tables of the `batch` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.results import Results
from bench.tables import figure, ratio, table
from lab.figures import estimate, middle

__all__ = ["failures", "tables", "totals"]

Figures = dict[str, dict[str, Any]]
"""Of one repeat: tokens and seconds by size."""


def tables(results: Results) -> tuple[str, ...]:
    """Total tokens per second by how many requests at a time, a table a dtype and temperature."""
    kinds = dict.fromkeys((s["dtype"], s["temperature"]) for s in results.samples)
    return tuple(_one(results, dtype, temperature) for dtype, temperature in kinds)


def failures(results: Results) -> tuple[str, ...]:
    """A sentence for each measurement in which a request's ids were not those it has alone."""
    return tuple(
        f"{s['preset']}, T={s['temperature']:g}, {size} at a time: other ids than alone for "
        f"{', '.join(figures['differ'])}"
        for s in results.samples
        for size, figures in s["figures"].items()
        if figures["differ"]
    )


def _one(results: Results, dtype: str, temperature: float) -> str:
    samples = list(results.where(dtype=dtype, temperature=temperature))
    sizes = list(samples[0]["figures"])
    lines = [
        [preset, *totals([s["figures"] for s in samples if s["preset"] == preset], sizes)]
        for preset in dict.fromkeys(sample["preset"] for sample in samples)
    ]
    changed = sum(len(f["differ"]) for s in samples for f in s["figures"].values())
    note = (
        f"All requests' new tokens over the time until the last of them ended; medians of "
        f"{len({s['repeat'] for s in samples})} repeats, ratios within repeats. Requests whose ids "
        f"were not those they have alone: {changed}."
    )
    heads = ("preset", *(f"{size} at a time" for size in sizes))
    return table(f"Live requests, {dtype}, T = {temperature:g}", heads, lines, note)


def totals(own: Sequence[Figures], sizes: Sequence[str]) -> list[str]:
    """Tokens per second of each size, and against the first within each repeat."""
    first = sizes[0]
    cells = [figure(estimate([[_speed(one, first)] for one in own], middle), 0)]
    for size in sizes[1:]:
        speed = estimate([[_speed(one, size)] for one in own], middle)
        gain = estimate([[_speed(one, size) / _speed(one, first)] for one in own], middle)
        cells.append(f"{figure(speed, 0)}, {ratio(gain)}")
    return cells


def _speed(figures: Figures, size: str) -> float:
    return float(figures[size]["tokens"] / figures[size]["seconds"])
