"""The budget of nodes (ALGORITHMS 1): how it is divided among drafters, and how deep it lets a
draft be. All of it is decided before anything is drawn, so that sampled drafts stay lossless.

Knows shapes, names and numbers; no drafter and no tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from core.config import SpeculationConfig
from core.mechanisms import NGRAM, combine_rule, draft_kind

__all__ = ["cut_shape", "longest", "shape_nodes", "shares"]


@lru_cache
def shape_nodes(shape: tuple[int, ...]) -> int:
    """Nodes of a full expansion: k1 + k1 k2 + ..."""
    nodes, width = 0, 1
    for children in shape:
        width *= children
        nodes += width
    return nodes


@lru_cache
def cut_shape(shape: tuple[int, ...], budget: int) -> tuple[int, ...]:
    """The shape cut to at most `budget` nodes: depth first, then width (ALGORITHMS 1)."""
    if budget < 1:
        return ()
    while len(shape) > 1 and shape_nodes(shape) > budget:
        shape = shape[:-1]
    return (min(shape[0], budget),) if len(shape) == 1 else shape


def shares(combine: str, nodes: int, names: Sequence[str]) -> list[int]:
    """What each of the named drafters may draft, so that no more than `nodes` are verified.

    `CombineRule.node_budget`: `each` drafter has it all where the rule selects among drafts. What
    is verified whole is `divided`; the first drafters have what is left over. `pooled`: the SSMs
    draft one tree of as many nodes as all their shares, beside prompt lookup's chain.
    """
    budget = combine_rule(combine).node_budget
    if budget == "each":
        return [nodes] * len(names)
    even, rest = divmod(nodes, len(names)) if names else (0, 0)
    divided = [even + (1 if place < rest else 0) for place in range(len(names))]
    if budget != "pooled":
        return divided
    pool = sum(share for name, share in zip(names, divided, strict=True) if name != NGRAM)
    return [share if name == NGRAM else pool for name, share in zip(names, divided, strict=True)]


def longest(config: SpeculationConfig, names: Sequence[str], length: int) -> int:
    """How deep a draft of `length` steps can be where these drafters draft: as deep as the largest
    of their shares lets it be. 0 where nobody drafts; `length` where nothing is cut."""
    if not names:
        return 0
    if not isinstance(config.max_tree_nodes, int):
        return length
    share = max(shares(config.combine, config.max_tree_nodes, names))
    # Best first spends its nodes by score: at the most one a step.
    if draft_kind(config.draft).by_score:
        return min(length, share)
    return len(cut_shape(config.shape(length), share))
