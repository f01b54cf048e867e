"""Who competes in the `length` suite: `best` with every length policy, and nothing else changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from core.config import SpeculationConfig

__all__ = ["FIXED", "GOODPUT", "PLAIN", "POLICIES", "contestants", "fixed", "hopeless_contestants"]

LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8)
GOODPUT = "goodput"
POLICIES = (GOODPUT, "trend", "confidence")
# As many as `goodput` may ever spend. A budget of its own would choose the length by another name:
# it cuts depth first.
NODES = 64
# `trend` moves by one step in sixteen rounds, so it may begin where `goodput` does.
TREND_STARTS = 4


def fixed(length: int) -> str:
    """A fixed length's name."""
    return f"fixed {length}"


FIXED = tuple(fixed(length) for length in LENGTHS)
PLAIN = fixed(0)


def contestants() -> Mapping[str, SpeculationConfig]:
    """All of them, plain decoding (a fixed length of 0) first."""
    shared = dataclasses.replace(
        SpeculationConfig.preset("best"), pipeline="off", max_tree_nodes=NODES
    )
    fixed_lengths = {
        fixed(length): dataclasses.replace(shared, length="fixed", speculation_length=length)
        for length in LENGTHS
    }
    policies = {name: dataclasses.replace(shared, length=name) for name in POLICIES}
    policies["trend"] = dataclasses.replace(policies["trend"], speculation_length=TREND_STARTS)
    return {**fixed_lengths, **policies}


def hopeless_contestants() -> Mapping[str, SpeculationConfig]:
    """Plain decoding, and `goodput` with the one SSM there is and nothing beside it."""
    every = contestants()
    return {name: dataclasses.replace(every[name], drafters=("all",)) for name in (PLAIN, GOODPUT)}
