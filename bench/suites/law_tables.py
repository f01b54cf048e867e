"""The tables of the `laws` suite, and which of its rows failed. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.context import Context
from bench.suites.law_rows import Row
from bench.tables import table
from core.mechanisms import combine_rule

__all__ = ["MARGIN", "failures", "tables", "verdict"]

MARGIN = 1e-4
NEAR_TIES = 1
BY_DISTRIBUTION = "by distribution: tests/laws"
NOT_RUN = "not run yet"


def verdict(prompts: Sequence[dict[str, Any]]) -> str:
    """`exact`; `near tie` (one prompt, margin under 1e-4: law 1 allows it); else `FAIL`."""
    parted = [prompt for prompt in prompts if prompt["diverged_at"] is not None]
    if not parted:
        return "exact"
    near = all(p["margin"] is not None and p["margin"] < MARGIN for p in parted)
    return "near tie" if near and len({p["id"] for p in parted}) <= NEAR_TIES else "FAIL"


def tables(context: Context, rows: Sequence[Row]) -> tuple[str, ...]:
    """A summary by temperature and rules, every row, and every divergence."""
    return (_summary(context, rows), _rows(context, rows), _parted(context, rows))


def failures(context: Context, rows: Sequence[Row]) -> tuple[str, ...]:
    """One sentence a failed row; empty if all that was run held."""
    return tuple(
        f"{row.name} {' '.join(map(str, _cells(row)))}: token ids differ from the reference"
        for row in rows
        if _verdict(context, row) == "FAIL"
    )


def _sample(context: Context, row: Row) -> dict[str, Any] | None:
    return next(context.results.where(**row.key), None)


def _verdict(context: Context, row: Row) -> str:
    if not row.compared:
        return BY_DISTRIBUTION
    sample = _sample(context, row)
    return NOT_RUN if sample is None else verdict(sample["prompts"])


def _summary(context: Context, rows: Sequence[Row]) -> str:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        config = row.speculation
        name = {"rules": config.draft, "mechanisms": _mechanism(row)}.get(row.name, "presets")
        groups.setdefault((f"{row.temperature:g}", name, config.verify), []).append(row)
    lines = []
    for (temperature, name, rule), members in sorted(groups.items()):
        found = [s for row in members if (s := _sample(context, row)) is not None]
        prompts = [prompt for sample in found for prompt in sample["prompts"]]
        verdicts = {_verdict(context, row) for row in members}
        lines.append(
            [
                temperature,
                name,
                rule,
                len(members),
                len(prompts) or "-",
                sum(p["diverged_at"] is None for p in prompts) or "-",
                ", ".join(sorted(verdicts)),
            ]
        )
    heads = ("temperature", "draft", "verify", "rows", "continuations", "exact", "verdict")
    return table("Laws 1 and 2, summed", heads, lines)


def _rows(context: Context, rows: Sequence[Row]) -> str:
    lines: list[list[object]] = []
    for row in rows:
        sample = _sample(context, row)
        prompts = sample["prompts"] if sample else []
        parted = [p for p in prompts if p["diverged_at"] is not None]
        exact = len(prompts) - len(parted) if sample else "-"
        lines.append(
            [row.name, *_cells(row), len(prompts) or "-", exact, _margins(parted) or "-"]
            + [_verdict(context, row)]
        )
    heads = (
        "row",
        "T",
        "draft",
        "verify",
        "combine, length, pipeline",
        "drafters",
        "expansion",
        "nodes",
        "live",
        "continuations",
        "exact",
        "diverged (margin)",
        "verdict",
    )
    note = (
        "Temperature 0: against transformers' `generate(do_sample=False)`; above: against plain "
        "decoding with the same seed. `mss` and `traversal` keep the distribution, not the tokens: "
        "that is proved by enumeration and chi-square in tests/laws."
    )
    return table("Laws 1 and 2, every row", heads, lines, note)


def _cells(row: Row) -> list[object]:
    config = row.speculation
    return [
        f"{row.temperature:g}",
        config.draft,
        config.verify,
        f"{_mechanism(row)}, {config.pipeline}",
        "+".join(config.drafters) or "-",
        f"<{','.join(map(str, config.shape(config.speculation_length)))}>",
        config.max_tree_nodes,
        row.together,
    ]


def _mechanism(row: Row) -> str:
    config = row.speculation
    weighed = combine_rule(config.combine).weighted
    return f"{config.combine}{f' ({config.weights})' if weighed else ''}, {config.length}"


def _margins(parted: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        f"{p['id']} ({'ended' if p['margin'] is None else format(p['margin'], '.1e')})"
        for p in parted
    )


def _parted(context: Context, rows: Sequence[Row]) -> str:
    lines = [
        [row.name, *_cells(row)[:3], prompt["id"], prompt["diverged_at"], _margins([prompt])]
        for row in rows
        if (sample := _sample(context, row)) is not None
        for prompt in sample["prompts"]
        if prompt["diverged_at"] is not None
    ]
    heads = ("row", "T", "draft", "verify", "prompt", "first differing token", "float64 margin")
    note = "" if lines else "None."
    return table("Divergences", heads, lines, note)
