"""`fusion`: SSMs that draft one trunk together, at 8 nodes, with and without its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.suites.routing import OPTIONS, per_pass, run_counted
from bench.tables import Row, Table, claims_table, figure, long_rows, ratio, speed
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from lab.order import Block

VOTE_TREE = SpeculationConfig(
    combine="vote_tree", vote_nodes=8, max_tree_nodes=8, draft="best_first"
)
FUSION: Mapping[str, SpeculationConfig] = MappingProxyType(
    {
        "vote_tree": VOTE_TREE,
        "log_pool": SpeculationConfig(combine="log_pool", max_tree_nodes=8, draft="best_first"),
        # The ablations without fusion: the same routing, the same nodes, a tree by votes.
        "vote_tree, routed": replace(VOTE_TREE, routing="cosine"),
        "vote_tree, credit routes 2": replace(VOTE_TREE, routing="credit"),
        # Divides its nodes among the SSMs, so that no draft is deep: no ablation of fusion.
        "union": SpeculationConfig(max_tree_nodes=8),
        "union, routed": SpeculationConfig(max_tree_nodes=8, routing="cosine"),
        "fused, routed (as published)": SpeculationConfig(
            draft="fused", max_tree_nodes=8, routing="cosine"
        ),
        "fused, all (no routing)": SpeculationConfig(draft="fused", max_tree_nodes=8),
        "fused, credit routes 2": SpeculationConfig(
            draft="fused", max_tree_nodes=8, routing="credit"
        ),
        "fused by credit, all": SpeculationConfig(draft="fused_credit", max_tree_nodes=8),
        "fused by credit, credit routes 2": SpeculationConfig(
            draft="fused_credit", max_tree_nodes=8, routing="credit"
        ),
        "fused by credit, all, n-gram": SpeculationConfig(
            draft="fused_credit", max_tree_nodes=8, drafters=("all", "ngram")
        ),
    }
)
TARGETS = MappingProxyType({0.0: 4.5, 0.8: 3.4})


@dataclass(frozen=True)
class Fusion(Suite):
    """See Suite."""

    one_dtype: ClassVar[bool] = True

    name: str = "fusion"
    about: str = "token fusion at 8 nodes: tokens per pass, with and without its parts"
    defaults: Settings = Settings(prompts=60, tokens=64, repeats=1, dtypes=("float32",))
    contestants: tuple[str, ...] = tuple(FUSION)

    def measure(self, context: Context) -> None:
        with closing(Engine(context.load(context.settings.dtypes[0]))) as engine:
            for temperature in TARGETS:
                items = [one.id for one in context.prompts]
                runs = {
                    name: partial(_fusion_run, context, engine, FUSION[name], temperature)
                    for name in self.contestants
                }
                Blocks(context, {"temperature": temperature}, items).measure(runs)

    def report(self, context: Context) -> Report:
        return Report(fusion_tables(context.results))


def _fusion_run(
    context: Context, engine: Engine, config: SpeculationConfig, temperature: float, block: Block
) -> dict[str, Any]:
    case = context.case(block.item, block.repeat, temperature)
    sampling = SamplingParams(context.settings.tokens, temperature, seed=case.seed, ignore_eos=True)
    return run_counted(engine, Request(case.prompt.text, sampling, config))[0]


def fusion_tables(results: Results) -> tuple[str, ...]:
    """Tokens per pass by temperature, and the claims."""
    rows = long_rows(results.samples)
    texts: list[str] = []
    claims: list[list[str]] = []
    for temperature, target in TARGETS.items():
        own = [row for row in rows if row["temperature"] == temperature]
        if not own:
            continue
        columns = {
            "drafts": lambda group: group["contestant"],
            "tokens per pass": lambda group: figure(group.median(per_pass)),
            "against vote_tree": lambda group: ratio(group.ratio(per_pass, contestant="vote_tree")),
            "tokens per second": lambda group: figure(group.median(speed), 0),
        }
        title = f"Fusion at 8 nodes, T = {temperature:g}"
        note = "Medians over prompts; in the claims all tokens over all passes."
        texts.append(str(Table(title, own, ("contestant",), columns, note, OPTIONS)))
        best = [row for row in own if row["contestant"].startswith("fused by credit")]
        groups = {name: [r for r in best if r["contestant"] == name] for name in FUSION}
        means = {n: _tokens_per_pass(group) for n, group in groups.items() if group}
        name = max(means, key=lambda one: means[one])
        short = target - means[name]
        verdict = "reached" if short <= 0 else f"not reached, by {short:.2f}"
        claim = f"T = {temperature:g}: all tokens over all passes, {name}"
        claims.append([claim, f"at least {target:.1f}", f"{means[name]:.2f}", verdict])
    return (*texts, claims_table(claims)) if claims else ()


def _tokens_per_pass(rows: Sequence[Row]) -> float:
    """All tokens over all passes."""
    return float(sum(row["tokens"] for row in rows) / sum(row["rounds"] for row in rows))
