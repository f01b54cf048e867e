"""`batch`: several live requests in one verification pass: total tokens per second by how many, and
whether each request's ids stay what they are alone.

`--prompts` are the requests: the same ones every time, decoded so many at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.context import Context, Report
from bench.interleave import interleaved
from bench.machine import load_average
from bench.ours import Case, decode
from bench.settings import Settings
from bench.suites.batch_tables import failures, tables
from core.config import SpeculationConfig
from core.engine import Engine
from lab.order import Block, blocks

__all__ = ["SIZES", "Batch"]

SIZES = (1, 2, 4, 8, 16)
PRESETS = ("autoregressive", "sequence", "specinfer", "best")
TEMPERATURES = (0.0, 0.8)
SEED = 1


@dataclass(frozen=True)
class Batch:
    """See Suite. `sizes`: how many requests at a time."""

    name: str = "batch"
    about: str = "total tokens per second of 1 to 16 live requests; each request's ids unchanged"
    defaults: Settings = Settings(prompts=16, tokens=32, repeats=3, dtypes=("float32",))
    sizes: tuple[int, ...] = SIZES
    presets: tuple[str, ...] = PRESETS

    def check(self, settings: Settings) -> None:
        """Any settings of one process will do."""
        settings.alone()

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            todo = [
                (temperature, block)
                for temperature in TEMPERATURES
                for block in blocks(self.presets, context.settings.repeats)
                if not context.results.has(**_key(dtype, temperature, block))
            ]
            engine = Engine(context.load(dtype))
            try:
                for temperature in TEMPERATURES if todo else ():
                    left = [block for t, block in todo if t == temperature]
                    self._measured(context, engine, (dtype, temperature), left)
            finally:
                engine.close()

    def _measured(
        self, context: Context, engine: Engine, of: tuple[str, float], todo: Sequence[Block]
    ) -> None:
        dtype, temperature = of
        tokens = context.settings.tokens
        cases = [Case(prompt, SEED, tokens, temperature, True) for prompt in context.prompts]
        runs = {str(size): partial(_decoded, engine, cases, size) for size in self.sizes}
        if todo:  # arenas grow and passes are timed in the first
            _decoded(engine, cases, max(self.sizes), todo[-1])
        for block, found in interleaved(todo, runs):
            alone = found[str(self.sizes[0])]["ids"]
            for figures in found.values():
                ids = figures.pop("ids")
                figures["differ"] = [
                    case.prompt.id
                    for case, one, other in zip(cases, alone, ids, strict=True)
                    if one != other
                ]
            key = _key(dtype, temperature, block)
            context.results.add({**key, "load": load_average(), "figures": found})
            context.say(f"{dtype}, T={temperature:g}: {block.item}, repeat {block.repeat}")

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))


def _key(dtype: str, temperature: float, block: Block) -> dict[str, Any]:
    preset = block.item
    return {"dtype": dtype, "temperature": temperature, "preset": preset, "repeat": block.repeat}


def _decoded(engine: Engine, cases: Sequence[Case], size: int, block: Block) -> dict[str, Any]:
    """All requests, `size` at a time: their tokens, how long it took, their ids."""
    start = time.perf_counter()
    outcomes = decode(engine, cases, SpeculationConfig.preset(block.item), together=size)
    seconds = time.perf_counter() - start
    ids = [outcome["token_ids"] for outcome in outcomes]
    return {"tokens": sum(map(len, ids)), "seconds": seconds, "ids": ids}
