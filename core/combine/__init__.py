"""Drafts to one TokenTree, by a rule chosen by name."""

from __future__ import annotations

from collections.abc import Mapping

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
from core.drafters.base import Draft
from core.mechanisms import combine_rule, implementation_of

__all__ = [
    "Ballot",
    "CombinedTree",
    "Combiner",
    "Keep",
    "Merged",
    "Selection",
    "combine",
    "merged",
]


def combine(
    rule: str, drafts: Mapping[int, Draft], ballot: Ballot | None = None, keep: Keep | None = None
) -> CombinedTree:
    """The tree that the named rule makes of drafts, by drafter index in drafter order."""
    whole = merged(drafts)
    combiner: Combiner = implementation_of(combine_rule(rule).implementation)
    return select(whole, combiner(whole, ballot or Ballot()), keep)
