"""`passes`: milliseconds of one model pass by number of tokens.

`--prompts` and `--tokens` are not used: passes follow a context of CONTEXT tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from bench.contestants import load_module
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.tables import Group, Row, Table, group_rows, long_rows
from bench.timing import time_call
from core.models.hf_model import HfModel
from core.models.loading.catalog import bundled_llm, bundled_ssms
from core.models.loading.load import LoadedModels
from core.models.protocol import Feed, LanguageModel, chain
from core.models.stacking import batched_forward
from lab.order import Block

CONTEXT = 128
PASSES = 15  # a figure is the median of this many passes
Pass = Callable[[int], None]


@dataclass(frozen=True)
class Passes(Suite):
    """`counts`: the numbers of tokens of a pass."""

    name: str = "passes"
    about: str = "milliseconds of a model pass by tokens: lean and general, SSMs apart and together"
    defaults: Settings = Settings(prompts=1, tokens=1, repeats=5, dtypes=("float32",))
    counts: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            blocks = Blocks(context, {"dtype": dtype}, list(map(str, self.counts)), "tokens", "ms")
            if blocks.missing_blocks:
                with ExitStack() as cleanup:
                    passes = contestants(context.load(dtype), cleanup)
                    blocks.measure({name: partial(_median_ms, one) for name, one in passes.items()})

    def report(self, context: Context) -> Report:
        return Report(tables(context.results))


def _median_ms(run_pass: Pass, block: Block) -> float:
    """The median of PASSES measurements, after an uncounted pass that allocates memory."""
    times = []
    for _ in range(PASSES + 1):
        times.append(1000 * time_call(partial(run_pass, int(block.item)))[1])
    return round(statistics.median(times[1:]), 4)


def contestants(models: LoadedModels, cleanup: ExitStack) -> dict[str, Pass]:
    """The passes by name. `cleanup` closes the opened rows."""
    llm, ssms = models.llm, list(models.ssms.values())
    count = sum(ssm.info.parameters for ssm in ssms)
    return {
        "reading its weights": _memory_read(llm.info.parameters, llm),
        "LLM": _one_by_one([llm], cleanup),
        "LLM, general path": _one_by_one([_general(llm, bundled_llm())], cleanup),
        "reading their weights": _memory_read(count, ssms[0]),
        "SSM": _one_by_one(ssms[:1], cleanup),
        "SSM, general path": _one_by_one([_general(ssms[0], bundled_ssms()[0])], cleanup),
        f"{len(ssms)} SSMs, one after another": _one_by_one(ssms, cleanup),
        f"{len(ssms)} SSMs, together": _one_batch(ssms, cleanup),
    }


def _general(model: LanguageModel, folder: Path) -> HfModel:
    """The same model in transformers' own module."""
    assert isinstance(model, HfModel)
    return HfModel(load_module(folder, model.dtype), model.info, model.masks)


def _rows(models: Sequence[LanguageModel], cleanup: ExitStack) -> list[int]:
    """An open row of each model, with CONTEXT committed tokens."""
    rows = []
    for model in models:
        row = model.open_row()
        cleanup.callback(model.close_row, row)
        # The time of a pass does not depend on the tokens.
        model.forward([chain(row, [0] * CONTEXT, last_only=True)])
        model.commit(row, range(CONTEXT))
        rows.append(row)
    return rows


def _one_by_one(models: Sequence[LanguageModel], cleanup: ExitStack) -> Pass:
    def forward(batch: Sequence[tuple[LanguageModel, list[Feed]]]) -> None:
        for model, feeds in batch:
            model.forward(feeds)

    return _pass(models, cleanup, forward)


def _one_batch(models: Sequence[LanguageModel], cleanup: ExitStack) -> Pass:
    def forward(batch: Sequence[tuple[LanguageModel, list[Feed]]]) -> None:
        for result in batched_forward(batch):
            if isinstance(result.logits, BaseException):
                raise result.logits

    return _pass(models, cleanup, forward)


def _pass(
    models: Sequence[LanguageModel], cleanup: ExitStack, forward: Callable[..., None]
) -> Pass:
    rows = _rows(models, cleanup)

    def run_pass(tokens: int) -> None:
        feeds = [[chain(row, range(1, tokens + 1))] for row in rows]
        forward(list(zip(models, feeds, strict=True)))
        for model, row in zip(models, rows, strict=True):
            model.commit(row, [])  # drops the pass's tokens: the next pass has the same context

    return run_pass


def _memory_read(count: int, like: LanguageModel) -> Pass:
    """Sums `count` numbers of `like`'s dtype: the time of reading them from memory."""
    dtype: torch.dtype = getattr(torch, like.info.dtype)
    numbers = torch.ones(count, dtype=dtype)

    def sum_numbers(_: int) -> None:
        numbers.sum()

    return sum_numbers


def tables(results: Results) -> tuple[str, ...]:
    """Milliseconds by number of tokens."""
    rows = long_rows(results.samples, "ms")
    return tuple(_table(group["dtype"], group.rows) for group in group_rows(rows, ("dtype",)))


def _table(dtype: str, rows: Sequence[Row]) -> str:
    counts = sorted({row["tokens"] for row in rows})
    repeats = len({row["repeat"] for row in rows})
    note = (
        f"Medians of {repeats} repeats, each a median of several passes, contestants interleaved; "
        "in brackets against one token. `reading`: a sum over as many numbers as there are weights."
    )
    columns = {f"{n} token{'s' * (n > 1)}": partial(_cell, n, counts[0]) for n in counts}
    first = {"ms of a pass over": lambda group: group["contestant"]}
    return str(Table(f"Passes, {dtype}", rows, ("contestant",), {**first, **columns}, note))


def _cell(tokens: int, first: int, group: Group) -> str:
    if group["contestant"].startswith("reading"):  # the same work for any number of tokens
        return f"{group.middle('value'):.2f}" if tokens == first else ""
    ms, base = (group.of(tokens=n).middle("value") for n in (tokens, first))
    return f"{ms:.2f}" if tokens == first else f"{ms:.2f} ({ms / base:.2f}x)"
