"""Scenes of the pictures: SYNTHETIC values of all of them, each scene with something of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from core.events import Event
from tests.synthetic import MINIONS, Mechanisms, synthetic_run
from tests.together import together
from tests.ui.components.samples import deep_tree, hostile_values, large_tree, values_at
from tests.ui.components.variants import (
    alike,
    alone,
    budgeted,
    chance,
    drawn,
    early,
    never,
    only_line_feeds,
    others,
    over,
    paused,
    peaks,
    split,
    tried,
    unlike,
)
from ui.components import (
    Figures,
    Inspector,
    Legend,
    Lengths,
    Proposals,
    Timeline,
    TokenStrip,
    TokenTree,
)
from ui.run.frame import Baseline

BASELINE = Baseline(41.0, "synthetic-plain", "41 tokens/s plain, measured")
ORDER = {
    "legend": Legend,
    "figures": Figures,
    "strip": TokenStrip,
    "tree": TokenTree,
    "proposals": Proposals,
    "inspector": Inspector,
    "lengths": Lengths,
    "timeline": Timeline,
}


@cache
def values_of(scene: str) -> dict[str, Any]:
    """The values of all pictures in a scene; not to be changed."""
    return scenes()[scene]()


def scenes() -> dict[str, Callable[[], dict[str, Any]]]:
    """Name -> values of all pictures."""
    run = synthetic_run(rounds=30, seed=5)
    voted = minions_run("vote")
    return {
        "verify": lambda: values_at(run, 4, "verify", node=8, baseline=BASELINE),
        "draft": lambda: values_at(run, 4, "draft"),
        "combine": lambda: values_at(run, 4, "combine"),
        "commit": lambda: values_at(run, 4, "commit", node=0),
        "vote": lambda: values_at(voted, 12),
        "lost": lambda: values_at(voted, 12, "combine"),
        "dial": lambda: values_at(minions_run("vote_tree"), 11),
        "pool": lambda: values_at(minions_run("log_pool"), 11),
        "ahead": lambda: values_at(pipelined("ahead"), 4),
        "ahead-end": lambda: values_at(pipelined("ahead"), 19),
        "across": lambda: values_at(pipelined("across"), 4),
        "together": lambda: values_at(together(run), 4),
        "peaks": lambda: peaks(values_at(pipelined("ahead"), 4)),
        "deep": lambda: {**values_at(run), "tree": deep_tree(8)},
        "deeper": lambda: {**values_at(run), "tree": deep_tree(16)},
        "deeper-verify": lambda: {**values_at(run), "tree": {**deep_tree(16), "stage": "verify"}},
        "split": lambda: split(values_at(pipelined("ahead"), 4)),
        "tried": lambda: tried(values_at(pipelined("ahead"), 4)),
        "chance": lambda: chance(values_at(pipelined("ahead"), 4), 7),
        "chance-elsewhere": lambda: chance(values_at(pipelined("ahead"), 4), 2),
        "alike": lambda: alike(values_at(pipelined("ahead"), 4)),
        "alone": lambda: alone(values_at(pipelined("across"), 4)),
        "alone-yet": lambda: alone(values_at(pipelined("across"), 4), ended=False),
        "others": lambda: others(values_at(pipelined("across"), 4)),
        "paused": lambda: paused(values_at(pipelined("ahead"), 4)),
        "begun": lambda: values_at(run[:1]),
        "early": lambda: early(values_at(pipelined("across"), 4)),
        "unlike": lambda: unlike(values_at(pipelined("ahead"), 4)),
        "over": lambda: over(values_at(pipelined("ahead"), 4)),
        "never": lambda: never(values_at(minions_run("log_pool"), 11)),
        "budget": lambda: budgeted(values_at(run, 4, node=0)),
        "drawn": lambda: drawn(values_at(run, 4)),
        "plain": lambda: values_at(synthetic_run(rounds=5, seed=1, drafters=()), 2),
        "feeds": lambda: only_line_feeds(values_at(run, 4)),
        "hostile": hostile_values,
        "large": lambda: {**values_at(run), "tree": large_tree()},
        "empty": lambda: {name: {} for name in ORDER},
    }


def minions_run(combine: str) -> list[Event]:
    """A SYNTHETIC run with every mechanism at once, one of its drafters lost at the end."""
    return synthetic_run(30, seed=5, mechanisms=replace(MINIONS, combine=combine, loses=26))


def pipelined(pipeline: str) -> list[Event]:
    """A SYNTHETIC run of trees, drafted while the LLM verifies."""
    uses = Mechanisms("union", "goodput" if pipeline == "ahead" else "fixed", pipeline)
    return synthetic_run(20, seed=5, mechanisms=uses)
