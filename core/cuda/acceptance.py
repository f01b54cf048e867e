"""`greedy` and `match` acceptance of whole trees over tensors, without a walk.

The LLM's token at a node does not depend on the tree: every node is compared with its parent's
token at once, and is accepted if it and all its ancestors match.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.config import SamplingParams
from core.trees.noise import gumbel_vectors
from core.trees.sampling import processed, unprocessed_probabilities

__all__ = [
    "AcceptedPaths",
    "TargetOutputs",
    "TreeBatch",
    "accepted_paths",
    "deepest_nodes",
    "target_outputs",
]


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """Trees of n nodes, one a request; row 0 of a tree is its root. `tokens` (rows, n), negative if
    the node is absent; `parents` (rows, n): the row of each node's parent; `depths` (rows,
    1 + n)."""

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor


@dataclass(frozen=True, slots=True)
class TargetOutputs:
    """The LLM's outputs on a TreeBatch. `tokens` (rows, 1 + n): its own token after the root and
    each node; `token_probs`: their probabilities; `node_probs` (rows, n): the probability of each
    node's token given its parent."""

    tokens: torch.Tensor
    token_probs: torch.Tensor
    node_probs: torch.Tensor


@dataclass(frozen=True, slots=True)
class AcceptedPaths:
    """`length` (rows,): accepted nodes; `last` (rows,): the row of the deepest, 0 if none."""

    length: torch.Tensor
    last: torch.Tensor


def target_outputs(
    logits: torch.Tensor, trees: TreeBatch, sampling: SamplingParams, bases: torch.Tensor | None
) -> TargetOutputs:
    """From the LLM's logits (rows, 1 + n, V), float32. The token is the arg max; with `bases`
    (rows, 1 + deepest), the noise hashes of the positions after the root, it is the arg max of
    log p + G."""
    at = torch.arange(len(logits), device=logits.device)[:, None]
    scores = logits
    if not sampling.greedy:
        scores = processed(logits.flatten(0, 1), sampling).view(logits.shape)
    if bases is None:
        tokens = logits.argmax(-1)
    else:
        noise = gumbel_vectors(bases, logits.shape[2])  # (rows, 1 + deepest, V)
        tokens = (scores.double() + noise[at, trees.depths]).argmax(-1)
    probs = unprocessed_probabilities(scores)
    token_probs = probs.gather(2, tokens[..., None])[..., 0]
    return TargetOutputs(tokens, token_probs, probs[at, trees.parents, trees.tokens.clamp(min=0)])


def accepted_paths(
    outputs: TargetOutputs, trees: TreeBatch, ancestors: torch.Tensor, ends: torch.Tensor
) -> AcceptedPaths:
    """The deepest node that is accepted with all its ancestors. `ancestors` (rows or 1, 1 + n,
    1 + n) includes each row itself. Nodes below an end-of-text token are not accepted; `ends`
    (rows, any) are such tokens, padded with a value that is no token."""
    tokens = trees.tokens
    right = outputs.tokens.gather(1, trees.parents) == tokens
    above = torch.nn.functional.pad(tokens, (1, 0), value=-1).gather(1, trees.parents)
    ended = (above[..., None] == ends[:, None]).any(-1) & (above >= 0)
    return deepest_nodes(right & (tokens >= 0) & ~ended, trees.depths, ancestors)


def deepest_nodes(
    right: torch.Tensor, depths: torch.Tensor, ancestors: torch.Tensor
) -> AcceptedPaths:
    """The deepest of the nodes that are `right` (rows, n) with all their ancestors; the first of
    equally deep ones. `depths` (rows or 1, 1 + n)."""
    every = torch.nn.functional.pad(right, (1, 0), value=True)
    whole = (every[:, None] | ~ancestors).all(-1)
    size = every.shape[1]
    order = torch.arange(size, device=right.device)
    last = (whole * (depths * size + size - 1 - order)).argmax(-1)
    return AcceptedPaths(depths.expand(len(right), -1).gather(1, last[:, None])[:, 0], last)
