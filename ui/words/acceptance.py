"""The page's word for the share of a draft that was accepted (`draft_acceptance_rate`).

It is of the drafts' depths, not of their nodes: a pass accepts at most one branch of a tree, so of
a wide tree that is accepted whole only a part of the nodes is. The scripts have the same word.
"""

from __future__ import annotations

__all__ = ["ACCEPTED_OF_DEPTH"]

ACCEPTED_OF_DEPTH = "accepted of depth"
