"""The combine rules, found by name."""

from __future__ import annotations

from collections.abc import Mapping

from core.config.mechanisms import combine_rule, implementation_of
from core.trees.combine.base import (
    CombinedTree,
    Combiner,
    KeepNode,
    MergedTree,
    Selection,
    VoteWeights,
    merge_drafts,
    node_chances,
    select,
)
from core.trees.draft import Draft

__all__ = [
    "VoteWeights",
    "CombinedTree",
    "Combiner",
    "KeepNode",
    "MergedTree",
    "Selection",
    "combine",
    "merge_and_select",
    "merge_drafts",
    "node_chances",
    "select",
]


def combine(
    rule: str,
    drafts: Mapping[int, Draft],
    vote_weights: VoteWeights | None = None,
    keep: KeepNode | None = None,
) -> CombinedTree:
    """The named rule's tree. `drafts`: by drafter index, in the run's order of drafters. `keep`:
    see `select`."""
    return select(*merge_and_select(rule, drafts, vote_weights or VoteWeights()), keep)


def merge_and_select(
    rule: str, drafts: Mapping[int, Draft], vote_weights: VoteWeights
) -> tuple[MergedTree, Selection]:
    """The first two arguments of `select`: the trie of all drafts, and the named rule's selection
    of its nodes."""
    # Separate from `select`: in between a schedule may cut the selections of all requests to one
    # budget.
    trie = merge_drafts(drafts)
    combiner: Combiner = implementation_of(combine_rule(rule).implementation)
    return trie, combiner(trie, vote_weights)
