"""The proposals under one node, in the order in which `mss` and `traversal` try them, each with
the distribution that it was drawn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from core.trees.tree import Proposal
from core.trees.verify.case import VerifyInput

__all__ = ["Draws", "Offer", "offers"]

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
