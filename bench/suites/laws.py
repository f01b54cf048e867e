"""`laws`: the text is the LLM's own, token for token (ALGORITHMS 9, laws 1 and 2).

At temperature 0 against transformers' `generate`, above it against plain decoding with the same
seed. Where two texts part, the float64 margin tells a tie from an error.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from bench.context import Context, Report
from bench.machine import pin_arithmetic
from bench.margins import Margins, first_divergence
from bench.ours import Case, decode
from bench.settings import Settings
from bench.suites.law_rows import TEMPERATURE, Row, law_rows
from bench.suites.law_tables import failures, tables
from bench.theirs import Theirs
from core.config import SpeculationConfig
from core.engine import Engine
from core.errors import ConfigError

__all__ = ["Laws"]

PATIENCE_S = 60.0

GENERATE, PLAIN = "transformers generate", "plain decoding"
Reference = dict[tuple[str, int], list[int]]


@dataclass(frozen=True)
class Laws:
    """See Suite. `only` can be fewer rows, for a quick look; None: all of them."""

    name: str = "laws"
    about: str = "token ids equal transformers' generate and plain decoding; exit status 1 if not"
    defaults: Settings = Settings(prompts=60, tokens=64, repeats=1, dtypes=("float32",))
    only: tuple[Row, ...] | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        return law_rows() if self.only is None else self.only

    def check(self, settings: Settings) -> None:
        """Equality of token ids is a law of float32; bfloat16 has a law of its own."""
        if settings.dtypes != ("float32",):
            raise ConfigError.of(
                "dtype", " ".join(settings.dtypes), "float32: in bfloat16 near ties fall either way"
            )

    def measure(self, context: Context) -> None:
        pin_arithmetic()
        todo = [row for row in self.rows if row.compared and not context.results.has(**row.key)]
        if not todo:
            return
        with closing(Engine(context.load("float32"), context.settings.place)) as engine:
            engine.ready_beside(PATIENCE_S)
            self._measure_rows(context, engine, todo)

    def _measure_rows(self, context: Context, engine: Engine, todo: list[Row]) -> None:
        margins = Margins()
        references = {
            temperature: _reference(context, engine, temperature)
            for temperature in sorted({row.temperature for row in todo})
        }
        for number, row in enumerate(todo, start=1):
            sample = _measured(context, engine, row, references[row.temperature], margins)
            context.results.add(sample)
            wrong = sum(prompt["diverged_at"] is not None for prompt in sample["prompts"])
            context.say(f"{number} of {len(todo)}: {described(row)}: {wrong} diverged")

    def report(self, context: Context) -> Report:
        return Report(tables(context, self.rows), failures(context, self.rows))


def described(row: Row) -> str:
    """A row in one line."""
    config = row.speculation
    live = "alone" if row.together == 1 else f"{row.together} live"
    return (
        f"{row.name}, T={row.temperature:g}, {config.draft}, {config.verify}, "
        f"{'+'.join(config.drafters) or 'no drafters'}, {config.expansion}, {live}"
    )


def cases(context: Context, temperature: float) -> list[Case]:
    """Every prompt; above temperature 0 with as many seeds as there are repeats."""
    repeats = context.settings.repeats if temperature > 0 else 1
    return [
        Case(prompt, prompt.seed(repeat), context.settings.tokens, temperature)
        for repeat in range(repeats)
        for prompt in context.prompts
    ]


def _reference(context: Context, engine: Engine, temperature: float) -> Reference:
    """The ids to be equal to; kept in the results, as evidence and for the next start."""
    name = PLAIN if temperature > 0 else GENERATE
    if not context.results.has(reference=name):
        context.say(f"reference: {name}")
        asked = cases(context, temperature)
        ids = _plain(engine, asked) if temperature > 0 else _generated(asked)
        found = [
            {"id": case.prompt.id, "seed": case.seed, "token_ids": each}
            for case, each in zip(asked, ids, strict=True)
        ]
        context.results.add({"reference": name, "temperature": temperature, "found": found})
    stored = next(context.results.where(reference=name))
    return {(each["id"], each["seed"]): each["token_ids"] for each in stored["found"]}


def _plain(engine: Engine, asked: list[Case]) -> list[list[int]]:
    config = SpeculationConfig.preset("autoregressive", TEMPERATURE)
    return [outcome["token_ids"] for outcome in decode(engine, asked, config)]


def _generated(asked: list[Case]) -> list[list[int]]:
    theirs = Theirs("float32")
    return [theirs.generate(theirs.tokenize(case.prompt.text), case.tokens) for case in asked]


def _measured(
    context: Context, engine: Engine, row: Row, reference: Reference, margins: Margins
) -> dict[str, Any]:
    asked = cases(context, row.temperature)
    outcomes = decode(engine, asked, row.speculation, row.together)
    prompts = [
        _compared(case, outcome, reference[case.prompt.id, case.seed], margins)
        for case, outcome in zip(asked, outcomes, strict=True)
    ]
    nodes = outcomes[0]["config"]["speculation"]["max_tree_nodes"]
    return {**row.key, "resolved_max_tree_nodes": nodes, "prompts": prompts}


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
