"""Rows of `laws` held against their reference: every prompt decoded, every text compared; in one
process, or shared among several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch

from bench.context import Context
from bench.ours import DecodeCase, decode
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites import process_pool
from bench.suites.law_rows import LawRow
from bench.theirs import load_module
from core.engine.engine import Engine
from core.models.loading.catalog import bundled_llm
from core.trees.noise import SeededNoise

__all__ = ["Checker", "Margins", "Reference", "cases", "first_divergence", "check_in_processes"]

Reference = dict[tuple[str, int], list[int]]
"""New token ids by prompt and seed."""
Task = tuple[Settings, tuple[Prompt, ...], LawRow, Reference]


class Checker:
    """Measures rows on one engine."""

    def __init__(self, engine: Engine, settings: Settings, prompts: Sequence[Prompt]) -> None:
        self._engine = engine
        self._settings = settings
        self._prompts = prompts
        self._margins = Margins()

    def sample(self, row: LawRow, reference: Reference) -> dict[str, Any]:
        """What came of a row, prompt by prompt."""
        asked = cases(self._settings, self._prompts, row.temperature)
        outcomes = decode(self._engine, asked, row.speculation, row.together)
        prompts = [
            _compare(case, outcome, reference[case.prompt.id, case.seed], self._margins)
            for case, outcome in zip(asked, outcomes, strict=True)
        ]
        nodes = outcomes[0]["config"]["speculation"]["max_tree_nodes"]
        return {**row.key, "resolved_max_tree_nodes": nodes, "prompts": prompts}


def cases(settings: Settings, prompts: Sequence[Prompt], temperature: float) -> list[DecodeCase]:
    """Every prompt; above temperature 0 with as many seeds as there are repeats."""
    repeats = settings.repeats if temperature > 0 else 1
    return [
        DecodeCase(prompt, prompt.seed(repeat), settings.tokens, temperature)
        for repeat in range(repeats)
        for prompt in prompts
    ]


def _compare(
    case: DecodeCase, outcome: dict[str, Any], expected: list[int], margins: Margins
) -> dict[str, Any]:
    ids = outcome["token_ids"]
    at = first_divergence(ids, expected)
    found = {
        "id": case.prompt.id,
        "seed": case.seed,
        "tokens": len(ids),
        "rounds": outcome["summary"]["num_rounds"],
        "diverged_at": at,
        "margin": None,
    }
    if at is not None:
        found["token_ids"] = ids
        if at < min(len(ids), len(expected)):  # else one of them merely ended: no tie excuses it
            seen = [*outcome["prompt_token_ids"], *ids[:at]]
            pair = (ids[at], expected[at])
            found["margin"] = margins.margin(seen, pair, case.temperature, case.seed)
    return found


def check_in_processes(
    context: Context, todo: Sequence[tuple[LawRow, Reference]]
) -> Iterator[tuple[LawRow, dict[str, Any]]]:
    """Rows with their samples, in the order in which `settings.processes` processes finish them."""
    tasks = [(context.settings, context.prompts, *each) for each in todo]
    return process_pool.map_processes(context.settings.processes, _check_task, tasks)


def _check_task(task: Task) -> tuple[LawRow, dict[str, Any]]:
    settings, prompts, row, reference = task
    return row, _checker(settings, prompts).sample(row, reference)


@cache
def _checker(settings: Settings, prompts: tuple[Prompt, ...]) -> Checker:
    """A process's own."""
    return Checker(process_pool.engine_of(settings), settings, prompts)


# -- how near a tie it was: float64, teacher-forced (law 1) --


def first_divergence(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first index where they differ, also where only one has ended; None if they are equal."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


class Margins:
    """Loads the float64 model when first asked: most runs never part."""

    def __init__(self) -> None:
        self._module: Any = None

    @torch.inference_mode()
    def margin(
        self, context: Sequence[int], tokens: Sequence[int], temperature: float, seed: int
    ) -> float:
        """How far the worse of `tokens` lies under the best choice after `context`.

        At temperature 0 in logits; above, in log p + G(position) of that seed, which is what
        `match` compares. Both in float64.
        """
        if self._module is None:
            self._module = load_module(bundled_llm(), torch.float64)
        utilities = self._module(torch.tensor([list(context)])).logits[0, -1]
        if temperature > 0:
            noise = SeededNoise(seed, utilities.shape[-1])
            utilities = (utilities / temperature).log_softmax(-1) + noise.gumbel(len(context))
        return float(utilities.max() - utilities[list(tokens)].min())
