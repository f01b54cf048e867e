"""Drafts to one TokenTree, by a rule chosen by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core.combine.base import (
    Ballot,
    CombinedTree,
    Combiner,
    Keep,
    Merged,
    Selection,
    merged,
    select,
)
from core.combine.union import log_pool, union
from core.combine.vote import vote, vote_tree
from core.drafters.base import Draft

__all__ = [
    "COMBINE_RULES",
    "Ballot",
    "CombinedTree",
    "Combiner",
    "Keep",
    "Merged",
    "Selection",
    "combine",
    "merged",
]

COMBINE_RULES: Mapping[str, Combiner] = MappingProxyType(
    {"union": union, "vote": vote, "vote_tree": vote_tree, "log_pool": log_pool}
)


def combine(
    rule: str, drafts: Mapping[int, Draft], ballot: Ballot | None = None, keep: Keep | None = None
) -> CombinedTree:
    """The tree that the named rule makes of drafts, by drafter index in drafter order."""
    whole = merged(drafts)
    return select(whole, COMBINE_RULES[rule](whole, ballot or Ballot()), keep)
