"""`union`: SpecInfer's merge of all drafts (arXiv 2305.09781, section 3)."""

from __future__ import annotations

from core.trees.combine.base import MergedTree, Selection, VoteWeights

__all__ = ["union"]


def union(whole: MergedTree, vote_weights: VoteWeights) -> Selection:
    """All drafted nodes, without weights."""
    return Selection(tuple(range(len(whole.tree))))
