"""What a verification rule is given, and what it answers. Knows no rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from core.trees.noise import Noise
from core.trees.sampling import Target
from core.trees.tree import ROOT, TokenTree

__all__ = ["VerifyInput", "TargetTokens", "TrialResult", "Verdict", "verdict_of"]


@dataclass(frozen=True, slots=True)
class VerifyInput:
    """What a rule decides on.

    `target` row 0 belongs to the root, row i + 1 to node i. `root_position` is the root's position.
    `qs[drafter]` holds the distributions (rows, V) that drafter drew from, None if deterministic;
    `distinct`: its draws under one parent were made without replacement.
    """

    tree: TokenTree
    target: Target
    root_position: int
    noise: Noise
    eos_ids: frozenset[int] = frozenset()
    qs: Mapping[int, torch.Tensor | None] = field(default_factory=dict)
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class TargetTokens:
    """The LLM's outputs on one tree, as plain numbers: `tokens` its own token after the root and
    each node, `token_probs` their probabilities, `node_probs` the probability of each node's token
    given its parent."""

    tokens: tuple[int, ...]
    token_probs: tuple[float, ...]
    node_probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One decision: `node` proposed by `drafter`, p and q at that moment, in the order decided.

    min(1, p / q) is the chance that the decision had (`greedy` and `match` ask for one token: there
    p is the LLM's probability and q is 1). Under `mss` p is what is left of the LLM's distribution.
    Under `traversal` it is that times the chance that the parent still has to be accepted, and what
    is decided is the node's whole branch: whether the path goes through the node. Its nodes are
    decided before it.
    """

    node: int
    drafter: int
    p: float
    q: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """`path`: accepted nodes from the root down. `own_token_id`: the LLM's token after it, None if
    the path ends with an end-of-text token. `own_kind`: `recovered`, `bonus`, `plain` or `none`."""

    path: tuple[int, ...]
    own_token_id: int | None
    own_kind: str
    tried: tuple[TrialResult, ...] = ()

    def outcomes(self, tree: TokenTree) -> tuple[str, ...]:
        """`accepted`, `rejected` (tried in vain, or a child of the path that was not taken) or
        `not_reached`."""
        accepted = {ROOT, *self.path}
        tried = {decision.node for decision in self.tried}
        return tuple(
            "accepted"
            if i in accepted
            else "rejected"
            if i in tried or parent in accepted
            else "not_reached"
            for i, parent in enumerate(tree.parents)
        )


def verdict_of(
    tree: TokenTree, path: Sequence[int], own: int, tried: Sequence[TrialResult], *, rejected: bool
) -> Verdict:
    """A verdict that ends with the LLM's own token; `rejected`: the path's last node has children,
    none of them accepted."""
    kind = "recovered" if rejected else "bonus" if len(tree) else "plain"
    return Verdict(tuple(path), own, kind, tuple(tried))
