"""Figures of the `acceptance` suite's samples: pooled lengths, ratios, nodes; runs nothing.

A figure is pooled over prompts, 1 + accepted tokens / rounds, and its interval is a bootstrap over
prompts. Continuations that repeat themselves are easy to draft: they stand apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.tables import NOTHING
from lab.figures import Estimate, estimate, pooled_length, pooled_ratio

__all__ = [
    "LOOPING",
    "Prompts",
    "fresh",
    "length_of",
    "nodes_of",
    "of_domain",
    "paired",
    "size_of",
    "value_of",
]

LOOPING = 0.7
Prompts = list[dict[str, Any]]
Wanted = Callable[[dict[str, Any]], bool]


def fresh(prompt: dict[str, Any]) -> bool:
    return bool(prompt["distinct_4_grams"] >= LOOPING)


def of_domain(domain: str) -> Wanted:
    return lambda prompt: fresh(prompt) and prompt["domain"] == domain


def length_of(prompts: Prompts, wanted: Wanted = fresh) -> Estimate | None:
    """Tokens per LLM pass of the wanted continuations, each prompt a group."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for prompt in filter(wanted, prompts):
        groups.setdefault(prompt["id"], []).append((prompt["accepted"], prompt["rounds"]))
    return estimate(list(groups.values()), pooled_length)


def paired(one: Prompts, other: Prompts, wanted: Wanted = fresh) -> Estimate | None:
    """The ratio of two rows over the continuations wanted in both, prompt by prompt."""
    base = {(p["id"], p["seed"]): p for p in other if wanted(p)}
    groups: dict[str, list[tuple[int, ...]]] = {}
    for prompt in filter(wanted, one):
        if (same := base.get((prompt["id"], prompt["seed"]))) is not None:
            values = (prompt["accepted"], prompt["rounds"], same["accepted"], same["rounds"])
            groups.setdefault(prompt["id"], []).append(values)
    return estimate(list(groups.values()), pooled_ratio)


def nodes_of(prompts: Prompts) -> str:
    rounds = sum(prompt["rounds"] for prompt in prompts)
    return f"{sum(p['nodes'] for p in prompts) / rounds:.1f}" if rounds else NOTHING


def value_of(prompts: Prompts) -> float:
    pairs = [(prompt["accepted"], prompt["rounds"]) for prompt in prompts if fresh(prompt)]
    return float(pooled_length(np.array(pairs, dtype=np.float64))) if pairs else 0.0


def size_of(prompts: Prompts) -> float:
    return float(sum(p["nodes"] for p in prompts) / max(1, sum(p["rounds"] for p in prompts)))
