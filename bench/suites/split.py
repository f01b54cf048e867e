"""`split`: compares passes of an LLM that is divided over ranks with passes in one process. With
`--grown`, an enlarged LLM of 0.43 B parameters is measured too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.suites.grown import GROWN, llm_folders
from bench.tables import Group, Row, Table, claim_row, claims_table, figure, group_rows, long_rows
from bench.tables import ratio as ratio_cell
from lab.order import Block

__all__ = ["SplitSuite", "tables"]

GROWN_PARAMS = 430_000_000
ONE = "one process"
# TARGET: the speed-up that the enlarged LLM must reach with tp=2, in passes over TREE tokens.
TARGET, TREE = 1.4, 16


@dataclass(frozen=True)
class SplitSuite(Suite):
    """`widths`: the numbers of tokens of a pass."""

    name: str = "split"
    about: str = "passes of an LLM over ranks (tp 2, pp 2) against one process"
    defaults: Settings = Settings(prompts=1, tokens=1, repeats=5, dtypes=("float32", "bfloat16"))
    widths: tuple[int, ...] = (1, TREE)

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            for name, folder in llm_folders(context, dtype, GROWN_PARAMS).items():
                key = {"model": name, "dtype": dtype}
                blocks = Blocks(context, key, list(map(str, self.widths)), "tokens", "passes")
                if blocks.missing_blocks:
                    with ExitStack() as cleanup:
                        context.say(f"{name}, {dtype}: loading every contestant")
                        workers = {
                            title: cleanup.enter_context(_Worker(folder, dtype, *arguments))
                            for title, arguments in contestants().items()
                        }
                        runs = {title: one.measure for title, one in workers.items()}
                        blocks.measure(runs)

    def report(self, context: Context) -> Report:
        return Report(tables(context.results))


def contestants() -> dict[str, tuple[str, int]]:
    """By title: ranks (`-`: one process) and threads per process."""
    cores = os.cpu_count() or 1
    each = max(1, cores // 2)
    return {
        ONE: ("-", max(1, cores - 1)),  # the default of `core.models.machine.use_threads`
        **({f"{ONE}, all cores": ("-", cores)} if cores > 1 else {}),
        "tp=2": ("tp=2", each),
        "pp=2": ("pp=2", each),
    }


class _Worker:
    def __init__(self, folder: Path, dtype: str, ranks: str, threads: int) -> None:
        command = [sys.executable, "-m", "bench.split_worker", str(folder), dtype, ranks]
        self._process = subprocess.Popen(
            [*command, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )

    def __enter__(self) -> _Worker:
        self._read_line()  # written once the LLM is loaded
        return self

    def measure(self, block: Block) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{block.item}\n")
        self._process.stdin.flush()
        return self._read_line()

    def _read_line(self) -> dict[str, float]:
        assert self._process.stdout is not None
        # `readline` returns an empty string if the process has ended.
        figures: dict[str, float] = json.loads(self._process.stdout.readline() or "null")
        if figures is None:
            raise RuntimeError(f"a contestant has ended with {self._process.wait()}")
        return figures

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


# -- tables --


def tables(results: Results) -> tuple[str, ...]:
    """A table for each LLM and dtype; the claim about TARGET, if the enlarged LLM was measured."""
    keys = dict.fromkeys((s["model"], s["dtype"]) for s in results.samples)
    texts = [
        _table(key, [s for s in results.samples if (s["model"], s["dtype"]) == key]) for key in keys
    ]
    claimed = [s for s in results.samples if (s["model"], s["dtype"]) == (GROWN, "float32")]
    return (*texts, *([_claims(claimed)] if claimed else []))


OPTIONS: dict[str, Any] = {"block": ("tokens", "repeat"), "over": "repeat"}


def _table(key: tuple[str, str], samples: Sequence[Row]) -> str:
    rows = long_rows(samples, "passes")
    columns: dict[str, Callable[[Group], object]] = {"LLM in": lambda group: group["contestant"]}
    for n in sorted({row["tokens"] for row in rows}):
        title = f"{n} token{'s' * (n > 1)}"
        columns[f"{title}, ms"] = partial(_milliseconds, n)
        columns[f"{title}, speed / one process"] = partial(_speed_up, n)
        columns[f"{title}, ms exchanging"] = partial(_exchange_time, n)
    note = (
        "Medians over repeats, contestants interleaved, ratios within a repeat. Exchanging: of the "
        "rank that was longest in it, waiting for the others included. SpecInfer's paper has no "
        "passes but whole texts with speculation, against other systems: 1.5 to 2.5 times on one "
        "machine, 2.4 to 2.8 over two, on GPUs with models of its own."
    )
    title = "Passes of the {} LLM, {}".format(*key)
    return str(Table(title, rows, ("contestant",), columns, note, OPTIONS))


def _milliseconds(tokens: int, group: Group) -> str:
    return figure(group.of(tokens=tokens).median(lambda row: 1000 * row["value"]), 1)


def _speed_up(tokens: int, group: Group) -> str:
    return ratio_cell(_ratio(group.of(tokens=tokens)))


def _ratio(group: Group) -> Any:
    return group.ratio(lambda row: 1 / row["value"], contestant=ONE)


def _exchange_time(tokens: int, group: Group) -> str:
    return f"{group.of(tokens=tokens).middle('exchanged_ms'):.1f}"


def _claims(samples: Sequence[Row]) -> str:
    rows = [row for row in long_rows(samples, "passes") if row["tokens"] == TREE]
    groups = group_rows(rows, ("contestant",), **OPTIONS)
    by_name: Mapping[str, Group] = {group["contestant"]: group for group in groups}
    what = f"0.43 B, float32, {TREE} tokens: tp=2 / one process"
    return claims_table([claim_row(what, _ratio(by_name["tp=2"]), TARGET)])
