"""Acceptance over tensors: `greedy` and `match` for whole trees at once, without a walk.

The LLM's token does not depend on the tree: each node is judged by its parent's, and accepted where
it and all above it were right.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.config import SamplingParams
from core.noise import gumbel_vectors
from core.sampling import processed, unprocessed_probabilities

__all__ = ["Accepted", "Judged", "Trees", "accepted", "deepest", "judge"]


@dataclass(frozen=True, slots=True)
class Trees:
    """Of `rows` trees of n nodes, the root before them: `tokens` (rows, n), negative where there is
    no such node. `parents` (rows, n): the row (0: the root) of each node's parent; `depths`
    (rows, 1 + n)."""

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor


@dataclass(frozen=True, slots=True)
class Judged:
    """What the LLM says: `own` (rows, 1 + n) its token behind the root and each node, `own_shown`
    how probable it is, `shown` (rows, n) how probable each node's token is behind its parent."""

    own: torch.Tensor
    own_shown: torch.Tensor
    shown: torch.Tensor


@dataclass(frozen=True, slots=True)
class Accepted:
    """`length` (rows,): accepted nodes; `last` (rows,): the row of the deepest, 0 without any."""

    length: torch.Tensor
    last: torch.Tensor


def judge(
    logits: torch.Tensor, trees: Trees, sampling: SamplingParams, bases: torch.Tensor | None
) -> Judged:
    """The LLM's tokens by its logits (rows, 1 + n, V), float32: the arg max, or with `bases` (rows,
    1 + deepest), what the noise behind the root and below it hashes, that of log p + G."""
    at = torch.arange(len(logits), device=logits.device)[:, None]
    scores = logits
    if not sampling.greedy:
        scores = processed(logits.flatten(0, 1), sampling).view(logits.shape)
    if bases is None:
        own = logits.argmax(-1)
    else:
        noise = gumbel_vectors(bases, logits.shape[2])  # (rows, 1 + deepest, V)
        own = (scores.double() + noise[at, trees.depths]).argmax(-1)
    shown = unprocessed_probabilities(scores)
    own_shown = shown.gather(2, own[..., None])[..., 0]
    return Judged(own, own_shown, shown[at, trees.parents, trees.tokens.clamp(min=0)])


def accepted(judged: Judged, trees: Trees, sees: torch.Tensor, ends: torch.Tensor) -> Accepted:
    """The deepest node that is accepted with all above it: `sees` (rows or 1, 1 + n, 1 + n) marks
    each row and those above it. Nothing behind an end of text is; `ends` (rows, any) are padded
    with what is no token."""
    tokens = trees.tokens
    right = judged.own.gather(1, trees.parents) == tokens
    before = torch.nn.functional.pad(tokens, (1, 0), value=-1).gather(1, trees.parents)
    ended = (before[..., None] == ends[:, None]).any(-1) & (before >= 0)
    return deepest(right & (tokens >= 0) & ~ended, trees.depths, sees)


def deepest(right: torch.Tensor, depths: torch.Tensor, sees: torch.Tensor) -> Accepted:
    """The deepest of the nodes that are `right` (rows, n) with all above them; the first of equal
    ones. `depths` (rows or 1, 1 + n)."""
    every = torch.nn.functional.pad(right, (1, 0), value=True)
    whole = (every[:, None] | ~sees).all(-1)
    size = every.shape[1]
    order = torch.arange(size, device=right.device)
    last = (whole * (depths * size + size - 1 - order)).argmax(-1)
    return Accepted(depths.expand(len(right), -1).gather(1, last[:, None])[:, 0], last)
