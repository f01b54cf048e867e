"""`cpu-bundled`: tokens per second on the CPU with the bundled models, by this engine, transformers
and, if installed, llama.cpp. Times include prefill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from bench.contestants import ids_by_round
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.prompts import Prompt, take_round_robin
from bench.settings import Settings
from bench.suites import cpu_tables as cpu
from bench.suites.cpu_tables import ContestantLoader, LoadedContestants, Variant
from bench.timing import time_call
from core.config import PRESETS, SpeculationConfig
from core.config.mechanisms import MODEL_FREE
from core.engine.engine import Engine
from lab.order import Block

SWEEP_PROMPTS = 4
Contestant = Callable[[Block], dict[str, float]]


@dataclass(frozen=True)
class CpuBundled(Suite):
    """`variants`: settings of the other libraries' own speculation; None: all. After a sweep
    over SWEEP_PROMPTS prompts, each family's fastest variant competes. `settings_kept`: the number
    of variants per drafter that remain after the sweep's first prompt; None: all. `alone`: whether
    each drafter is also measured alone, with the preset `best`."""

    name: str = "cpu-bundled"
    about: str = (
        "tokens per second: plain decoding, every preset, transformers and llama.cpp (if there)"
    )
    # One dtype: a sweep of five SSMs takes long.
    defaults: Settings = Settings(prompts=12, tokens=64, repeats=5, dtypes=("float32",))
    temperatures: tuple[float, ...] = (0.0, 0.8)
    variants: tuple[Variant, ...] | None = None
    load_contestants: ContestantLoader = cpu.load_bundled
    settings_kept: int | None = None
    alone: bool = False
    title: str = ""
    note: str = ""

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            contest = CpuContest(self, context, dtype)
            for temperature in self.temperatures:
                if contest.blocks(temperature).missing_blocks:
                    contest.sweep(temperature)
                    contest.run(temperature)

    def report(self, context: Context) -> Report:
        contest_tables = (
            cpu.contest_table(context.results, dtype, temperature, self.title, self.note)
            for dtype in context.settings.dtypes
            for temperature in self.temperatures
        )
        return Report(tuple(filter(None, contest_tables)))


class CpuContest:
    """A contest in one dtype."""

    def __init__(self, suite: CpuBundled, context: Context, dtype: str) -> None:
        self._suite = suite
        self._context = context
        self._dtype = dtype
        # Token ids of this engine's plain decoding, by temperature and block.
        self._plain: dict[tuple[float, Block], list[int]] = {}

    @cached_property
    def _models(self) -> LoadedContestants:
        return self._suite.load_contestants(self._context, self._dtype)

    def blocks(self, temperature: float) -> Blocks:
        """The contest's blocks, without the sweep's."""
        return self._blocks("block", temperature, self._context.prompts)

    def sweep(self, temperature: float) -> None:
        num_kept, prompts = self._suite.settings_kept, self._sweep_prompts()
        sweep_blocks = self._blocks("sweep", temperature, prompts)
        todo = sweep_blocks.missing_blocks
        variants = {str(variant): variant for variant in self._variants() if todo}
        if not variants:
            return
        contestants = {
            name: self._variant(variant, temperature) for name, variant in variants.items()
        }
        self._run_transformers({}, temperature, todo[0])  # warm-up, not counted
        if num_kept is not None:
            self._blocks("sweep", temperature, prompts[:1]).measure(contestants, self._llama_note)
            figures = cpu.sweep_figures(self._context.results, self._dtype, temperature)[0]
            fastest = cpu.fastest_of_each_drafter(variants.values(), figures, num_kept)
            contestants = {str(variant): contestants[str(variant)] for variant in fastest}
        sweep_blocks.measure(contestants, self._llama_note)

    def run(self, temperature: float) -> None:
        """Measures the missing blocks, after an uncounted warm-up block."""
        contestants = dict(self._contestants(temperature))
        warm = Block(self._sweep_prompts()[0].id, 0)
        self.blocks(temperature).measure(contestants, self._llama_note, warm=warm)

    def _contestants(self, temperature: float) -> Iterator[tuple[str, Contestant]]:
        for preset in PRESETS:
            config = SpeculationConfig.preset(preset, temperature)
            for description, engine in self._models.engines.items():
                run_preset = partial(self._run_engine, engine, config, temperature)
                if not config.drafters:
                    yield preset, run_preset
                    break  # the engines differ in their SSMs only; plain decoding uses no SSM
                yield f"{preset}, {description}" if description else preset, run_preset
        if self._suite.alone:
            best = SpeculationConfig.preset("best", temperature)
            engine = next(iter(self._models.engines.values()))
            for drafter in (*MODEL_FREE, *engine.models.drafter_names):
                config = replace(best, drafters=(drafter,))
                yield f"{drafter} alone", partial(self._run_engine, engine, config, temperature)
        yield cpu.GENERATE, partial(self._run_transformers, {}, temperature)
        yield from self._best(cpu.FAMILIES, temperature)
        if self._models.llama is not None:
            yield cpu.LLAMA_PLAIN, partial(self._run_llama, None, temperature)
            yield from self._best(cpu.LLAMA_FAMILIES, temperature)

    def _best(
        self, families: tuple[str, ...], temperature: float
    ) -> Iterator[tuple[str, Contestant]]:
        for family in families:
            best = cpu.best_variant(self._context.results, self._dtype, temperature, family)
            of_family = {str(v): v for v in self._variants() if v.family == family}
            if best in of_family:
                yield family, self._variant(of_family[best], temperature)

    def _run_engine(
        self, engine: Engine, config: SpeculationConfig, temperature: float, block: Block
    ) -> dict[str, float]:
        case = self._context.case(block.item, block.repeat, temperature)
        rounds, seconds = time_call(lambda: ids_by_round(engine, case, config))
        ids = [token_id for token_ids in rounds for token_id in token_ids]
        if not config.drafters:
            self._plain[temperature, block] = ids
        return {"tokens": len(ids), "seconds": seconds, "passes": len(rounds)}

    def _run_transformers(
        self, options: dict[str, Any], temperature: float, block: Block
    ) -> dict[str, float]:
        case = self._context.case(block.item, block.repeat, temperature)
        return self._models.transformers.figures(case, **options)

    def _run_llama(
        self, variant: Variant | None, temperature: float, block: Block
    ) -> dict[str, float]:
        llama = self._models.llama
        assert llama is not None
        case = self._context.case(block.item, block.repeat, temperature)
        ids = self._models.transformers.prompt_ids(case.prompt)
        arguments = (ids, case.tokens, temperature, case.seed)
        drafting = variant.llama_drafting(llama) if variant else None
        token_ids, seconds = time_call(lambda: llama.generate(*arguments, drafting))
        figures: dict[str, float] = {"tokens": len(token_ids), "seconds": seconds}
        # Above temperature 0, llama.cpp draws other random numbers.
        plain = self._plain.get((temperature, block)) if temperature == 0 else None
        if plain is not None:
            figures["same"] = share_of_equal_ids(token_ids, plain)
        return figures

    def _variant(self, variant: Variant, temperature: float) -> Contestant:
        if variant.family in cpu.LLAMA_FAMILIES:
            return partial(self._run_llama, variant, temperature)
        options = variant.options(self._models.transformers, self._models.assistants)
        return partial(self._run_transformers, options, temperature)

    def _variants(self) -> tuple[Variant, ...]:
        if self._suite.variants is not None:
            return self._suite.variants
        llama = self._models.llama
        return cpu.all_variants(self._models.assistants, llama.assistants if llama else None)

    def _sweep_prompts(self) -> tuple[Prompt, ...]:
        # Settings are chosen on prompts outside the contest, if there are any.
        contest_ids = {prompt.id for prompt in self._context.prompts}
        spare = tuple(p for p in self._context.all_prompts if p.id not in contest_ids)
        return take_round_robin(spare or self._context.all_prompts, SWEEP_PROMPTS)

    def _blocks(self, kind: str, temperature: float, prompts: Sequence[Prompt]) -> Blocks:
        key = {"kind": kind, "dtype": self._dtype, "temperature": temperature}
        repeats = 1 if kind == "sweep" else None
        return Blocks(self._context, key, [prompt.id for prompt in prompts], repeats=repeats)

    def _llama_note(self) -> dict[str, str]:
        return {"llama_note": self._models.llama_note}


def share_of_equal_ids(one: list[int], other: list[int]) -> float:
    """The fraction of positions with the same id; 1 for two empty texts."""
    longest = max(len(one), len(other))
    return sum(map(int.__eq__, one, other)) / longest if longest else 1.0
