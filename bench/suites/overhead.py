"""`overhead`: what a round costs outside the models' passes, in all, per tree node, and as a share
of it; with `--grown` of grown models too.

A round runs from one RoundCompleted to the next; the time in passes, of LLM and SSMs, by feeds and
by queries, is taken off. What is left is split by the round's spans. The large vocabulary has
synthetic logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.clocked import Clock, clocked
from bench.context import Context, Report
from bench.interleave import interleaved
from bench.machine import load_average
from bench.ours import Case, request
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites.cpu_grown import grown_models
from bench.suites.overhead_tables import GROWN, STAGES, tables
from bench.synthetic import synthetic_family
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events import Combined, RoundCompleted
from core.models.loading.load import LoadedModels
from lab.order import Block, blocks

__all__ = ["Overhead"]

BUNDLED_FAMILY, LARGE = "bundled", "synthetic, 152 k"
LARGE_VOCABULARY = 152_000
TEMPERATURES = (0.0, 0.8)
CHAIN = (1,) * 8


def overhead_configs() -> Mapping[str, SpeculationConfig]:
    """Trees of all sizes by the same number of draft steps, and none."""

    def tree(width: int, drafter: str = "all") -> SpeculationConfig:
        shape = (width, *CHAIN[1:])
        return SpeculationConfig(drafters=(drafter,), expansion=shape, max_tree_nodes="uncut")

    return {
        "plain": SpeculationConfig.preset("autoregressive"),
        "one SSM, chain of 8": tree(1, "first"),
        **{f"all SSMs, width {width}": tree(width) for width in (1, 2, 3, 5)},
    }


@dataclass(frozen=True)
class Overhead:
    """See Suite."""

    name: str = "overhead"
    about: str = "milliseconds of a round outside model passes, and microseconds per tree node"
    defaults: Settings = Settings(prompts=4, tokens=64, repeats=3, dtypes=("float32",))
    families: tuple[str, ...] = (BUNDLED_FAMILY, LARGE)

    def check(self, settings: Settings) -> None:
        """One dtype at a time: the tables have no column for it."""
        settings.alone()
        if len(settings.dtypes) != 1:
            raise ConfigError.of("dtype", " ".join(settings.dtypes), "one dtype a run")

    def measure(self, context: Context) -> None:
        grown = () if context.grown is None else (GROWN,)
        for family in (*self.families, *grown):
            todo = {t: missing(context, family, t) for t in TEMPERATURES}
            if not any(todo.values()):
                continue
            clock = Clock()
            models = _models(context, family)
            with clocked(models, clock):
                engine = Engine(models)
                for temperature, left in todo.items():
                    _measured(context, Rounds(engine, clock, context, temperature), family, left)

    def report(self, context: Context) -> Report:
        return Report(tables(context.results, (*self.families, GROWN), TEMPERATURES))


def _models(context: Context, family: str) -> LoadedModels:
    dtype = context.settings.dtypes[0]
    if family == GROWN:
        return grown_models(context, dtype)
    models = context.load(dtype)
    return synthetic_family(models, LARGE_VOCABULARY) if family == LARGE else models


def missing(context: Context, family: str, temperature: float) -> list[Block]:
    """Blocks that are not in the results."""
    every = blocks([prompt.id for prompt in context.prompts], context.settings.repeats)
    return [b for b in every if not context.results.has(**_key(family, temperature, b))]


def _key(family: str, temperature: float, block: Block) -> dict[str, Any]:
    return {
        "family": family,
        "temperature": temperature,
        "prompt": block.item,
        "repeat": block.repeat,
    }


def _measured(context: Context, rounds: Rounds, family: str, todo: list[Block]) -> None:
    contestants = {
        name: partial(rounds.measure, config) for name, config in overhead_configs().items()
    }
    for run in contestants.values():
        if todo:
            run(todo[0])  # what the first call sets up is no round's cost
    for block, found in interleaved(todo, contestants):
        key = _key(family, rounds.temperature, block)
        context.results.add({**key, "load": load_average(), "rounds": found})
        context.say(f"{family}, T={rounds.temperature:g}: {block.item}, repeat {block.repeat}")


class Rounds:
    """Runs a configuration and gives a list for each of its rounds but the first, which has the
    prefill: [nodes, milliseconds outside passes, then those of each of STAGES, and of the round].
    """

    def __init__(self, engine: Engine, clock: Clock, context: Context, temperature: float) -> None:
        self._engine = engine
        self._clock = clock
        self._tokens = context.settings.tokens
        self._prompts: dict[str, Prompt] = {p.id: p for p in context.prompts}
        self.temperature = temperature

    def measure(self, config: SpeculationConfig, block: Block) -> list[list[float]]:
        return [[round(x, 4) for x in one] for one in self._rounds(config, block)]

    def _rounds(self, config: SpeculationConfig, block: Block) -> Iterator[list[float]]:
        prompt = self._prompts[block.item]
        case = Case(
            prompt, prompt.seed(block.repeat), self._tokens, self.temperature, ignore_eos=True
        )
        nodes, before = 0, 0.0
        for event in self._engine.generate(request(case, config)):
            if isinstance(event, Combined):
                nodes = len(event.token_ids)
            elif isinstance(event, RoundCompleted):
                passes = self._clock.take()
                if event.round:
                    yield [float(nodes), *_outside(event, event.at_ms - before, passes)]
                before = event.at_ms


def _outside(event: RoundCompleted, wall: float, passes: Mapping[str, float]) -> list[float]:
    """Milliseconds outside passes, in all and by stage, and of the whole round; `events` is what no
    span covers."""
    spent = dict.fromkeys(STAGES, 0.0)
    for span in event.spans:
        stage = span.lane if span.lane in STAGES else "draft"
        spent[stage] += span.ms
    spent["events"] = wall - sum(spent.values())
    spent["draft"] -= passes["ssm"]
    spent["llm"] -= passes["llm"]
    return [wall - sum(passes.values()), *spent.values(), wall]
