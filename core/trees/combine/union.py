"""`union`: SpecInfer's merge (Definition 3.2). `log_pool`: the same, of a tree drafted together."""

from __future__ import annotations

from core.trees.combine.base import MergedTree, Selection, VoteWeights

__all__ = ["log_pool", "union"]


def union(whole: MergedTree, ballot: VoteWeights) -> Selection:
    """Everything that was drafted; nothing is weighed or dropped."""
    return Selection(tuple(range(len(whole.tree))))


def log_pool(whole: MergedTree, ballot: VoteWeights) -> Selection:
    """Everything; the drafters weighed in while they drafted one tree together.

    A node's mass is the weighted geometric mean of the chances that its drafters gave it
    (ALGORITHMS 3, `log_pool`): one that failed, or proposes chains of its own, is none of them.
    """
    masses = []
    for node in range(len(whole.tree)):
        weights = {drafter: ballot.weights[drafter] for drafter in whole.drafters(node)}
        total, mass = sum(weights.values()), 1.0
        for drafter, weight in weights.items():
            mass *= whole.chance(node, drafter) ** (weight / total)
        masses.append(mass)
    return Selection(tuple(range(len(whole.tree))), tuple(masses))
