"""Acceptance prompt by prompt: the rows of the Prompts tab, from a study or from past runs.

Pure: what was measured in, plain values out. A row is one prompt; figures are over its runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lab.measured import Measured
from lab.prompts import StudyPrompt
from lab.study import Study
from lab.tables import PromptRow, Results, prompt_row, prompt_rows

__all__ = ["SORTS", "of_runs", "of_study", "table_value"]

EXCERPT = 120
NO_DOMAIN = "no domain"
SORTS = ("prompt", "mean", "rate", "speed", "ratio", "rejected")


def of_study(study: Study, results: Results, configuration: str) -> tuple[PromptRow, ...]:
    """The rows of one configuration of a study."""
    return tuple(row for row in prompt_rows(study, results) if row.configuration == configuration)


def of_runs(runs: Iterable[tuple[str, Measured]]) -> tuple[tuple[PromptRow, ...], dict[str, str]]:
    """Rows of past runs (prompt, figures), one a prompt, in order of appearance; and the texts of
    the prompts by their ids. No speed-up: nothing says which run is whose baseline."""
    by_prompt: dict[str, list[Measured]] = {}
    for text, found in runs:
        by_prompt.setdefault(text, []).append(found)
    texts = {str(i): text for i, text in enumerate(by_prompt, start=1)}
    rows = tuple(prompt_row(key, "", "", by_prompt[text]) for key, text in texts.items())
    return rows, texts


def texts_of(prompts: Sequence[StudyPrompt]) -> dict[str, str]:
    """The text behind each prompt's id."""
    return {prompt.id: prompt.text for prompt in prompts}


def table_value(
    name: str, rows: Sequence[PromptRow], texts: dict[str, str], drafters: Sequence[str]
) -> dict[str, Any]:
    """What the table of that `name` shows: rows by number, grouped by domain in order of
    appearance, and a mean of each domain. `drafters` in the order of their colours."""
    groups = list(dict.fromkeys(row.domain for row in rows))
    return {
        "name": name,
        "rows": {str(i): _row(row, texts, drafters) for i, row in enumerate(rows)},
        "groups": {
            str(i): _group(domain, [row for row in rows if row.domain == domain])
            for i, domain in enumerate(groups)
        },
    }


def _row(row: PromptRow, texts: dict[str, str], drafters: Sequence[str]) -> dict[str, Any]:
    flat = " ".join(texts.get(row.prompt, row.prompt).split())
    best = row.best_drafter
    return {
        "id": row.prompt,
        "prompt": flat if len(flat) <= EXCERPT else flat[: EXCERPT - 1] + "…",
        "domain": row.domain or NO_DOMAIN,
        "mean": row.mean_acceptance_length,
        "rate": row.draft_acceptance_rate,
        "positions": {str(i): rate for i, rate in enumerate(row.rate_per_position)},
        "best": best,
        "slot": drafters.index(best) if best in drafters else -1,
        "speed": row.speed,
        "ratio": row.ratio,
        "rejected": row.rejected_most,
        "same": row.same.kind,
        "runs": {str(i): run for i, run in enumerate(row.runs)},
    }


def _group(domain: str, rows: Sequence[PromptRow]) -> dict[str, Any]:
    return {
        "domain": domain or NO_DOMAIN,
        "prompts": len(rows),
        "mean": _mean([row.mean_acceptance_length for row in rows]),
        "rate": _mean([row.draft_acceptance_rate for row in rows]),
        "speed": _mean([row.speed for row in rows]),
        "ratio": _mean([row.ratio for row in rows]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Of the prompts that have the figure, each counting once."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
