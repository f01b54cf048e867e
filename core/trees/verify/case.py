"""What a verification rule reads and returns, and the proposals under a node in the order in which
`mss` and `traversal` try them. Knows no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from core.trees.noise import Noise
from core.trees.sampling import Target
from core.trees.tree import ROOT, Proposal, TokenTree

__all__ = [
    "Draws",
    "Offer",
    "TargetTokens",
    "TrialResult",
    "Verdict",
    "VerifyInput",
    "offers",
    "verdict_of",
]


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


Draws = tuple[tuple[int, int], ...]
"""What names a node in a noise key: (drafter, try) of each step from the root."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The `attempt`-th proposal under a node (from 0): of the node `child`, by `drafter`.

    `q`: the distribution it was drawn from, float64 (V,); None if it is deterministic (one-hot).
    """

    child: int
    token_id: int
    drafter: int
    attempt: int
    q: torch.Tensor | None

    @property
    def q_token(self) -> float:
        """The probability with which it was drawn."""
        return 1.0 if self.q is None else float(self.q[self.token_id])

    def ratio(self, p_token: float) -> float:
        """min(1, p / q) at its token."""
        return min(1.0, p_token / self.q_token) if self.q_token > 0.0 else 0.0


def offers(case: VerifyInput, children: Sequence[int]) -> Iterator[Offer]:
    """Every proposal of `children`: a token proposed twice is offered twice.

    Of draws without replacement q is what the drafter's earlier draws here had left.
    """
    drawn: dict[tuple[int, int | None], list[int]] = {}
    for attempt, (proposal, child) in enumerate(_ordered(case, children)):
        token_id = case.tree.token_ids[child]
        earlier = drawn.setdefault((proposal.drafter, proposal.row), [])
        q = _distribution(case, proposal, earlier)
        yield Offer(child, token_id, proposal.drafter, attempt, q)
        earlier.append(token_id)


def _ordered(case: VerifyInput, children: Sequence[int]) -> list[tuple[Proposal, int]]:
    """By drafter, then by draw: nothing in the order depends on a token or its probability
    (ALGORITHMS 2, traps of order)."""
    found = [(proposal, child) for child in children for proposal in case.tree.proposals[child]]
    return sorted(found, key=lambda offer: (offer[0].drafter, offer[0].row or 0, offer[0].rank))


def _distribution(case: VerifyInput, proposal: Proposal, earlier: list[int]) -> torch.Tensor | None:
    """The q this proposal was drawn from; None for a deterministic one (one-hot)."""
    if proposal.row is None:
        return None
    rows = case.qs[proposal.drafter]
    assert rows is not None, "a drawn proposal has a distribution"
    q = rows[proposal.row]
    if not case.distinct or not earlier:
        return q
    left = q.clone()
    left[earlier] = 0.0
    return left / left.sum()
