"""`acceptance`: tokens per LLM pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.contestants import DecodeCase, cases, decode
from bench.context import Context, Report, Suite
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites.acceptance_rows import AcceptanceRow, acceptance_rows
from bench.suites.acceptance_tables import tables
from bench.suites.process_pool import measure_rows
from core.engine.engine import Engine

GRAM = 4
TOGETHER = 10  # requests in one batch: faster than one at a time, with the same tokens


@dataclass(frozen=True)
class Acceptance(Suite):
    """`parts`: only rows with these parts (`AcceptanceRow.part`) are measured."""

    one_dtype: ClassVar[bool] = True
    measures_time: ClassVar[bool] = False

    name: str = "acceptance"
    about: str = (
        "tokens per LLM pass by SSM, combine rule, coupling, tree width and length; depends on no "
        "clock"
    )
    defaults: Settings = Settings(
        prompts=12, tokens=64, repeats=1, dtypes=("float32",), processes=2
    )
    parts: tuple[str, ...] = ("same", "more", "chain", "width", "length", "combine", "lookup")

    def rows(self, context: Context) -> tuple[AcceptanceRow, ...]:
        names = [folder.name for folder in context.ssms]
        return tuple(row for row in acceptance_rows(names) if row.part in self.parts)

    def measure(self, context: Context) -> None:
        rows, results = self.rows(context), context.results
        # Several rows can have the same key.
        keys = [row.key for row in rows]
        todo = [row for i, row in enumerate(rows) if row.key not in keys[:i]]
        todo = [row for row in todo if not results.has(**row.key)]
        for row, rows_of_task in measure_rows(context, _measure_row, todo):
            results.add({**row.key, "prompts": rows_of_task})
            num_measured = sum(results.has(**each.key) for each in rows)
            context.say(f"{num_measured} of {len(rows)}: {row.kind}: {row.name} ({row.part})")

    def report(self, context: Context) -> Report:
        return Report(tables(context, self.rows(context)))


def distinct_share(token_ids: Sequence[int], size: int = GRAM) -> float:
    """Distinct n-grams of `size` tokens, relative to all n-grams; 1 if there are none."""
    grams = [tuple(token_ids[i : i + size]) for i in range(len(token_ids) - size + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def _measure_row(
    engine: Engine, settings: Settings, prompts: Sequence[Prompt], row: AcceptanceRow
) -> list[dict[str, Any]]:
    row_cases = cases(settings, prompts, row.kind.temperature)
    if row.learns:  # a new engine, one request at a time: drafters learn from this row only
        with closing(Engine(engine.models)) as new_engine:
            outcomes = decode(new_engine, row_cases, row.speculation)
    else:
        outcomes = decode(engine, row_cases, row.speculation, TOGETHER)
    return [_sample(case, outcome) for case, outcome in zip(row_cases, outcomes, strict=True)]


def _sample(case: DecodeCase, outcome: dict[str, Any]) -> dict[str, Any]:
    summary = outcome["summary"]
    return {
        "id": case.prompt.id,
        "domain": case.prompt.domain,
        "seed": case.seed,
        "tokens": summary["num_new_tokens"],
        "rounds": summary["num_rounds"],
        "accepted": summary["num_accepted_tokens"],
        "nodes": summary["num_verified_nodes"],
        "mean_acceptance_length": summary["mean_acceptance_length"],
        "distinct_4_grams": round(distinct_share(outcome["token_ids"]), 4),
    }
