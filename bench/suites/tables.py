"""`tables`: the time of look-ups in joined tables (MicroRec, arXiv 2010.05894), and the tokens per
pass of look-up drafters.

SmolLM2 is measured only if it is on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from bench.contestants import DecodeCase, decode, request
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.prompts import CHAT_PROMPTS, Prompt, load_prompts, take_round_robin
from bench.row_reads import new_memory, row_read_ns
from bench.settings import Settings
from bench.suites.acceptance import distinct_share
from bench.suites.acceptance_rows import MOST_NODES
from bench.suites.routing import run_counted
from bench.suites.table_drafts import draft_figures
from bench.suites.tables_report import (
    BEST,
    EVERYTHING,
    PLAIN,
    SEPARATE,
    SSMS,
    TABLE_TOO,
    lookup_tables,
    times_of,
)
from bench.table_plan import AccessTimes, FeatureTable, plan_tables
from core.config import SpeculationConfig
from core.config.mechanisms import NGRAM, SUFFIX, TABLE
from core.engine.engine import Engine
from core.models.loading.catalog import BUNDLED, SMOLLM2
from core.models.loading.load import LoadedModels, load_models
from core.models.loading.smollm2 import local_smollm2
from lab.figures import median
from lab.order import Block

MB = 1 << 20
# Reads per token, and whether each read waits for the one before.
READS = MappingProxyType(
    {
        "1": (1, False),
        "2": (2, False),
        "4": (4, False),
        "8": (8, False),
        "2 in turn": (2, True),
        "3 in turn": (3, True),
    }
)
# Features, each with the number of its values; None: the vocabulary's size.
FEATURES = (
    *(("last token", None), ("domain", 5), ("token before", None), ("state", 8)),
    *(("third token", None), ("character class", 8), ("copied token", None), ("column", 16)),
)


def _tree(nodes: int, *drafters: str) -> SpeculationConfig:
    return SpeculationConfig(
        drafters, "best_first", max_tree_nodes=nodes, combine="vote_tree", vote_nodes=nodes,
        speculation_length=min(nodes, 16),
    )  # fmt: skip


DRAFTING: Mapping[str, SpeculationConfig] = MappingProxyType(
    {
        PLAIN: SpeculationConfig(drafters=(), speculation_length=0),
        **{
            f"{' + '.join(drafters)}, {size}": _tree(nodes, *drafters)
            for drafters in ((NGRAM,), (SUFFIX,), (TABLE,), (SUFFIX, TABLE))
            for size, nodes in (("8 nodes", 8), ("16 nodes", 16))
        },
        SSMS: _tree(MOST_NODES, "all"),
        EVERYTHING: _tree(MOST_NODES, "all", SUFFIX, TABLE),
    }
)


@dataclass(frozen=True)
class Tables(Suite):
    """`reads`: tokens per measurement; `kilobytes`: total sizes of the tables; `memory`: MB that
    joined tables may take; `features`: numbers of features; `vocabularies`: vocabulary sizes."""

    one_dtype: ClassVar[bool] = True

    name: str = "tables"
    about: str = "look-ups in joined tables; tokens per pass of the drafters that look up"
    defaults: Settings = Settings(prompts=24, tokens=64, repeats=5, dtypes=("float32",))
    reads: int = 500_000
    kilobytes: tuple[int, ...] = (16, 256, 1024, 8192, 65_536, 262_144)
    memory: tuple[int, ...] = (1, 16, 64, 256)
    features: tuple[int, ...] = (2, 4, 8)
    vocabularies: tuple[int, ...] = (4096, 49_152)
    families: tuple[str, ...] = (BUNDLED, SMOLLM2)
    temperatures: tuple[float, ...] = (0.0, 0.8)
    contestants: tuple[str, ...] = tuple(DRAFTING)

    def measure(self, context: Context) -> None:
        memory = new_memory(max(MB * max(self.memory), 1024 * max(self.kilobytes)))
        reads = {name: partial(self._read, memory, *arguments) for name, arguments in READS.items()}
        Blocks(context, {"part": "reads"}, list(map(str, self.kilobytes)), "kb").measure(reads)
        items = [f"{count} of {size}" for size in self.vocabularies for count in self.features]
        most_mb = {SEPARATE: 0, **{f"within {mb} MB": mb for mb in self.memory}}
        look_up = partial(self._look_up, memory, times_of(context.results), {})
        Blocks(context, {"part": "plans"}, items, "features").measure(
            {name: partial(look_up, mb * MB) for name, mb in most_mb.items()}
        )
        for family in self.families:
            if (models_and_prompts := _family(context, family)) is not None:
                self._measure_family(context, family, *models_and_prompts)
        self._measure_rounds(context)

    def report(self, context: Context) -> Report:
        return Report(lookup_tables(context.results))

    def _read(self, memory: np.ndarray, count: int, dependent: bool, block: Block) -> float:
        """Nanoseconds to read a row of each of `count` tables. `block.item`: the tables' total
        KB."""
        # A row of 64 bytes fills a cache line.
        rows = int(block.item) * 1024 // 64 // count
        tables = [FeatureTable((), rows, 64)] * count
        return row_read_ns(memory, tables, self.reads, dependent=dependent)

    def _look_up(
        self,
        memory: np.ndarray,
        times: AccessTimes,
        ns_by_plan: dict[Any, float],
        most_bytes: int,
        block: Block,
    ) -> dict[str, Any]:
        """Plans and times the look-ups of the block's features. Rows have 32 bytes: a row of two
        joined tables fills a cache line."""
        count, vocabulary = map(int, block.item.split(" of "))
        tables = [
            FeatureTable((name,), values or vocabulary, 32) for name, values in FEATURES[:count]
        ]
        plan = plan_tables(tables, times, most_bytes)
        # Equal plans of a block are measured once.
        if (key := (block, plan.tables)) not in ns_by_plan:
            ns_by_plan[key] = row_read_ns(memory, plan.tables, self.reads)
        names = [list(table.names) for table in plan.tables]
        return {"tables": names, "bytes": plan.bytes, "predicted": plan.ns, "ns": ns_by_plan[key]}

    def _measure_family(
        self, context: Context, family: str, models: LoadedModels, prompts: Sequence[Prompt]
    ) -> None:
        for temperature, name in product(self.temperatures, self.contestants):
            key = {
                "part": "passes",
                "family": family,
                "temperature": temperature,
                "contestant": name,
            }
            if not context.results.has(**key):
                tokens = context.settings.tokens
                cases = [
                    DecodeCase(prompt, prompt.seed(), tokens, temperature) for prompt in prompts
                ]
                # A new engine, since drafters learn from the texts of an engine's earlier runs.
                with closing(Engine(models)) as engine:
                    context.results.add({**key, "runs": _runs(engine, cases, name)})
                context.say(f"{family}, T = {temperature:g}, {name}")
        greedy = {"temperature": self.temperatures[0], "contestant": PLAIN}
        plain = next(context.results.where(part="passes", family=family, **greedy))
        texts = [run["token_ids"] for run in plain["runs"]]
        blocks = Blocks(context, {"part": "drafts"}, [family], "family")
        blocks.measure({TABLE: lambda block: draft_figures(models, texts)})

    def _measure_rounds(self, context: Context) -> None:
        best = SpeculationConfig.preset("best")
        configs = {BEST: best, TABLE_TOO: replace(best, drafters=(*best.drafters, TABLE))}
        blocks = Blocks(context, {"part": "rounds"}, [one.id for one in context.prompts])
        if blocks.missing_blocks:
            models = context.load(context.settings.dtypes[0])
            with ExitStack() as stack:
                engines = {n: stack.enter_context(closing(Engine(models))) for n in configs}
                blocks.measure(
                    {n: partial(_round_times, context, engines[n], c) for n, c in configs.items()},
                    warm=blocks.missing_blocks[0],
                )


def _family(context: Context, family: str) -> tuple[LoadedModels, Sequence[Prompt]] | None:
    settings = context.settings
    if family == BUNDLED:
        return context.load(settings.dtypes[0]), context.prompts
    if local_smollm2() is None:
        context.say(f"{family} is not on this machine and left out: `--llm {family}` downloads it")
        return None
    chats = load_prompts(CHAT_PROMPTS, chat=True)
    models = load_models(SMOLLM2, [], settings.dtypes[0], "cpu")
    return models, take_round_robin(chats, settings.prompts)


def _runs(engine: Engine, cases: Sequence[DecodeCase], name: str) -> list[dict[str, Any]]:
    return [
        {
            "id": case.prompt.id,
            "tokens": len(outcome["token_ids"]),
            "rounds": outcome["summary"]["num_rounds"],
            "distinct_4_grams": round(distinct_share(outcome["token_ids"]), 4),
            "token_ids": outcome["token_ids"],
        }
        for case, outcome in zip(cases, decode(engine, cases, DRAFTING[name]), strict=True)
    ]


def _round_times(
    context: Context, engine: Engine, config: SpeculationConfig, block: Block
) -> dict[str, Any]:
    """Adds to the figures of `run_counted`: `ms`, the median milliseconds of a round, and
    `looking`, the share of the time in which `table` drafts. The first round includes prefill and
    is left out if there are others."""
    case = context.case(block.item, block.repeat, 0.0, ignore_eos=True)
    figures, rounds = run_counted(engine, request(case, config))
    ends = [one.at_ms for one in rounds]
    times = [end - before for before, end in zip(ends, ends[1:], strict=False)]
    looking = sum(s.ms for one in rounds[1:] for s in one.spans if s.lane == TABLE)
    return {**figures, "ms": median(times or ends), "looking": looking / (sum(times) or ends[0])}
