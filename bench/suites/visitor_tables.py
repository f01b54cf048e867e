"""The table of the `visitors` suite. Reads samples, runs nothing."""

from __future__ import annotations

from bench.results import Results
from bench.suites.batch_tables import totals
from bench.tables import table

__all__ = ["failures", "tables"]


def tables(results: Results) -> tuple[str, ...]:
    """All visitors' tokens per second together, by how many they are."""
    samples = results.samples
    counts = list(samples[0]["figures"])
    lines = [
        [preset, *totals([s["figures"] for s in samples if s["preset"] == preset], counts)]
        for preset in dict.fromkeys(sample["preset"] for sample in samples)
    ]
    changed = sum(len(f["differ"]) for s in samples for f in s["figures"].values())
    note = (
        "Clients of one application, each with its own requests one after another; all their new "
        "tokens over the time until the last was answered. Medians of "
        f"{len({s['repeat'] for s in samples})} repeats, ratios within repeats. Prompts whose text "
        f"was not that of a lone visitor: {changed}."
    )
    heads = ("preset", *(f"{count} visitor{'s' * (count != '1')}" for count in counts))
    return (table("Visitors of one page", heads, lines, note),)


def failures(results: Results) -> tuple[str, ...]:
    """A sentence for each measurement in which a text was not what a lone visitor is told."""
    return tuple(
        f"{s['preset']}, {count} visitors: other text than alone for {', '.join(f['differ'])}"
        for s in results.samples
        for count, f in s["figures"].items()
        if f["differ"]
    )
