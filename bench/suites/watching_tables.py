"""The tables of the `watching` suite. Reads samples, runs nothing."""

from __future__ import annotations

from typing import Any

from bench.claims import claims_table, judged
from bench.results import Results
from bench.tables import figure, ratio, table
from lab.figures import Estimate, estimate, middle

__all__ = ["APART", "HEADLESS", "SHARED", "WATCHED", "tables"]

HEADLESS, WATCHED = "headless, no log", "page and log"
APART, SHARED = "engine on a core of its own", "all cores shared"
AT_LEAST = 0.95

Sample = dict[str, Any]


def tables(results: Results) -> tuple[str, ...]:
    """Tokens per second and what being watched costs, by preset and cores; the claim."""
    samples = list(results.samples)
    presets = list(dict.fromkeys(sample["preset"] for sample in samples))
    lines, claims = [], []
    for preset in presets:
        own = [sample for sample in samples if sample["preset"] == preset]
        for cores in (APART, SHARED):
            if f"{WATCHED}, {cores}" not in own[0]["figures"]:
                continue
            cost = _estimate(own, f"{WATCHED}, {cores}", f"{HEADLESS}, {cores}")
            headless, watched = (
                figure(_estimate(own, f"{name}, {cores}"), 0) for name in (HEADLESS, WATCHED)
            )
            lines.append([preset, cores, headless, watched, ratio(cost)])
            if cores == APART:
                claims.append(judged(f"watched / headless, {preset}", cost, AT_LEAST))
    heads = (
        "preset",
        "cores",
        f"{HEADLESS}: tokens/s",
        f"{WATCHED}: tokens/s",
        "watched / headless",
    )
    note = (
        "One process is engine, server and log, another the browser, another what drives it; the "
        "page streams at up to 20 updates a second. Tokens behind the first round over the time "
        "from it to the last; medians, ratios within blocks, 95 % intervals over prompts."
    )
    return (table("Watched and headless", heads, lines, note), claims_table(claims))


def _estimate(samples: list[Sample], name: str, against: str | None = None) -> Estimate | None:
    by_prompt: dict[str, list[float]] = {}
    for sample in samples:
        figures = sample["figures"]
        value = figures[name] / (figures[against] if against else 1.0)
        by_prompt.setdefault(sample["prompt"], []).append(value)
    return estimate(list(by_prompt.values()), middle)
