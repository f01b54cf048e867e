"""Checks rows of suite `laws`: decodes every prompt and compares the tokens with the reference."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from bench.contestants import DecodeCase, cases, decode, decode_joining
from bench.context import Context, Report
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites.law_rows import LawRow
from bench.tables import NOTHING, table
from core.config import PRESETS
from core.config.mechanisms import combine_rule
from core.engine.engine import Engine
from core.trees.noise import SeededNoise
from lab.texts import first_difference

Comparisons = Sequence[dict[str, Any]]
"""One for each prompt and seed; empty if the row was not run."""
Reference = dict[tuple[str, int], list[int]]
"""New token ids by prompt and seed."""


def check_row(
    engine: Engine, settings: Settings, prompts: Sequence[Prompt], task: tuple[LawRow, Reference]
) -> dict[str, Any]:
    """Returns the row's sample."""
    row, reference = task
    task_cases = cases(settings, prompts, row.temperature)
    # The rows of a process share an engine.
    engine.schedule = row.schedule
    if row.together == 1:
        outcomes = decode(engine, task_cases, row.speculation)
    else:
        outcomes = decode_joining(engine, task_cases, row.speculation, row.together)
    llm: Any = engine.models.llm
    comparisons = [
        _compare(llm._module, case, outcome, reference[case.prompt.id, case.seed])
        for case, outcome in zip(task_cases, outcomes, strict=True)
    ]
    nodes = outcomes[0]["config"]["speculation"]["max_tree_nodes"]
    return {**row.key, "resolved_max_tree_nodes": nodes, "prompts": comparisons}


def _compare(
    module: Any, case: DecodeCase, outcome: dict[str, Any], expected: list[int]
) -> dict[str, Any]:
    ids, rounds = outcome["token_ids"], outcome["summary"]["num_rounds"]
    diverged_at = first_difference(ids, expected)
    figures = {"id": case.prompt.id, "seed": case.seed, "tokens": len(ids), "rounds": rounds}
    figures |= {"diverged_at": diverged_at, "margin": None}
    if diverged_at is not None:
        figures["token_ids"] = ids
        # If one text is the beginning of the other, there is no logit margin.
        if diverged_at < min(len(ids), len(expected)):
            prefix = [*outcome["prompt_token_ids"], *ids[:diverged_at]]
            pair = (ids[diverged_at], expected[diverged_at])
            figures["margin"] = margin(module, prefix, pair, case.temperature, case.seed)
    return figures


@cache
def _in_float64(module: Any) -> Any:
    return copy.deepcopy(module).double()


@torch.inference_mode()
def margin(
    module: Any, context: Sequence[int], tokens: Sequence[int], temperature: float, seed: int
) -> float:
    """The gap in float64 between the best next-token utility after `context` and the lowest utility
    of `tokens`. At temperature 0, utilities are logits. Above 0, utilities are log p plus the
    Gumbel noise of `seed` at the token's position."""
    utilities = _in_float64(module)(torch.tensor([list(context)])).logits[0, -1]
    if temperature > 0:
        noise = SeededNoise(seed, utilities.shape[-1])
        utilities = (utilities / temperature).log_softmax(-1) + noise.gumbel(len(context))
    return float(utilities.max() - utilities[list(tokens)].min())


GENERATE, PLAIN = "transformers generate", "plain decoding"
MARGIN = 1e-4
NEAR_TIES = 1
BY_DISTRIBUTION = "distribution tested in tests/laws"
NOT_RUN = "not run yet"


def exactness_verdict(prompts: Comparisons) -> str:
    """`exact`; `near tie` (one prompt, margins under MARGIN); else `FAIL`."""
    diverged = _diverged_prompts(prompts)
    if not diverged:
        return "exact"
    near = all(p["margin"] is not None and p["margin"] < MARGIN for p in diverged)
    return "near tie" if near and len({p["id"] for p in diverged}) <= NEAR_TIES else "FAIL"


