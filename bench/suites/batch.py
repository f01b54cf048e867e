"""`batch`: several live requests share verification passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.contestants import DecodeCase, decode
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.tables import Group, Row, Table, figure, group_rows, long_rows, ratio
from bench.timing import time_call
from core.config import SpeculationConfig
from core.engine.engine import Engine
from lab.order import Block

TEMPERATURES = (0.0, 0.8)
SEED = 1
OTHER_IDS = "T={temperature:g}, {contestant} at a time: other ids"


@dataclass(frozen=True)
class BatchSizes(Suite):
    """`sizes`: the numbers of concurrent requests."""

    name: str = "batch"
    about: str = "total tokens per second of 1 to 16 live requests; each request's ids unchanged"
    defaults: Settings = Settings(prompts=16, tokens=32, repeats=3, dtypes=("float32",))
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    presets: tuple[str, ...] = ("autoregressive", "sequence", "specinfer", "best")

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            todo = [
                Blocks(context, {"dtype": dtype, "temperature": t}, self.presets, "preset")
                for t in TEMPERATURES
            ]
            if any(blocks.missing_blocks for blocks in todo):
                with closing(Engine(context.load(dtype))) as engine:
                    for blocks in todo:
                        self._measure(blocks, engine)

    def _measure(self, blocks: Blocks, engine: Engine) -> None:
        context = blocks.context
        tokens, temperature = context.settings.tokens, blocks.key["temperature"]
        cases = [DecodeCase(prompt, SEED, tokens, temperature, True) for prompt in context.prompts]
        # A warm-up: the KV arena grows, and the engine measures the times of passes.
        for last in blocks.missing_blocks[-1:]:
            _decode_batches(engine, cases, max(self.sizes), last)
        runs = {str(size): partial(_decode_batches, engine, cases, size) for size in self.sizes}
        blocks.measure(runs, keep_row=partial(_against_first, cases))

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))


def _decode_batches(
    engine: Engine, cases: Sequence[DecodeCase], size: int, block: Block
) -> dict[str, Any]:
    config = SpeculationConfig.preset(block.item)
    outcomes, seconds = time_call(lambda: decode(engine, cases, config, together=size))
    ids = [outcome["token_ids"] for outcome in outcomes]
    return {"tokens": sum(map(len, ids)), "seconds": seconds, "ids": ids}


def _against_first(
    cases: Sequence[DecodeCase], by_number: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Replaces each batch size's `ids` by `differ`: the prompts whose ids differ from the first
    batch size's."""
    names = [case.prompt.id for case in cases]
    alone = next(iter(by_number.values()))["ids"]
    for figures in by_number.values():
        pairs = zip(names, alone, figures.pop("ids"), strict=True)
        figures["differ"] = [name for name, one, other in pairs if one != other]
    return by_number


def tables(results: Results) -> tuple[str, ...]:
    texts = []
    for kind in group_rows(long_rows(results.samples), ("dtype", "temperature")):
        title = f"Live requests, {kind['dtype']}, T = {kind['temperature']:g}"
        note = (
            "All requests' new tokens over the time until the last of them ended; {} Requests "
            "whose ids differ from those of a run alone: {}."
        )
        texts.append(totals(title, kind.rows, lambda size: f"{size} at a time", note))
    return tuple(texts)


def failures(results: Results, what: str = OTHER_IDS) -> tuple[str, ...]:
    """One sentence for each measurement in which ids or texts differ."""
    return tuple(
        f"{row['preset']}, {what.format(**row)} than alone for {', '.join(row['differ'])}"
        for row in long_rows(results.samples)
        if row["differ"]
    )


def totals(title: str, rows: Sequence[Row], head: Callable[[str], str], note: str) -> str:
    """Tokens per second by preset and contestant, with ratios to the first contestant. `note`: a
    format string with places for a description of the figures and for the number of differences.
    """
    repeats = len({row["repeat"] for row in rows})
    num_changed = sum(len(row["differ"]) for row in rows)
    note = note.format(f"medians of {repeats} repeats, ratios within repeats.", num_changed)
    sizes = list(dict.fromkeys(row["contestant"] for row in rows))
    columns: Mapping[str, Callable[[Group], object]] = {
        "preset": lambda group: group["preset"],
        **{head(size): partial(_total, size, sizes[0]) for size in sizes},
    }
    options = {"block": ("preset", "repeat"), "over": "repeat"}
    return str(Table(title, rows, ("preset",), columns, note, options))


def _total(size: str, first: str, group: Group) -> str:
    batches = group.of(contestant=size)
    gain = "" if size == first else f", {ratio(batches.ratio(contestant=first))}"
    return f"{figure(batches.median(), 0)}{gain}"
