"""The node budget: its division among drafters and the depth that it allows.

Both are decided before anything is drawn, so that sampled drafts stay lossless.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul

from core.config import SpeculationConfig
from core.config.mechanisms import combine_rule, draft_kind, is_model_free

__all__ = ["cut_shape", "max_draft_depth", "node_shares", "shape_nodes"]


@lru_cache
def shape_nodes(shape: tuple[int, ...]) -> int:
    """Nodes of a full expansion <k1,...,km>: k1 + k1 k2 + ..."""
    return sum(accumulate(shape, mul))


@lru_cache
def cut_shape(shape: tuple[int, ...], budget: int) -> tuple[int, ...]:
    """The shape, cut to at most `budget` nodes: first the deepest steps are dropped, then the first
    step is narrowed."""
    if budget < 1:
        return ()
    while len(shape) > 1 and shape_nodes(shape) > budget:
        shape = shape[:-1]
    # Even the first step alone may have more children than the budget has nodes.
    return (min(shape[0], budget),) if len(shape) == 1 else shape


def node_shares(combine: str, nodes: int, names: Sequence[str], draft: str = "auto") -> list[int]:
    """The number of nodes that each of the named drafters may draft.

    `CombineRule.node_budget` decides. With `each` every drafter has `nodes`, since the rule selects
    among drafts. With `divided` the shares differ by at most one node, and their sum is `nodes`.
    With `pooled` every SSM has the sum of the SSMs' shares, since they draft one tree together.
    `draft`: a fused kind counts as `pooled`.
    """
    budget = "pooled" if draft_kind(draft).fused else combine_rule(combine).node_budget
    if budget == "each":
        return [nodes] * len(names)
    # Shares add up to `nodes`: no union of the drafts can be larger.
    even, rest = divmod(nodes, len(names)) if names else (0, 0)
    shares = [even + (index < rest) for index in range(len(names))]
    if budget != "pooled":
        return shares
    # Every SSM drafts the same tree, whose nodes count once: each share is the whole pool.
    pool = sum(share for name, share in zip(names, shares, strict=True) if not is_model_free(name))
    return [
        share if is_model_free(name) else pool for name, share in zip(names, shares, strict=True)
    ]


def max_draft_depth(config: SpeculationConfig, names: Sequence[str], length: int) -> int:
    """The largest depth of a draft of `length` steps, within the largest share of nodes that one of
    these drafters has. 0 without drafters; `length` if the node limit is no number."""
    if not names:
        return 0
    if not isinstance(config.max_tree_nodes, int):
        return length
    share = max(node_shares(config.combine, config.max_tree_nodes, names, config.draft))
    # Best first spends its nodes by score: its deepest tree is a chain.
    if draft_kind(config.draft).by_score:
        return min(length, share)
    return len(cut_shape(config.shape(length), share))
