"""Drafts to one TokenTree, by a rule chosen by name; `union` is SpecInfer's merge (Definition 3.2).

A node keeps every proposal behind it: a token proposed twice is tried twice (ALGORITHMS 2, trap 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.drafters.base import Draft
from core.tree import ROOT, Proposal, TokenTree

__all__ = ["COMBINE_RULES", "CombinedTree", "Combiner", "union"]


@dataclass(frozen=True, slots=True)
class CombinedTree:
    """The tree to verify. `dropped`: (drafter index, node of its draft) left out of it."""

    tree: TokenTree
    dropped: tuple[tuple[int, int], ...] = ()


Combiner = Callable[[Mapping[int, Draft]], CombinedTree]
"""Drafts by drafter index, in drafter order, to a tree."""


def union(drafts: Mapping[int, Draft]) -> CombinedTree:
    """The trie of all drafts' paths; nothing is dropped."""
    token_ids: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    proposals: list[list[Proposal]] = []
    number: dict[tuple[int, int], int] = {}
    for drafter, draft in drafts.items():
        place = {ROOT: ROOT}
        for node, token_id in enumerate(draft.token_ids):
            parent = place[draft.parents[node]]
            key = (parent, token_id)
            if key not in number:
                number[key] = len(token_ids)
                token_ids.append(token_id)
                parents.append(parent)
                depths.append(1 if parent == ROOT else depths[parent] + 1)
                proposals.append([])
            place[node] = number[key]
            proposals[number[key]].append(_proposal(drafter, draft, node))
    tree = TokenTree(
        tuple(token_ids), tuple(parents), tuple(depths), tuple(tuple(p) for p in proposals)
    )
    return CombinedTree(tree)


def _proposal(drafter: int, draft: Draft, node: int) -> Proposal:
    row = draft.rows[draft.parents[node]] if draft.q is not None else None
    return Proposal(drafter, draft.scores[node], draft.ranks[node], draft.qs[node], row)


COMBINE_RULES: Mapping[str, Combiner] = MappingProxyType({"union": union})
