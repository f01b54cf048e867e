"""Inputs and results of the verification rules, and the proposals under a node in the order in
which `mss` and `traversal` try them.
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
    "ChildProposal",
    "TargetTokens",
    "TrialResult",
    "Verdict",
    "VerifyInput",
    "child_proposals",
    "verdict_of",
]


@dataclass(frozen=True, slots=True)
class VerifyInput:
    """The input of a verification rule.

    `target`: row 0 belongs to the root, row i + 1 to node i. `root_position`: position of the root
    token in the text. `draft_distributions[drafter]`: `Draft.q` (see core.trees.draft), (rows, V);
    None for a deterministic drafter. `distinct`: whether each drafter drew the children of one
    parent without replacement.
    """

    tree: TokenTree
    target: Target
    root_position: int
    noise: Noise
    eos_ids: frozenset[int] = frozenset()
    draft_distributions: Mapping[int, torch.Tensor | None] = field(default_factory=dict)
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class TargetTokens:
    """The LLM's outputs on one tree as plain numbers. `tokens` (1 + n): the LLM's own token after
    the root and after each node; `token_probs` (1 + n): the probabilities of these tokens;
    `node_probs` (n): the probability of each node's token given its parent."""

    tokens: tuple[int, ...]
    token_probs: tuple[float, ...]
    node_probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One decision about `drafter`'s proposal of `node`.

    `greedy` and `match`: `p` is the LLM's probability of the token, and `q` is 1. `mss` and
    `traversal` accept with probability min(1, p / q). Under `mss` `p` is the token's probability
    after earlier rejections. Under `traversal` this probability is multiplied by the parent's
    acceptance probability, and the decision is about the node's whole branch.
    """

    node: int
    drafter: int
    p: float
    q: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """`path`: accepted nodes from the root down. `own_token_id`: the LLM's token after the path;
    None if the path ends with an end-of-text token. `own_kind`: `recovered`, `bonus`, `plain` or
    `none`."""

    path: tuple[int, ...]
    own_token_id: int | None
    own_kind: str
    trials: tuple[TrialResult, ...] = ()

    def outcomes(self, tree: TokenTree) -> tuple[str, ...]:
        """Each node's outcome: `accepted`, `not_reached`, or `rejected` (tried, or a child of the
        root or of an accepted node)."""
        accepted = {ROOT, *self.path}
        tried = {decision.node for decision in self.trials}
        return tuple(
            "accepted"
            if i in accepted
            else "rejected"
            if i in tried or parent in accepted
            else "not_reached"
            for i, parent in enumerate(tree.parents)
        )


def verdict_of(
    tree: TokenTree, path: Sequence[int], own: int, trials: Sequence[TrialResult], *, rejected: bool
) -> Verdict:
    """A verdict that ends with the LLM's own token. `rejected`: whether proposals after the
    accepted path were rejected."""
    kind = "recovered" if rejected else "bonus" if len(tree) else "plain"
    return Verdict(tuple(path), own, kind, tuple(trials))


Draws = tuple[tuple[int, int], ...]
"""A node's part of a noise key: (drafter, attempt) of each step from the root."""


@dataclass(frozen=True, slots=True)
class ChildProposal:
    """A proposal under a node. `attempt`: its number among the node's proposals, from 0.

    `q`: the distribution from which the child was drawn, float64 (V,); None for a deterministic
    proposal (one-hot).
    """

    child: int
    token_id: int
    drafter: int
    attempt: int
    q: torch.Tensor | None

    @property
    def q_token(self) -> float:
        """q of the proposed token, given the drafter's earlier draws; 1 for a deterministic
        proposal."""
        return 1.0 if self.q is None else float(self.q[self.token_id])

    def ratio(self, p_token: float) -> float:
        """min(1, p / q) at the proposed token; 0 if q is 0."""
        return min(1.0, p_token / self.q_token) if self.q_token > 0.0 else 0.0


def child_proposals(inputs: VerifyInput, children: Sequence[int]) -> Iterator[ChildProposal]:
    """Yields every proposal of `children`; a token that was proposed twice is yielded twice.

    For draws without replacement (`VerifyInput.distinct`) q is renormalized without the tokens that
    the drafter drew before under this parent.
    """
    # By drafter and row: draws from other rows are independent.
    drawn: dict[tuple[int, int | None], list[int]] = {}
    for attempt, (proposal, child) in enumerate(_order_proposals(inputs, children)):
        token_id = inputs.tree.token_ids[child]
        earlier = drawn.setdefault((proposal.drafter, proposal.row), [])
        q = _distribution(inputs, proposal, earlier)
        yield ChildProposal(child, token_id, proposal.drafter, attempt, q)
        earlier.append(token_id)


def _order_proposals(inputs: VerifyInput, children: Sequence[int]) -> list[tuple[Proposal, int]]:
    """Sorts proposals by drafter, row and draw. An order by tokens or probabilities would bias the
    result."""
    pairs = [(proposal, child) for child in children for proposal in inputs.tree.proposals[child]]
    # The children of a token drawn twice come from two rows of q; ranks count within a row.
    return sorted(pairs, key=lambda pair: (pair[0].drafter, pair[0].row or 0, pair[0].rank))


def _distribution(
    inputs: VerifyInput, proposal: Proposal, earlier: list[int]
) -> torch.Tensor | None:
    if proposal.row is None:
        return None
    rows = inputs.draft_distributions[proposal.drafter]
    assert rows is not None, "a drawn proposal has a distribution"
    q = rows[proposal.row]
    if not inputs.distinct or not earlier:
        return q
    left = q.clone()
    # Without replacement: the next draw came from q without the earlier tokens, renormalized.
    left[earlier] = 0.0
    return left / left.sum()
