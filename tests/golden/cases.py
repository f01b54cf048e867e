"""The runs whose events are in `runs/`.

This file lists the rules by name, so that a new rule needs no new recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError

__all__ = ["CASES", "GoldenCase"]

COMBINES = ("union", "vote", "vote_tree", "log_pool")
DRAFTS = (
    *("topk", "coupled", "sampled", "sampled_iid"),
    *("best_first", "fused", "fused_credit"),
)
LENGTHS = ("fixed", "trend", "goodput", "confidence")
PIPELINES = ("off", "across", "ahead", "auto")
ROUTINGS = ("cosine", "credit")
PRESETS = (
    *("autoregressive", "sequence", "specinfer", "specinfer-paper"),
    *("minions", "cosine", "best"),
)
TEMPERATURES = (0.0, 0.8)
WORDS = ("w1 w2 w3", "w4 w2 w6 w1 w4 w2", "w7 w0")
TEXTS = ("The old lighthouse keeper looked at the sea and", "def fibonacci(n):\n")
# specinfer-paper drafts an SSM's third choice. After "def fibonacci" the order of the third and the
# fourth choice depends on the processor.
PAPER_TEXTS = (TEXTS[0], "def add(a, b):\n")
NODES = 24


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """`models`: `tables` or `bundled`. `one_by_one`: whether each request waits for the end of the
    one before. `cancel_after`: the number of rounds after which a request is cancelled; 0: never.
    `fails`: a model, and the numbers of its failing passes, counted from 1."""

    name: str
    models: str
    requests: tuple[Request, ...]
    eos_ids: tuple[int, ...] = ()
    one_by_one: bool = False
    schedule: str = "each"
    cancel_after: int = 0
    fails: tuple[str, tuple[int, ...]] = ("", ())


def _requests(
    prompts: tuple[str, ...],
    speculation: SpeculationConfig,
    temperature: float,
    tokens: int,
    **sampling: Any,
) -> tuple[Request, ...]:
    params = SamplingParams(tokens, temperature=temperature, seed=11, **sampling)
    return tuple(Request(prompt, params, speculation) for prompt in prompts)


def _settings() -> Mapping[str, SpeculationConfig]:
    """Without the presets, which depend on the temperature."""
    base = SpeculationConfig(expansion=(2, 1, 2), speculation_length=4, max_tree_nodes=NODES)
    with_lookup = replace(base, drafters=("all", "ngram"))
    changes = {f"combine-{name}": replace(with_lookup, combine=name) for name in COMBINES}
    changes |= {f"draft-{name}": replace(base, draft=name) for name in DRAFTS}
    changes |= {f"length-{name}": replace(base, length=name) for name in LENGTHS}
    changes |= {f"pipeline-{name}": replace(base, pipeline=name) for name in PIPELINES}
    for combine in COMBINES[1:]:
        changes[f"paper-{combine}"] = replace(base, combine=combine, weights="paper")
        changes[f"goodput-{combine}"] = replace(base, combine=combine, length="goodput")
    changes["traversal"] = replace(base, draft="sampled", verify="traversal")
    changes["iid-mss"] = replace(base, draft="sampled_iid", verify="mss")
    changes["auto-nodes"] = replace(base, max_tree_nodes="auto")
    changes["top-k"] = replace(base, record_top_k=3)
    for routing in ROUTINGS:
        changes[f"routing-{routing}"] = replace(base, routing=routing, routed_drafters=1)
    return changes


def _cases() -> list[GoldenCase]:
    cases = []
    for temperature in TEMPERATURES:
        at = f"T{temperature:g}"
        presets = {name: SpeculationConfig.preset(name, temperature) for name in PRESETS}
        for name, config in {
            **_settings(),
            **{f"preset-{n}": c for n, c in presets.items()},
        }.items():
            try:
                config.resolve(temperature)
            except ConfigError:
                continue  # at temperature 0 no drafts are sampled
            long = config.length in ("trend", "goodput")
            tokens, prompts = (48, WORDS[:2]) if long else (16, WORDS)
            if name in ("length-trend", "length-goodput"):
                tokens = 110  # `trend` decides after 16 verifications
            cases.append(
                GoldenCase(
                    f"{name}-{at}", "tables", _requests(prompts, config, temperature, tokens)
                )
            )
        for name, config in presets.items():
            timeless = replace(config, length="fixed", record_top_k=0)
            if config.max_tree_nodes == "auto":
                timeless = replace(timeless, max_tree_nodes=NODES)
            texts = PAPER_TEXTS if name == "specinfer-paper" else TEXTS
            requests = _requests(texts, timeless, temperature, 12)
            cases.append(GoldenCase(f"bundled-{name}-{at}", "bundled", requests))
        cases += _endings(temperature)
        cases += _seldom(temperature)
    return cases


def _endings(temperature: float) -> list[GoldenCase]:
    at, cases = f"T{temperature:g}", []
    base = SpeculationConfig(expansion=(2, 1, 2), speculation_length=4, max_tree_nodes=NODES)
    settings = {
        "topk": base,
        "vote": replace(base, combine="vote"),
        "ahead": replace(base, pipeline="ahead"),
        "across": replace(base, pipeline="across"),
        "plain": SpeculationConfig.preset("autoregressive", temperature),
    }
    for name, config in settings.items():
        for kind, eos_ids, sampling in (
            ("stop", (), {"stop": ("w6w0", "w5w1")}),
            ("eos", (6,), {}),
            ("ignored-eos", (6,), {"ignore_eos": True}),
        ):
            requests = _requests(WORDS, config, temperature, 40, **sampling)
            cases.append(GoldenCase(f"{kind}-{name}-{at}", "tables", requests, eos_ids))
    for weights in ("paper", "full_information"):
        config = replace(base, combine="vote", weights=weights, carry_over=True)
        requests = _requests(WORDS, config, temperature, 16)
        cases.append(GoldenCase(f"carried-{weights}-{at}", "tables", requests, one_by_one=True))
    config = replace(SpeculationConfig.preset("specinfer", temperature), max_tree_nodes=NODES)
    requests = _requests(TEXTS, config, temperature, 12, stop=(" afraid", "anges"))
    cases.append(GoldenCase(f"bundled-stop-{at}", "bundled", requests))
    if temperature == 0:
        return cases
    settings |= {
        "sampled": replace(base, draft="sampled"),
        "coupled": replace(base, draft="coupled"),
    }
    settings |= {"traversal": replace(base, draft="sampled", verify="traversal")}
    settings |= {"mss": replace(base, draft="sampled_iid", verify="mss")}
    for name, config in settings.items():
        requests = _requests(WORDS, config, temperature, 24, top_k=5, top_p=0.8)
        cases.append(GoldenCase(f"warped-{name}-{at}", "tables", requests))
    return cases


def _seldom(temperature: float) -> list[GoldenCase]:
    at = f"T{temperature:g}"
    base = SpeculationConfig(expansion=(2, 1, 2), speculation_length=4, max_tree_nodes=NODES)
    routed = replace(base, routing="cosine", routed_drafters=1)
    ahead = replace(base, pipeline="ahead")
    lookups = replace(base, drafters=("all", "suffix", "table"))

    def case(
        name: str,
        config: SpeculationConfig,
        prompts: tuple[str, ...],
        tokens: int,
        **facts: Any,
    ) -> GoldenCase:
        requests = _requests(prompts, config, temperature, tokens)
        return GoldenCase(f"{name}-{at}", "tables", requests, **facts)

    long = " ".join(f"w{i % 7}" for i in range(170))
    penalty = {"repetition_penalty": 1.3} | ({"min_p": 0.1} if temperature else {})
    return [
        case("schedule-shared", base, WORDS[:2], 16, schedule="shared"),
        case("schedule-cosine", routed, WORDS[:2], 16, schedule="cosine"),
        # `pipeline=auto` begins its first trial after 6 rounds.
        case("auto-long", replace(base, pipeline="auto"), WORDS[:1], 110),
        case("auto-across", replace(base, pipeline="auto"), WORDS[:3], 44),
        case("unused-ahead", ahead, WORDS[:2], 24, schedule="shared"),
        case("cancelled", base, WORDS[:2], 40, cancel_after=2),
        case("failed", base, WORDS[:2], 16, fails=("llm", (6, 7))),
        case("failed-prefill", base, WORDS[:2], 16, fails=("llm", (2,))),
        case("lost", routed, WORDS[:1], 24, fails=("ssm-1", (4,))),
        # `table` drafts from the texts of prompts in other folds (`core.drafters.table.fold_of`).
        case("lookups", lookups, ("w1 w2 w3", "w3", "w1"), 16, one_by_one=True),
        case("context", base, (long,), 60),
        GoldenCase(
            f"penalty-{at}", "tables", _requests(WORDS[:2], base, temperature, 16, **penalty)
        ),
    ]


CASES = {case.name: case for case in _cases()}
