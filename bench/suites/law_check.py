"""A row of `laws` held against its reference: every prompt decoded, every text compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from bench.ours import DecodeCase, cases, decode
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites.law_rows import LawRow
from bench.theirs import load_module
from core.engine.engine import Engine
from core.models.loading.catalog import bundled_llm
from core.trees.noise import SeededNoise

Reference = dict[tuple[str, int], list[int]]
"""New token ids by prompt and seed."""


def check_row(
    engine: Engine,
    settings: Settings,
    prompts: Sequence[Prompt],
    task: tuple[LawRow, Reference],
) -> dict[str, Any]:
    """The row's sample: what came of it, prompt by prompt."""
    row, reference = task
    asked = cases(settings, prompts, row.temperature)
    outcomes = decode(engine, asked, row.speculation, row.together)
    found = [
        _compare(case, outcome, reference[case.prompt.id, case.seed])
        for case, outcome in zip(asked, outcomes, strict=True)
    ]
    nodes = outcomes[0]["config"]["speculation"]["max_tree_nodes"]
    return {**row.key, "resolved_max_tree_nodes": nodes, "prompts": found}


def _compare(case: DecodeCase, outcome: dict[str, Any], expected: list[int]) -> dict[str, Any]:
    ids, rounds = outcome["token_ids"], outcome["summary"]["num_rounds"]
    at = first_divergence(ids, expected)
    found = {"id": case.prompt.id, "seed": case.seed, "tokens": len(ids), "rounds": rounds}
    found |= {"diverged_at": at, "margin": None}
    if at is not None:
        found["token_ids"] = ids
        if at < min(len(ids), len(expected)):  # else one of them merely ended: no tie excuses it
            seen, pair = [*outcome["prompt_token_ids"], *ids[:at]], (ids[at], expected[at])
            found["margin"] = margin(seen, pair, case.temperature, case.seed)
    return found


def first_divergence(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first index where they differ, also where only one has ended; None if they are equal."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


@cache
def _float64_llm() -> Any:
    """Loaded when first asked for: most runs never differ."""
    return load_module(bundled_llm(), torch.float64)


@torch.inference_mode()
def margin(context: Sequence[int], tokens: Sequence[int], temperature: float, seed: int) -> float:
    """How far the worse of `tokens` lies under the best choice after `context`, in float64 and
    teacher-forced (law 1): at temperature 0 in logits; above, in log p + G(position) of that seed,
    which is what `match` compares."""
    utilities = _float64_llm()(torch.tensor([list(context)])).logits[0, -1]
    if temperature > 0:
        noise = SeededNoise(seed, utilities.shape[-1])
        utilities = (utilities / temperature).log_softmax(-1) + noise.gumbel(len(context))
    return float(utilities.max() - utilities[list(tokens)].min())
