"""`length`: compares the length policy `goodput` with fixed lengths and other policies."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench.contestants import DecodeCase, request, run_events
from bench.context import Context, Report, Suite
from bench.interleave import Blocks, interleave
from bench.machine import load_average
from bench.settings import Settings
from bench.suites.length_tables import contestants, hopeless_contestants, tables
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events import Combined, RoundCompleted
from core.models.loading.load import LoadedModels
from core.models.protocol import Feed
from lab.order import Block


@dataclass(frozen=True)
class Length(Suite):
    """`hopeless_prompts`: the number of prompts for the hopeless SSM."""

    name: str = "length"
    about: str = "goodput against the best fixed length, trend, confidence; a hopeless SSM"
    defaults: Settings = Settings(prompts=16, tokens=128, repeats=1, dtypes=("float32",))
    temperatures: tuple[float, ...] = (0.0, 0.8)
    hopeless_prompts: int = 60

    def check(self, settings: Settings) -> None:
        """Raises ConfigError for fewer than two prompts: the best fixed length for one half of the
        prompts is chosen on the other half."""
        super().check(settings)
        if settings.prompts < 2:
            raise ConfigError.of("prompts", settings.prompts, "at least 2: half choose, half test")

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            items = [prompt.id for prompt in context.prompts]
            key = {"part": "contest", "dtype": dtype}
            todo = [Blocks(context, {**key, "temperature": t}, items) for t in self.temperatures]
            if any(blocks.missing_blocks for blocks in todo):
                engine = Engine(context.load(dtype))
                for blocks in todo:
                    _measure_contest(blocks, engine)
            for repeat in range(context.settings.repeats):
                self._measure_hopeless(context, dtype, repeat)

    def report(self, context: Context) -> Report:
        return Report(tables(context))

    def _measure_hopeless(self, context: Context, dtype: str, repeat: int) -> None:
        """Measures all prompts with one engine, which learns that drafting does not pay."""
        key = {"part": "hopeless", "dtype": dtype, "repeat": repeat}
        if context.results.has(**key):
            return
        engine = Engine(with_hopeless_ssm(context.load(dtype)))
        prompts = context.all_prompts[:: max(1, len(context.all_prompts) // self.hopeless_prompts)]
        todo = [Block(prompt.id, repeat) for prompt in prompts[: self.hopeless_prompts]]
        runs = _runners(context, engine, 0.0, hopeless_contestants())
        blocks = []
        for block, figures in interleave(todo, runs):
            blocks.append({"prompt": block.item, "load": load_average(), "figures": figures})
            context.say(f"hopeless {dtype}: {len(blocks)} of {len(todo)}, repeat {repeat}")
        # One sample: a repeat cannot be continued, since a new engine would learn anew.
        context.results.add({**key, "blocks": blocks})


def _runners(
    context: Context, engine: Engine, temperature: float, configs: Mapping[str, SpeculationConfig]
) -> dict[str, Callable[[Block], dict[str, Any]]]:
    def run(config: SpeculationConfig, block: Block) -> dict[str, Any]:
        return trace_run(engine, context.case(block.item, block.repeat, temperature), config)

    return {name: partial(run, config) for name, config in configs.items()}


def _measure_contest(blocks: Blocks, engine: Engine) -> None:
    context = blocks.context
    runs = _runners(context, engine, blocks.key["temperature"], contestants())
    names = [prompt.id for prompt in context.all_prompts]
    spare = [name for name in names if name not in blocks.items]
    blocks.measure(runs, warm=Block((spare or names)[0], 0))


class Hopeless:
    """`model` with negated logits: its least likely tokens are proposed with high scores. Only
    rejections show that the proposals are useless."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        logits: list[torch.Tensor] = self._model.forward(feeds)
        return [-rows for rows in logits]


def with_hopeless_ssm(models: LoadedModels) -> LoadedModels:
    """The same LLM with one SSM: the first SSM, wrapped in Hopeless."""
    name, model = next(iter(models.ssms.items()))
    ssm: Any = Hopeless(model)
    return dataclasses.replace(models, ssms={name: ssm})


def trace_run(engine: Engine, case: DecodeCase, speculation: SpeculationConfig) -> dict[str, Any]:
    """Numbers of `tokens`, `seconds` (prefill included) and `accepted` tokens; by round, the chosen
    `lengths`, and the `depths` and `nodes` of the verified trees."""
    tokens = accepted = 0
    rounds: dict[str, list[int]] = {"lengths": [], "depths": [], "nodes": []}
    start = time.perf_counter()
    for event in run_events(engine, [request(case, speculation)]):
        if isinstance(event, Combined):
            rounds["depths"].append(max(event.depths, default=0))
            rounds["nodes"].append(len(event.depths))
        elif isinstance(event, RoundCompleted):
            tokens += len(event.token_ids)
            accepted += event.num_accepted
            rounds["lengths"].append(event.speculation_length)
    seconds = time.perf_counter() - start
    return {"tokens": tokens, "seconds": seconds, "accepted": accepted, **rounds}
