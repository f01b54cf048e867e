"""Scenes: each scene has values of all pictures for one case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from core.events import Event
from tests.synthetic import VOTE_AHEAD, Mechanisms, synthetic_run
from tests.together import share_passes
from tests.ui.components import variants
from tests.ui.components.samples import deep_tree, hostile_values, large_tree, values_at
from ui.components import PICTURES
from ui.run.frame import Baseline

BASELINE = Baseline(41.0, "synthetic-plain", "41 tokens/s plain, measured")
NAMES = ["figures", "strip", "tree", "routing", "proposals", "inspector"]
NAMES += ["lengths", "timeline"]
ORDER = {name: next(one for one in PICTURES if one.name == name) for name in NAMES}


@cache
def values_of(scene: str) -> dict[str, Any]:
    """The values are cached and must not be changed."""
    return scenes()[scene]()


def scenes() -> dict[str, Callable[[], dict[str, Any]]]:
    run, voted = common_run(), minions_run("vote")
    return {
        "verify": lambda: values_at(run, 4, "verify", node=8, baseline=BASELINE),
        "draft": lambda: values_at(run, 4, "draft"),
        "combine": lambda: values_at(run, 4, "combine"),
        "commit": lambda: values_at(run, 4, "commit", node=0),
        "vote": lambda: values_at(voted, 12),
        "lost": lambda: values_at(voted, 12, "combine"),
        "routed": lambda: values_at(routed_run("cosine"), 12, node=1),
        "switched": lambda: variants.with_switch(values_at(routed_run("cosine", loses=20), 12)),
        "regretted": lambda: variants.with_regret(values_at(routed_run("cosine"), 12)),
        "dial": lambda: values_at(minions_run("vote_tree"), 11),
        "pool": lambda: values_at(minions_run("log_pool"), 11),
        "ahead": lambda: values_at(pipelined_run("ahead"), 4),
        "ahead-end": lambda: values_at(pipelined_run("ahead"), 19),
        "across": lambda: values_at(pipelined_run("across"), 4),
        "together": lambda: values_at(share_passes(run), 4),
        "peaks": lambda: variants.peaks(values_at(pipelined_run("ahead"), 4)),
        "deep": lambda: {**values_at(run), "tree": deep_tree(8)},
        "folded": lambda: {**values_at(run), "tree": deep_tree(16)},
        "deeper": lambda: {**values_at(run), "tree": deep_tree(30)},
        "deeper-verify": lambda: {**values_at(run), "tree": {**deep_tree(30), "stage": "verify"}},
        "split": lambda: variants.split(values_at(pipelined_run("ahead"), 4)),
        "tried": lambda: variants.with_trials(values_at(pipelined_run("ahead"), 4)),
        "chance": lambda: variants.chance(values_at(pipelined_run("ahead"), 4), 7),
        "chance-elsewhere": lambda: variants.chance(values_at(pipelined_run("ahead"), 4), 2),
        "alike": lambda: variants.alike(values_at(pipelined_run("ahead"), 4)),
        "alone": lambda: variants.alone(values_at(pipelined_run("across"), 4)),
        "alone-yet": lambda: variants.alone(values_at(pipelined_run("across"), 4), ended=False),
        "others": lambda: variants.others(values_at(pipelined_run("across"), 4)),
        "paused": lambda: variants.with_pauses(values_at(pipelined_run("ahead"), 4)),
        "longer": lambda: variants.longer(values_at(pipelined_run("ahead"), 4)),
        "begun": lambda: values_at(run[:1]),
        "early": lambda: variants.early(values_at(pipelined_run("across"), 4)),
        "unlike": lambda: variants.unlike(values_at(pipelined_run("ahead"), 4)),
        "over": lambda: variants.over(values_at(pipelined_run("ahead"), 4)),
        "never": lambda: variants.never(values_at(minions_run("log_pool"), 11)),
        "budget": lambda: variants.with_budget(values_at(run, 4, node=0)),
        "drawn": lambda: variants.with_drawn_token(values_at(run, 4)),
        "plain": lambda: values_at(synthetic_run(rounds=5, seed=1, drafters=()), 2),
        "one": lambda: values_at(synthetic_run(rounds=1, seed=1, drafters=())),
        "feeds": lambda: variants.only_line_feeds(values_at(run, 4)),
        "hostile": hostile_values,
        "large": lambda: {**values_at(run), "tree": large_tree()},
        "empty": lambda: {name: {} for name in ORDER},
    }


@cache
def common_run() -> list[Event]:
    return synthetic_run(rounds=30, seed=5)


@cache
def minions_run(combine: str) -> list[Event]:
    return synthetic_run(30, seed=5, mechanisms=replace(VOTE_AHEAD, combine=combine, loses=26))


@cache
def routed_run(routing: str, loses: int = -1) -> list[Event]:
    uses = Mechanisms(routing=routing, draft="fused", loses=loses)
    names = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math", "ssm-stories")
    return synthetic_run(30, seed=5, drafters=names, mechanisms=uses)


@cache
def pipelined_run(pipeline: str) -> list[Event]:
    uses = Mechanisms("union", "goodput" if pipeline == "ahead" else "fixed", pipeline)
    return synthetic_run(20, seed=5, mechanisms=uses)