def report_of(context: Context, rows: Sequence[LawRow], greedy_reference: str = GENERATE) -> Report:
    """The tables, and a failure for each row with the verdict `FAIL`."""
    none: dict[str, Any] = {"prompts": []}
    samples = {row: next(context.results.where(**row.key), none) for row in rows}
    by_row = {row: sample["prompts"] for row, sample in samples.items()}
    failures = tuple(
        f"{' '.join(map(str, (row.name, *_cells(row).values())))}: token ids differ from the "
        "reference"
        for row, prompts in by_row.items()
        if _verdict(row, prompts) == "FAIL"
    )
    tables = (_summary(by_row), _rows(by_row, greedy_reference), _divergences(by_row))
    return Report(tables, failures)


def _verdict(row: LawRow, prompts: Comparisons) -> str:
    if not row.is_compared:
        return BY_DISTRIBUTION
    return exactness_verdict(prompts) if prompts else NOT_RUN


def _summary(by_row: Mapping[LawRow, Comparisons]) -> str:
    groups: dict[tuple[str, str, str], list[LawRow]] = {}
    for row in by_row:
        config = row.speculation
        kind = "presets" if row.name in PRESETS else row.name
        name = {"rules": config.draft, "mechanisms": _mechanism(row)}.get(kind, kind)
        groups.setdefault((f"{row.temperature:g}", name, config.verify), []).append(row)
    lines = []
    for key, rows in sorted(groups.items()):
        prompts = [prompt for row in rows for prompt in by_row[row]]
        verdicts = sorted({_verdict(row, by_row[row]) for row in rows})
        exact = len(prompts) - len(_diverged_prompts(prompts))
        figures = (len(rows), len(prompts) or NOTHING, exact or NOTHING)
        lines.append([*key, *figures, ", ".join(verdicts)])
    heads = (
        "temperature",
        "draft, rules or kind",
        "verify",
        "rows",
        "continuations",
        "exact",
        "verdict",
    )
    return table("Laws 1 and 2, summary", heads, lines)


def _rows(by_row: Mapping[LawRow, Comparisons], greedy_reference: str) -> str:
    lines: list[list[object]] = []
    for row, prompts in by_row.items():
        diverged = _diverged_prompts(prompts)
        exact = len(prompts) - len(diverged) if prompts else NOTHING
        figures = (len(prompts) or NOTHING, exact, _margins(diverged) or NOTHING)
        lines.append([row.name, *_cells(row).values(), *figures, _verdict(row, prompts)])
    cells = _cells(next(iter(by_row)))
    heads = ("row", *cells, "continuations", "exact", "diverged (margin)", "verdict")
    note = (
        f"Temperature 0: against {greedy_reference}; above: against plain "
        "decoding with the same seed. `mss` and `traversal` keep the distribution, not the tokens: "
        "that is tested by enumeration and chi-square in tests/laws."
    )
    return table("Laws 1 and 2, every row", heads, lines, note)


def _divergences(by_row: Mapping[LawRow, Comparisons]) -> str:
    lines = []
    for row, prompts in by_row.items():
        config = row.speculation
        row_cells = (row.name, f"{row.temperature:g}", config.draft, config.verify)
        for one in _diverged_prompts(prompts):
            lines.append([*row_cells, one["id"], one["diverged_at"], _margins([one])])
    heads = ("row", "T", "draft", "verify", "prompt", "first differing token", "float64 margin")
    return table("Divergences", heads, lines, "" if lines else "None.")


def _cells(row: LawRow) -> dict[str, object]:
    config = row.speculation
    return {
        "T": f"{row.temperature:g}",
        "draft": config.draft,
        "verify": config.verify,
        "combine, length, pipeline": f"{_mechanism(row)}, {config.pipeline}",
        "drafters": "+".join(config.drafters) or NOTHING,
        "expansion": f"<{','.join(map(str, config.shape(config.speculation_length)))}>",
        "nodes": config.max_tree_nodes,
        "concurrent requests": row.together,
    }


def _mechanism(row: LawRow) -> str:
    config = row.speculation
    has_weights = combine_rule(config.combine).weighted
    return f"{config.combine}{f' ({config.weights})' if has_weights else ''}, {config.length}"


def _diverged_prompts(prompts: Comparisons) -> list[dict[str, Any]]:
    return [prompt for prompt in prompts if prompt["diverged_at"] is not None]


def _margins(diverged: Comparisons) -> str:
    return ", ".join(
        f"{p['id']} ({'ended' if p['margin'] is None else format(p['margin'], '.1e')})"
        for p in diverged
    )
