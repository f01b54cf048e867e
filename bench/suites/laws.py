"""`laws`: the text is the LLM's own, token for token (laws 1 and 2 of tests/laws).

At temperature 0 the reference is transformers' `generate`; above 0, plain decoding with the same
seed. If texts differ, the LLM's logits in float64 distinguish near ties from errors.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from bench.contestants import TransformersLlm, cases, decode
from bench.context import Context, Report, Suite
from bench.machine import pin_arithmetic
from bench.settings import Settings
from bench.suites.law_check import GENERATE, PLAIN, Reference, check_row, report_of
from bench.suites.law_rows import LawRow, law_rows
from bench.suites.process_pool import measure_rows
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.errors import ConfigError


@dataclass(frozen=True)
class Laws(Suite):
    """`only`: a subset of the rows; None: all rows."""

    measures_time: ClassVar[bool] = False

    name: str = "laws"
    about: str = "token ids equal transformers' generate and plain decoding; exit status 1 if not"
    defaults: Settings = Settings(prompts=60, tokens=64, repeats=1, dtypes=("float32",))
    only: tuple[LawRow, ...] | None = None

    @property
    def rows(self) -> tuple[LawRow, ...]:
        return law_rows() if self.only is None else self.only

    def check(self, settings: Settings) -> None:
        """Raises ConfigError for another dtype than float32: in bfloat16 ids need not be equal."""
        if settings.dtypes != ("float32",):
            raise ConfigError.of(
                "dtype",
                " ".join(settings.dtypes),
                "float32: in bfloat16 rounding decides near ties",
            )

    def measure(self, context: Context) -> None:
        pin_arithmetic()
        rows = [row for row in self.rows if row.is_compared and not context.results.has(**row.key)]
        if not rows:
            return
        temperatures = sorted({row.temperature for row in rows})
        with closing(Engine(context.load(context.settings.dtypes[0]))) as engine:
            references = {t: self._reference(context, engine, t) for t in temperatures}
        todo = [(row, references[row.temperature]) for row in rows]
        for number, ((row, _), sample) in enumerate(measure_rows(context, check_row, todo), 1):
            context.results.add(sample)
            wrong = sum(prompt["diverged_at"] is not None for prompt in sample["prompts"])
            context.say(f"{number} of {len(todo)}: {_row_text(row)}: {wrong} diverged")

    def report(self, context: Context) -> Report:
        return report_of(context, self.rows, self.reference_name(context, 0.0))

    def transformers_llm(self) -> TransformersLlm:
        return TransformersLlm("float32")

    def reference_name(self, context: Context, temperature: float) -> str:
        return GENERATE if temperature == 0 else PLAIN

    def _reference(self, context: Context, engine: Engine, temperature: float) -> Reference:
        name = self.reference_name(context, temperature)
        if not context.results.has(reference=name, temperature=temperature):
            context.say(f"reference: {name}")
            reference_cases = cases(context.settings, context.prompts, temperature)
            if name == PLAIN:
                config = SpeculationConfig.preset("autoregressive", temperature)
                ids = [outcome["token_ids"] for outcome in decode(engine, reference_cases, config)]
            else:
                llm = self.transformers_llm()
                ids = [
                    llm.generate(llm.prompt_ids(one.prompt), one.tokens) for one in reference_cases
                ]
            reference = [
                {"id": case.prompt.id, "seed": case.seed, "token_ids": each}
                for case, each in zip(reference_cases, ids, strict=True)
            ]
            context.results.add({"reference": name, "temperature": temperature, "found": reference})
        sample = next(context.results.where(reference=name, temperature=temperature))
        return {(each["id"], each["seed"]): each["token_ids"] for each in sample["found"]}


def _row_text(row: LawRow) -> str:
    config = row.speculation
    live = "alone" if row.together == 1 else f"{row.together} live"
    return (
        f"{row.name}, T={row.temperature:g}, {config.draft}, {config.verify}, "
        f"{'+'.join(config.drafters) or 'no drafters'}, {config.expansion}, {live}"
    )
