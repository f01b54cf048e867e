"""The tables of the `passes` suite. Reads samples, runs nothing."""

from __future__ import annotations

from bench.results import Results
from bench.tables import table
from lab.figures import median

__all__ = ["tables"]


def tables(results: Results) -> tuple[str, ...]:
    """Milliseconds by tokens, a table a dtype."""
    dtypes = dict.fromkeys(sample["dtype"] for sample in results.samples)
    return tuple(_one(results, dtype) for dtype in dtypes)


def _one(results: Results, dtype: str) -> str:
    samples = list(results.where(dtype=dtype))
    counts = sorted({sample["tokens"] for sample in samples})
    lines = []
    for name in samples[0]["ms"]:
        found = {n: [s["ms"][name] for s in samples if s["tokens"] == n] for n in counts}
        middle = [median(found[n]) for n in counts]
        if name.startswith("reading"):  # the same work whatever the tokens
            lines.append([name, f"{median([ms for of in found.values() for ms in of]):.2f}"])
            lines[-1] += [""] * (len(counts) - 1)
            continue
        growth = [f" ({ms / middle[0]:.2f}x)" if i else "" for i, ms in enumerate(middle)]
        lines.append([name, *(f"{ms:.2f}{more}" for ms, more in zip(middle, growth, strict=True))])
    note = (
        f"Medians of {max(sample['repeat'] for sample in samples) + 1} repeats, each a median of "
        "several passes, contestants interleaved; in brackets against one token. `reading`: a sum "
        "over as many numbers as there are weights."
    )
    heads = ("ms of a pass over", *(f"{n} token{'s' * (n > 1)}" for n in counts))
    return table(f"Passes, {dtype}", heads, lines, note)
