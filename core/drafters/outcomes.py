"""What a verification may come to: its likeliest outcomes, from what a drafter holds of each node.

An outcome is the path that will be accepted and the LLM's own token behind it. Pure; knows no
model.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from core.trees.tree import ROOT, TokenTree

__all__ = ["Outcome", "likeliest"]

LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """`token_ids`: what would be committed; the last is the LLM's own token."""

    token_ids: tuple[int, ...]
    probability: float


def likeliest(
    tree: TokenTree, scores: torch.Tensor, count: int, ends: Collection[int] = ()
) -> list[Outcome]:
    """The `count` likeliest outcomes, the likeliest first, each at least 1 % probable.

    `scores` (1 + nodes, V): how probable the LLM's choice of each token is after the root and after
    each node. P(path to u) x P(y after u), y no child of u, since a child would have been accepted
    (ALGORITHMS 5). Outcomes with a token of `ends` are left out: no round follows them.
    """
    joint = scores.clone()
    parents = torch.tensor(tree.parents, dtype=torch.long, device=scores.device) + 1
    token_ids = torch.tensor(tree.token_ids, dtype=torch.long, device=scores.device)
    steps = scores[parents, token_ids].tolist()
    reached = [1.0]
    for token_id, parent, step in zip(tree.token_ids, tree.parents, steps, strict=True):
        reached.append(0.0 if token_id in ends else reached[parent + 1] * step)
    joint[parents, token_ids] = 0.0
    if ends:
        joint[:, list(ends)] = 0.0
    joint *= torch.tensor(reached, dtype=scores.dtype, device=scores.device)[:, None]
    values, places = joint.flatten().topk(min(count, joint.numel()))
    found = []
    for probability, place in zip(values.tolist(), places.tolist(), strict=True):
        node, own = divmod(place, joint.shape[1])
        if probability >= LEAST:
            path = tree.tokens_to(node - 1) if node else tree.tokens_to(ROOT)
            found.append(Outcome((*path, own), probability))
    return found
