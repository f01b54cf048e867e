"""The node budget: how many nodes each drafter may draft, and how deep.

The budget does not depend on drawn tokens: sampled drafts stay lossless.
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
    """Cuts a shape to at most `budget` nodes: drops the deepest steps, then narrows the first."""
    if budget < 1:
        return ()
    while len(shape) > 1 and shape_nodes(shape) > budget:
        shape = shape[:-1]
    return (min(shape[0], budget),) if len(shape) == 1 else shape


def node_shares(combine: str, nodes: int, names: Sequence[str], draft: str = "auto") -> list[int]:
    """The number of nodes that each named drafter may draft, in the order of `names`.

    `CombineRule.node_budget` decides; a fused `draft` counts as `pooled`. `each`: every drafter has
    `nodes`. `divided`: equal shares of `nodes`; a share may be 0. `pooled`: a model-free drafter
    has its equal share, and every SSM has the sum of the SSMs' shares.
    """
    budget = "pooled" if draft_kind(draft).fused else combine_rule(combine).node_budget
    if budget == "each":
        return [nodes] * len(names)
    even, rest = divmod(nodes, len(names)) if names else (0, 0)
    shares = [even + (index < rest) for index in range(len(names))]
    if budget != "pooled":
        return shares
    # The SSMs draft one tree together, and its nodes count once.
    pool = sum(share for name, share in zip(names, shares, strict=True) if not is_model_free(name))
    return [
        share if is_model_free(name) else pool for name, share in zip(names, shares, strict=True)
    ]


def max_draft_depth(config: SpeculationConfig, names: Sequence[str], length: int) -> int:
    """The largest depth of a draft of at most `length` steps, for the drafter with the largest
    share. 0 without drafters."""
    if not names:
        return 0
    if not isinstance(config.max_tree_nodes, int):
        return length
    share = max(node_shares(config.combine, config.max_tree_nodes, names, config.draft))
    # The deepest `best_first` tree is a chain.
    if draft_kind(config.draft).by_score:
        return min(length, share)
    return len(cut_shape(config.shape(length), share))
