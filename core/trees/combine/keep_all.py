"""The combine rules that select all drafted nodes."""

from __future__ import annotations

from core.trees.combine.base import MergedTree, Selection, VoteWeights

__all__ = ["log_pool", "union"]


def union(trie: MergedTree, vote_weights: VoteWeights) -> Selection:
    """All drafted nodes, without weights (SpecInfer, arXiv 2305.09781, section 3)."""
    return Selection(tuple(range(len(trie.tree))))


def log_pool(trie: MergedTree, vote_weights: VoteWeights) -> Selection:
    """All drafted nodes.

    A node's weight is prod score_i^(w_i / sum w), the weighted geometric mean of its cumulative
    scores from the drafters that proposed it.
    """
    node_weights = []
    for node in range(len(trie.tree)):
        weights = {drafter: vote_weights.weights[drafter] for drafter in trie.drafters(node)}
        total, node_weight = sum(weights.values()), 1.0
        for drafter, weight in weights.items():
            # The total is positive, since every drafter's weight is.
            node_weight *= trie.cumulative_score(node, drafter) ** (weight / total)
        node_weights.append(node_weight)
    return Selection(tuple(range(len(trie.tree))), tuple(node_weights))
