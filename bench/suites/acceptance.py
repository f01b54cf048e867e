"""`acceptance`: tokens per LLM pass, with intervals over prompts; depends on no clock.

By SSM and their union, coupled and plain, by tree width, length and combine rule; looping
continuations apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from bench.context import Context, Report, Suite
from bench.machine import pin_arithmetic
from bench.ours import DecodeCase, decode
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites import process_pool
from bench.suites.acceptance_rows import AcceptanceRow, acceptance_rows
from bench.suites.acceptance_tables import tables
from core.engine.engine import Engine

__all__ = ["Acceptance", "distinct_share"]

GRAM = 4
TOGETHER = 10  # requests decoded in one batch: the same tokens, sooner


@dataclass(frozen=True)
class Acceptance(Suite):
    """See Suite. `parts` can be fewer, for a quick look."""

    one_dtype: ClassVar[bool] = True

    name: str = "acceptance"
    about: str = (
        "tokens per LLM pass by SSM, combine rule, coupling, tree width and length; depends on no "
        "clock"
    )
    defaults: Settings = Settings(
        prompts=12, tokens=64, repeats=1, dtypes=("float32",), processes=2
    )
    parts: tuple[str, ...] = ("same", "more", "chain", "width", "length", "combine")

    def check(self, settings: Settings) -> None:
        """Processes may share it: nothing is timed."""
        self.check_dtypes(settings)

    def rows(self, context: Context) -> tuple[AcceptanceRow, ...]:
        """The rows, for the family's SSMs."""
        names = [folder.name for folder in context.ssms]
        return tuple(row for row in acceptance_rows(names) if row.part in self.parts)

    def measure(self, context: Context) -> None:
        rows, todo = self.rows(context), self._todo(context)
        for row, found in _measure_rows(context, todo):
            context.results.add({**row.key, "prompts": found})
            done = sum(context.results.has(**each.key) for each in rows)
            context.say(f"{done} of {len(rows)}: {row.kind}: {row.name} ({row.part})")

    def _todo(self, context: Context) -> list[AcceptanceRow]:
        """Those without a sample; of several with one configuration, in tables of their own, the
        first."""
        todo: list[AcceptanceRow] = []
        for row in self.rows(context):
            if not context.results.has(**row.key) and all(row.key != one.key for one in todo):
                todo.append(row)
        return todo

    def report(self, context: Context) -> Report:
        return Report(tables(context, self.rows(context)))


def distinct_share(token_ids: Sequence[int], size: int = GRAM) -> float:
    """Share of different grams of `size` tokens among all; 1 where there are none."""
    grams = [tuple(token_ids[i : i + size]) for i in range(len(token_ids) - size + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


Samples = list[dict[str, Any]]
Task = tuple[Settings, tuple[Prompt, ...], Path | None, AcceptanceRow]


def _measure_rows(
    context: Context, todo: Sequence[AcceptanceRow]
) -> Iterator[tuple[AcceptanceRow, Samples]]:
    """Each row with its samples, as soon as it is measured."""
    settings = context.settings
    if settings.processes > 1:
        tasks = [(settings, context.prompts, context.family, row) for row in todo]
        yield from process_pool.map_processes(settings.processes, _of_task, tasks)
    elif todo:
        pin_arithmetic()
        engine = Engine(context.load(settings.dtypes[0]))
        for row in todo:
            yield row, _measure_row(engine, settings, context.prompts, row)


def _of_task(task: Task) -> tuple[AcceptanceRow, Samples]:
    settings, prompts, family, row = task
    return row, _measure_row(_engine(settings, family), settings, prompts, row)


@cache
def _engine(settings: Settings, family: Path | None) -> Engine:
    return process_pool.engine_of(settings, family)


def _measure_row(
    engine: Engine, settings: Settings, prompts: Sequence[Prompt], row: AcceptanceRow
) -> Samples:
    temperature = row.kind.temperature
    repeats = settings.repeats if temperature > 0 else 1
    asked = [
        DecodeCase(prompt, prompt.seed(repeat), settings.tokens, temperature)
        for repeat in range(repeats)
        for prompt in prompts
    ]
    outcomes = decode(engine, asked, row.speculation, TOGETHER)
    return [_sample(case, outcome) for case, outcome in zip(asked, outcomes, strict=True)]


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
