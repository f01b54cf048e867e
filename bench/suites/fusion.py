"""`fusion`: SSMs that draft one chain together (CoSine's token fusion)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.suites.routing import run_counted
from bench.tables import (
    Group,
    Table,
    claim_row,
    claims_table,
    figure,
    long_rows,
    per_pass,
    ratio,
    speed,
)
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from lab.order import Block

FUSION: Mapping[str, SpeculationConfig] = MappingProxyType(
    {
        "vote_tree": SpeculationConfig(
            combine="vote_tree", vote_nodes=8, max_tree_nodes=8, draft="best_first"
        ),
        "log_pool": SpeculationConfig(combine="log_pool", max_tree_nodes=8, draft="best_first"),
        # Like `fused, routed`, but the tree is made by votes.
        "vote_tree, routed": SpeculationConfig(
            combine="vote_tree",
            vote_nodes=8,
            max_tree_nodes=8,
            draft="best_first",
            routing="cosine",
        ),
        "vote_tree, credit routes 2": SpeculationConfig(
            combine="vote_tree",
            vote_nodes=8,
            max_tree_nodes=8,
            draft="best_first",
            routing="credit",
        ),
        # `union` divides its nodes among the SSMs: no draft is deep.
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
# A part of CoSine, a contestant with this part, and a contestant without this part.
ABLATIONS = (
    ("fusion", "fused, routed (as published)", "vote_tree, routed"),
    ("fusion", "fused, credit routes 2", "vote_tree, credit routes 2"),
    ("fusion", "fused, all (no routing)", "vote_tree"),
    ("routing", "fused, routed (as published)", "fused, all (no routing)"),
)
# Tokens per pass to reach, by temperature.
TARGETS = MappingProxyType({0.0: 4.5, 0.8: 3.4})


@dataclass(frozen=True)
class Fusion(Suite):
    """`contestants`: names in FUSION."""

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
    rows = long_rows(results.samples)
    texts: list[str] = []
    claims: list[list[str]] = []
    for temperature, target in TARGETS.items():
        at_temperature = [row for row in rows if row["temperature"] == temperature]
        if not at_temperature:
            continue
        columns: dict[str, Callable[[Group], object]] = {
            "drafts": lambda group: group["contestant"],
            "tokens per pass": lambda group: figure(group.median(per_pass)),
            "against vote_tree": lambda group: ratio(group.ratio(per_pass, contestant="vote_tree")),
            "all tokens over all passes": lambda group: figure(group.tokens_per_pass()),
            "tokens per second": lambda group: figure(group.median(speed), 0),
        }
        title = f"Fusion at 8 nodes, T = {temperature:g}"
        note = "Medians over prompts, except all tokens over all passes: the claims compare these."
        texts.append(str(Table(title, at_temperature, ("contestant",), columns, note)))
        claims += _fusion_claims(f"T = {temperature:g}", Group(at_temperature), target)
    return (*texts, claims_table(claims)) if claims else tuple(texts)


def _fusion_claims(where: str, group: Group, target: float) -> list[list[str]]:
    means = {name: group.of(contestant=name).tokens_per_pass() for name in FUSION}
    values = {n: one.value for n, one in means.items() if one and n.startswith("fused by credit")}
    lines = []
    if values:
        best = max(values, key=lambda name: values[name])
        shortfall = target - values[best]
        verdict = "reached" if shortfall <= 0 else f"not reached, by {shortfall:.2f}"
        lines = [[f"{where}: {best}", f"at least {target:.1f}", f"{values[best]:.2f}", verdict]]
    for part, with_part, without in ABLATIONS:
        gain = group.of(contestant=with_part).tokens_per_pass_ratio(contestant=without)
        claim = f"{where}: {part}: {with_part} / {without}"
        lines += [claim_row(claim, gain, 1.0, above=True)] if gain else []
    return lines
