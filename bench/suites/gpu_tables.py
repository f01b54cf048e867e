"""The tables of the `gpu-` suites. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.results import Results
from bench.tables import figure, ratio, table
from lab.figures import estimate, median, middle
from lab.order import within_blocks

__all__ = ["BEST", "FIXED", "GENERATE", "PLAIN", "tables"]

GENERATE = "transformers generate"
PLAIN = "autoregressive"
BEST = "best"
FIXED = "fixed tree, whole rounds"
GIGA = 1e9


def tables(
    results: Results, dtypes: Sequence[str], temperatures: Sequence[float]
) -> tuple[str, ...]:
    """One table a dtype and temperature, as far as there are blocks."""
    made = [_one(results, dtype, t) for dtype in dtypes for t in temperatures]
    return tuple(each for each in made if each)


def _one(results: Results, dtype: str, temperature: float) -> str:
    samples = list(results.where(kind="block", dtype=dtype, temperature=temperature))
    if not samples:
        return ""
    measured = [
        (sample["prompt"], {n: f["tokens"] / f["seconds"] for n, f in sample["figures"].items()})
        for sample in samples
    ]
    traced = next(iter(results.where(kind="gaps", dtype=dtype, temperature=temperature)), {})
    lines = []
    for name in measured[0][1]:
        speeds: dict[str, list[float]] = {}
        for prompt, found in measured:
            speeds.setdefault(prompt, []).append(found[name])
        lines.append(
            [
                name,
                figure(estimate(list(speeds.values()), middle), 1),
                ratio(estimate(within_blocks(measured, name, GENERATE), middle)),
                ratio(estimate(within_blocks(measured, name, PLAIN), middle)),
                _gap(traced.get("gaps", {}).get(name)),
            ]
        )
    heads = ("contestant", "tokens/s", f"/ {GENERATE}", f"/ {PLAIN}", "no kernel runs")
    return table(f"{dtype}, T = {temperature:g}", heads, lines, _note(samples))


def _gap(found: dict[str, Any] | None) -> str:
    """The idle share of a round, and kernels a round; a dash where nothing was traced."""
    if not found:
        return "-"
    return f"{found['idle']:.1%} of a round ({found['kernels'] / found['rounds']:.0f} kernels)"


def _note(samples: Sequence[dict[str, Any]]) -> str:
    copied = median([sample["copied"] for sample in samples])
    steady = median([sample["figures"][PLAIN]["steady"] for sample in samples])
    read = steady * samples[0]["weights"]
    return (
        f"{len(samples)} blocks. Medians; ratios within blocks; 95 % intervals over prompts. Plain "
        f"decoding reads {read / GIGA:.1f} GB of weights a second behind the prompt, "
        f"{read / copied:.0%} of the {copied / GIGA:.1f} GB/s that a large copy was measured to "
        "move (read and written). Gaps: of a trace behind the first rounds; copies are no kernels."
    )
