"""One row of `laws` held against its reference: every prompt decoded, every text compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.margins import Margins, first_divergence
from bench.ours import Case, decode
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites.law_rows import Row
from core.engine.engine import Engine

__all__ = ["Checker", "Reference", "cases"]

Reference = dict[tuple[str, int], list[int]]
"""New token ids by prompt and seed."""


class Checker:
    """Measures rows on one engine."""

    def __init__(self, engine: Engine, settings: Settings, prompts: Sequence[Prompt]) -> None:
        self._engine = engine
        self._settings = settings
        self._prompts = prompts
        self._margins = Margins()

    def sample(self, row: Row, reference: Reference) -> dict[str, Any]:
        """What came of a row, prompt by prompt."""
        asked = cases(self._settings, self._prompts, row.temperature)
        outcomes = decode(self._engine, asked, row.speculation, row.together)
        prompts = [
            _compared(case, outcome, reference[case.prompt.id, case.seed], self._margins)
            for case, outcome in zip(asked, outcomes, strict=True)
        ]
        nodes = outcomes[0]["config"]["speculation"]["max_tree_nodes"]
        return {**row.key, "resolved_max_tree_nodes": nodes, "prompts": prompts}


def cases(settings: Settings, prompts: Sequence[Prompt], temperature: float) -> list[Case]:
    """Every prompt; above temperature 0 with as many seeds as there are repeats."""
    repeats = settings.repeats if temperature > 0 else 1
    return [
        Case(prompt, prompt.seed(repeat), settings.tokens, temperature)
        for repeat in range(repeats)
        for prompt in prompts
    ]


def _compared(
    case: Case, outcome: dict[str, Any], expected: list[int], margins: Margins
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
