"""`pipeline`: pipelined against serial decoding, for one request and for eight.

Contestants interleaved block by block; a block is one prompt, or one group of prompts, once with
each pipelining. The clock runs from the prompts to the last token, prefills included.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.context import Context, Report
from bench.interleave import interleaved
from bench.machine import load_average
from bench.ours import Case
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites.pipeline_rows import Row, pipeline_rows
from bench.suites.pipeline_tables import failures, tables
from bench.watched import watched
from core.config import SpeculationConfig
from core.engine import Engine
from lab.order import Block, blocks

__all__ = ["Pipeline", "groups"]

WARMING = 8  # tokens


@dataclass(frozen=True)
class Pipeline:
    """See Suite. `only` can be fewer rows, for a quick look; None: all of them."""

    name: str = "pipeline"
    about: str = "pipelined against serial decoding, one request and eight; hits, saved, wasted"
    defaults: Settings = Settings(prompts=24, tokens=64, repeats=1, dtypes=("float32",))
    only: tuple[Row, ...] | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        return pipeline_rows() if self.only is None else self.only

    def check(self, settings: Settings) -> None:
        """Any settings of one process will do."""
        settings.alone()

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            if any(_missing(context, dtype, row) for row in self.rows):
                with closing(Engine(context.load(dtype))) as engine:
                    for row in self.rows:
                        _measured(context, engine, dtype, row)

    def report(self, context: Context) -> Report:
        return Report(tables(context, self.rows), failures(context, self.rows))


def groups(prompts: tuple[Prompt, ...], live: int) -> dict[str, tuple[Prompt, ...]]:
    """`live` prompts a group, of all domains, by name; too few are taken again."""
    count = max(1, len(prompts) // live)
    every = [[prompts[(g + i * count) % len(prompts)] for i in range(live)] for g in range(count)]
    return {"+".join(dict.fromkeys(p.id for p in group)): tuple(group) for group in every}


def _missing(context: Context, dtype: str, row: Row) -> list[Block]:
    """Blocks that are not in the results."""
    every = blocks(list(groups(context.prompts, row.live)), context.settings.repeats)
    return [b for b in every if not context.results.has(**_key(dtype, row, b))]


def _key(dtype: str, row: Row, block: Block) -> dict[str, Any]:
    return {"dtype": dtype, **row.key, "prompt": block.item, "repeat": block.repeat}


def _measured(context: Context, engine: Engine, dtype: str, row: Row) -> None:
    """The blocks, after one short round that is not counted."""
    todo = _missing(context, dtype, row)
    asked = groups(context.prompts, row.live)

    def run(config: SpeculationConfig, tokens: int, block: Block) -> dict[str, Any]:
        heat = row.temperature
        cases = [Case(p, p.seed(block.repeat), tokens, heat) for p in asked[block.item]]
        return watched(engine, cases, config)

    for config in row.contestants.values() if todo else ():
        run(config, min(WARMING, context.settings.tokens), todo[0])
    tokens = context.settings.tokens
    runs = {name: partial(run, config, tokens) for name, config in row.contestants.items()}
    for number, (block, figures) in enumerate(interleaved(todo, runs), start=1):
        sample = {**_key(dtype, row, block), "load": load_average(), "figures": figures}
        context.results.add(sample)
        context.say(f"{dtype}, {row}: {number} of {len(todo)}")
