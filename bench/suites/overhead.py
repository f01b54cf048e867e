"""`overhead`: the cost of a round outside the models' passes.

A round lasts from one RoundCompleted to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from bench.contestants import request, run_events
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.suites.grown import grown_models
from bench.table_model import table_family
from bench.tables import Group, Row, Table, figure, group_rows, table
from bench.timing import PassClock, timing_passes
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import Combined, RoundCompleted
from core.models.loading.load import LoadedModels
from lab.figures import least_squares
from lab.order import Block

BUNDLED_FAMILY, LARGE, GROWN = "bundled", "synthetic, 152 k", "grown"
STAGES = ("draft", "combine", "llm", "verify", "commit", "events")
LARGE_VOCABULARY = 152_000
TEMPERATURES = (0.0, 0.8)
CHAIN = (1,) * 8


def overhead_configs() -> Mapping[str, SpeculationConfig]:
    """Trees of several sizes with the same number of draft steps, and plain decoding."""

    def tree(width: int, drafter: str = "all") -> SpeculationConfig:
        shape = (width, *CHAIN[1:])
        return SpeculationConfig(drafters=(drafter,), expansion=shape, max_tree_nodes="uncut")

    return {
        "plain": SpeculationConfig.preset("autoregressive"),
        "one SSM, chain of 8": tree(1, "first"),
        **{f"all SSMs, width {width}": tree(width) for width in (1, 2, 3, 5)},
    }


@dataclass(frozen=True)
class Overhead(Suite):
    """`families`: the models to measure in addition to grown models."""

    one_dtype: ClassVar[bool] = True

    name: str = "overhead"
    about: str = "milliseconds of a round outside model passes, and microseconds per tree node"
    defaults: Settings = Settings(prompts=4, tokens=64, repeats=3, dtypes=("float32",))
    families: tuple[str, ...] = (BUNDLED_FAMILY, LARGE)

    def measure(self, context: Context) -> None:
        grown = () if context.grown is None else (GROWN,)
        for family in (*self.families, *grown):
            items = [prompt.id for prompt in context.prompts]
            todo = [
                Blocks(context, {"family": family, "temperature": t}, items, figures="rounds")
                for t in TEMPERATURES
            ]
            if any(blocks.missing_blocks for blocks in todo):
                clock, models = PassClock(), _models(context, family)
                with timing_passes(models, clock):
                    engine = Engine(models)
                    for blocks in todo:
                        runs = {
                            name: partial(_round_times, blocks, engine, clock, config)
                            for name, config in overhead_configs().items()
                        }
                        # The first call allocates and compiles.
                        blocks.measure(runs, warm=Block(items[0], 0))

    def report(self, context: Context) -> Report:
        return Report(tables(context.results, (*self.families, GROWN)))


def _models(context: Context, family: str) -> LoadedModels:
    dtype = context.settings.dtypes[0]
    if family == GROWN:
        return grown_models(context, dtype)
    models = context.load(dtype)
    return table_family(models, LARGE_VOCABULARY) if family == LARGE else models


def _round_times(
    blocks: Blocks, engine: Engine, clock: PassClock, config: SpeculationConfig, block: Block
) -> list[list[float]]:
    """By round, the number of nodes and the figures of `_outside`. The first round, which includes
    prefill, is left out."""
    temperature = blocks.key["temperature"]
    case = blocks.context.case(block.item, block.repeat, temperature, ignore_eos=True)
    times, nodes, previous_ms = [], 0, 0.0
    for event in run_events(engine, [request(case, config)]):
        if isinstance(event, Combined):
            nodes = len(event.token_ids)
        elif isinstance(event, RoundCompleted):
            # Also in the first round: `take` restarts the counters.
            passes = clock.take()
            if event.round:
                figures = (float(nodes), *_outside(event, event.at_ms - previous_ms, passes))
                times.append([round(x, 4) for x in figures])
            previous_ms = event.at_ms
    return times


def _outside(event: RoundCompleted, wall: float, passes: Mapping[str, float]) -> list[float]:
    """Milliseconds outside passes: the total, then each of STAGES; then milliseconds of the whole
    round (`wall`)."""
    stage_ms = dict.fromkeys(STAGES, 0.0)
    for span in event.spans:
        # A lane that is not in STAGES has the name of a drafter.
        stage = span.lane if span.lane in STAGES else "draft"
        stage_ms[stage] += span.ms
    # `events`: the time that no span covers.
    stage_ms["events"] = wall - sum(stage_ms.values())
    stage_ms["draft"] -= passes["ssm"]
    stage_ms["llm"] -= passes["llm"]
    return [wall - sum(passes.values()), *stage_ms.values(), wall]


def tables(results: Results, families: Sequence[str]) -> tuple[str, ...]:
    """A table for each family and temperature, then the fitted lines."""
    kinds = [(*kind, _rows(results, *kind)) for kind in itertools.product(families, TEMPERATURES)]
    kinds = [kind for kind in kinds if kind[-1]]
    return (*(_table_of(*each) for each in kinds), *([_fits(kinds)] if kinds else []))


def _rows(results: Results, family: str, temperature: float) -> list[Row]:
    names = ("nodes", "outside", *STAGES, "round")
    return [
        {"contestant": name, "prompt": sample["prompt"], **dict(zip(names, one, strict=True))}
        for sample in results.where(family=family, temperature=temperature)
        for name, rounds in sample["rounds"].items()
        for one in rounds
    ]


def _table_of(family: str, temperature: float, rows: Sequence[Row]) -> str:
    def share(row: Row) -> float:
        return float(row["outside"] / row["round"])

    def stage(name: str, group: Group) -> str:
        return f"{group.middle(name):.2f}"

    columns: Mapping[str, Callable[[Group], object]] = {
        "configuration": lambda group: group["contestant"],
        "rounds": lambda group: len(group.rows),
        "nodes": lambda group: f"{group.middle('nodes'):g}",
        "ms outside passes": lambda group: figure(group.median("outside")),
        "of the round": lambda group: f"{100 * group.middle(share):.1f} %",
        **{name: partial(stage, name) for name in STAGES},
    }
    note = (
        "Medians over rounds, milliseconds, 95 % interval over prompts. `draft` and `llm`: their "
        "spans less the passes in them; `events`: what no span covers."
    )
    if family == GROWN:
        note += " Target: 2 % of a round."
    title = f"Outside model passes: {family}, T = {temperature:g}"
    return str(Table(title, rows, ("contestant",), columns, note))


def _fits(kinds: Sequence[tuple[str, float, Sequence[Row]]]) -> str:
    lines = []
    for family, temperature, rows in kinds:
        groups = group_rows(rows, ("contestant",))
        points = [(group.middle("nodes"), group.middle("outside")) for group in groups]
        round_ms, node_ms = least_squares(points)
        cells = (f"{round_ms:.2f} ms", f"{1000 * node_ms:.0f} us")
        lines.append([family, f"{temperature:g}", *cells])
    heads = ("models", "T", "a round", "a node")
    note = "Least squares through the medians above. Target: 0.8 ms + 15 us per node."
    return table("Cost of a round outside model passes, fitted", heads, lines, note)
