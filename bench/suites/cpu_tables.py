"""The tables of the `cpu-bundled` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.results import Results
from bench.suites.cpu_variants import FAMILIES
from bench.tables import figure, ratio, table
from lab.figures import estimate, median, middle
from lab.order import within_blocks

__all__ = ["GENERATE", "PLAIN", "best_variant", "tables"]

GENERATE = "transformers generate"
PLAIN = "autoregressive"
Speeds = list[tuple[str, dict[str, float]]]


def tables(
    results: Results,
    dtypes: Sequence[str],
    temperatures: Sequence[float],
    title: str = "",
    told: str = "",
) -> tuple[str, ...]:
    """One table a dtype and temperature, as far as there are blocks; `title` begins its title, and
    `told` its note."""
    made = [_one(results, dtype, t, title, told) for dtype in dtypes for t in temperatures]
    return tuple(each for each in made if each)


def speeds(results: Results, **key: Any) -> Speeds:
    """Tokens per second of every contestant, a (prompt, speeds) pair a block."""
    return [
        (sample["prompt"], {n: f["tokens"] / f["seconds"] for n, f in sample["figures"].items()})
        for sample in results.where(**key)
    ]


def best_variant(results: Results, dtype: str, temperature: float, family: str) -> str:
    """The fastest variant of a family in the sweep: all its tokens over all its seconds."""
    totals: dict[str, list[float]] = {}
    for sample in results.where(kind="sweep", dtype=dtype, temperature=temperature):
        for name, measured in sample["figures"].items():
            if name.startswith(family):
                total = totals.setdefault(name, [0.0, 0.0])
                total[0] += measured["tokens"]
                total[1] += measured["seconds"]
    return max(totals, key=lambda name: totals[name][0] / totals[name][1], default="")


def _one(results: Results, dtype: str, temperature: float, title: str, told: str) -> str:
    measured = speeds(results, kind="block", dtype=dtype, temperature=temperature)
    if not measured:
        return ""
    names = list(measured[0][1])
    rivals = [name for name in FAMILIES if name in names]
    rival = max(rivals, key=lambda name: _median(measured, name), default=None)
    lines = [
        [
            name,
            figure(estimate(_by_prompt(measured, name), middle), 1),
            ratio(estimate(within_blocks(measured, name, GENERATE), middle)),
            ratio(estimate(within_blocks(measured, name, PLAIN), middle)),
            *([ratio(estimate(within_blocks(measured, name, rival), middle))] if rival else []),
        ]
        for name in names
    ]
    chosen = [best_variant(results, dtype, temperature, family) for family in rivals]
    loads = [sample["load"] for sample in results.where(dtype=dtype, temperature=temperature)]
    swept = f"Swept first, the best competes: {', '.join(chosen)}. " if chosen else ""
    note = (
        f"{told}{len(measured)} blocks. Medians; ratios within blocks; 95 % intervals over "
        "prompts. "
        f"{swept}`{PLAIN}` is our plain decoding. "
        f"Load average {min(map(_number, loads)):g} to {max(map(_number, loads)):g}."
    )
    heads = (
        "contestant",
        "tokens/s",
        f"/ {GENERATE}",
        f"/ {PLAIN}",
        *([f"/ {rival}"] if rival else []),
    )
    return table(f"{title}{dtype}, T = {temperature:g}", heads, lines, note)


def _by_prompt(measured: Speeds, name: str) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for prompt, found in measured:
        groups.setdefault(prompt, []).append(found[name])
    return list(groups.values())


def _median(measured: Speeds, name: str) -> float:
    return median([found[name] for _, found in measured])


def _number(load: float | None) -> float:
    return load if load is not None else float("nan")
