"""The node budget: its division among drafters and the depth that it allows.

Everything is decided before anything is drawn, so that sampled drafts stay lossless.

Knows shapes, names and numbers; no drafter and no tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from core.config import SpeculationConfig
from core.config.mechanisms import combine_rule, draft_kind, is_model_free

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
    """The shape with at most `budget` nodes: deepest steps go first, then width."""
    if budget < 1:
        return ()
    while len(shape) > 1 and shape_nodes(shape) > budget:
        shape = shape[:-1]
    return (min(shape[0], budget),) if len(shape) == 1 else shape


def shares(combine: str, nodes: int, names: Sequence[str], draft: str = "auto") -> list[int]:
    """Nodes that each of the named drafters may draft, so that at most `nodes` are verified.

    By `CombineRule.node_budget`: `each` drafter has all of it, since the rule selects among drafts;
    `divided`: equal shares, the remainder to the first drafters; `pooled`: the SSMs draft one tree
    of the sum of their shares, beside the drafts of model-free drafters.
    """
    budget = "pooled" if draft_kind(draft).fused else combine_rule(combine).node_budget
    if budget == "each":
        return [nodes] * len(names)
    # Shares add up to `nodes`: no union of the drafts can be larger.
    even, rest = divmod(nodes, len(names)) if names else (0, 0)
    divided = [even + (1 if place < rest else 0) for place in range(len(names))]
    if budget != "pooled":
        return divided
    pool = sum(share for name, share in zip(names, divided, strict=True) if not is_model_free(name))
    return [
        share if is_model_free(name) else pool for name, share in zip(names, divided, strict=True)
    ]


def longest(config: SpeculationConfig, names: Sequence[str], length: int) -> int:
    """Depth of a draft of `length` steps within the largest share of these drafters; 0 without
    drafters, `length` without a node limit."""
    if not names:
        return 0
    if not isinstance(config.max_tree_nodes, int):
        return length
    # The first drafters have the remainder; the deepest draft is that of the largest share.
    share = max(shares(config.combine, config.max_tree_nodes, names, config.draft))
    # Best first spends its nodes by score: its deepest tree is a chain.
    if draft_kind(config.draft).by_score:
        return min(length, share)
    return len(cut_shape(config.shape(length), share))
