"""The tables of the `lanes` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.results import Results
from bench.tables import figure, ratio, table
from lab.figures import estimate, median, middle

__all__ = ["SERIAL", "tables"]

SERIAL = "one after the other"


def tables(results: Results, works: Sequence[str]) -> tuple[str, ...]:
    """One table a dtype and work."""
    dtypes = dict.fromkeys(sample["dtype"] for sample in results.samples)
    found = [(d, work, list(results.where(dtype=d, work=work))) for d in dtypes for work in works]
    return tuple(_one(d, work, samples) for d, work, samples in found if samples)


def _one(dtype: str, work: str, samples: Sequence[dict[str, Any]]) -> str:
    names = list(samples[0]["figures"])
    first = next(name for name in names if name.startswith(SERIAL))
    lines = []
    for name in names:
        split = name.rpartition(", ")[2]
        alone = next((n for n in names if n == f"{SERIAL}, {split}"), first)
        llm, draft = (_medians(samples, name, side) for side in ("llm", "draft"))
        lines.append(
            [
                name,
                figure(estimate(_by_prompt(samples, name), middle)),
                ratio(estimate(_quotients(samples, name, first, "round"), middle)),
                *(f"{median(side):.2f}" for side in (llm, draft)),
                *(
                    ratio(estimate(_quotients(samples, name, alone, side), middle))
                    for side in ("llm", "draft")
                ),
                f"{median(_medians(samples, name, 'round')) / max(median(llm), median(draft)):.2f}",
            ]
        )
    heads = (
        "form, threads for LLM + drafting",
        "ms a round",
        f"/ {first}",
        "LLM ms",
        "drafting ms",
    )
    further = ("LLM / alone", "drafting / alone", "round / its longer side")
    note = (
        f"{len(samples)} blocks; medians of their rounds' medians. `alone`: the same side in "
        f"`{SERIAL}` with as many threads; what is above 1 there is what the two cost each other. "
        "The last column is 1 where the shorter side is hidden whole."
    )
    return table(f"{work}, {dtype}", (*heads, *further), lines, note)


def _by_prompt(samples: Sequence[dict[str, Any]], name: str) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for sample in samples:
        groups.setdefault(sample["prompt"], []).append(median(sample["figures"][name]["round"]))
    return list(groups.values())


def _medians(samples: Sequence[dict[str, Any]], name: str, side: str) -> list[float]:
    return [median(sample["figures"][name][side]) for sample in samples]


def _quotients(
    samples: Sequence[dict[str, Any]], name: str, base: str, side: str
) -> list[list[float]]:
    """Ratios within blocks, by prompt."""
    groups: dict[str, list[float]] = {}
    for sample in samples:
        one, other = (median(sample["figures"][each][side]) for each in (name, base))
        groups.setdefault(sample["prompt"], []).append(one / other)
    return list(groups.values())
