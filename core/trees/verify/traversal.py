"""`traversal`: block-wise verification from the leaves to the root (Traversal Verification, NeurIPS
2025; on a chain it is Block Verification).

A rejected branch returns its probability to its parent instead of ending the path.

Why it is lossless. Each node u has an acceptance probability a and a distribution M of the next
token. Claim: averaged over the draws below u, u's branch is accepted with probability a, and the
text then continues with M. A leaf satisfies the claim: the leaf is accepted with probability a, and
the next token is drawn from p = M. At an inner node the next proposal x ~ q is accepted with
probability min(1, a M[x] / q[x]): x is drawn and accepted with probability min(q[x], a M[x]). The
mass still to be distributed is R = max(0, a M - q); let S be its sum. x's branch is rejected with
probability S + 1 - a. After a rejection, R / (S + 1 - a) is still to be distributed: a' = S / (S +
1 - a) and M' = R / S. At a = 1, as at the root, a' is 1. With S = 0 and a < 1, a' is 0.

The probability of x's branch does not depend on what is below x: proposals of several drafters may
follow one another. After a rejection of x, R[x] = 0: a second proposal of x cannot be accepted,
only its q is subtracted from the rest.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from core.trees.sampling import TINY_RESIDUAL
from core.trees.tree import ROOT
from core.trees.verify.base import (
    ChildProposal,
    Draws,
    TrialResult,
    Verdict,
    VerifyInput,
    child_proposals,
    verdict_of,
)

__all__ = ["traversal"]


def traversal(inputs: VerifyInput) -> Verdict:
    """Accepts the first branch, from the leaves up, whose coin succeeds."""
    walk = _Walk(inputs)
    verdict = walk.branch(ROOT, 1.0, ())
    assert verdict is not None, "the root is committed"
    return replace(verdict, trials=tuple(walk.trials))


class _Walk:
    def __init__(self, inputs: VerifyInput) -> None:
        self.trials: list[TrialResult] = []
        self._inputs = inputs
        self._children = inputs.tree.child_lists()

    def branch(self, node: int, acceptance: float, draws: Draws) -> Verdict | None:
        """The verdict below `node`, or None if the branch is rejected.

        Averaged over all drafts below `node`, the branch is accepted with probability `acceptance`.
        """
        # Nothing follows an end of text, even if a drafter drafted on.
        children = [] if self._ends(node) else self._children[node]
        # With a = 0 nothing below can be accepted: a M is 0 everywhere.
        if acceptance == 0.0 or not children:
            return self._decide_node(node, acceptance, draws, None)
        # a M of the module's docstring.
        left = acceptance * self._inputs.target.probabilities(node + 1)
        passed_over: set[int] = set()
        for proposal in child_proposals(self._inputs, children):
            p_token, verdict = float(left[proposal.token_id]), None
            # A further proposal of a token only takes its q from the rest.
            if proposal.child not in passed_over:
                below = (*draws, (proposal.drafter, proposal.attempt))
                verdict = self.branch(proposal.child, proposal.ratio(p_token), below)
            passed_over.add(proposal.child)
            decision = TrialResult(
                proposal.child, proposal.drafter, p_token, proposal.q_token, verdict is not None
            )
            self.trials.append(decision)
            if verdict is not None:
                return replace(verdict, path=(proposal.child, *verdict.path))
            # (a', a' M') of the module's docstring.
            acceptance, left = _rest(acceptance, left, proposal)
        return self._decide_node(node, acceptance, draws, left)

    def _decide_node(
        self, node: int, acceptance: float, draws: Draws, left: torch.Tensor | None
    ) -> Verdict | None:
        """Accepts or rejects `node` itself. `left` (V,): weights of the LLM's own token; None: the
        LLM's distribution."""
        inputs = self._inputs
        if node != ROOT:
            # Key as in `walk.mss`: the draws down to the parent, then this proposal's attempt.
            key = ("accept", inputs.root_position, draws[:-1], draws[-1][1])
            if acceptance == 0.0 or not inputs.noise.coin(acceptance, key):
                return None
        if self._ends(node):
            return Verdict((), None, "none")
        weights = inputs.target.probabilities(node + 1) if left is None else left
        own = inputs.noise.choose(weights, ("final", inputs.root_position, draws))
        return verdict_of(inputs.tree, (), own, (), rejected=left is not None)

    def _ends(self, node: int) -> bool:
        return node != ROOT and self._inputs.tree.token_ids[node] in self._inputs.eos_ids


def _rest(
    acceptance: float, left: torch.Tensor, proposal: ChildProposal
) -> tuple[float, torch.Tensor]:
    """(a', a' M') after the proposal's branch was rejected.

    Only rounding makes S + 1 - a vanish; a and a M then stay.
    """
    if proposal.q is None:
        rest = left.clone()
        rest[proposal.token_id] = 0.0
    else:
        rest = (left - proposal.q).clamp_(min=0.0)
    total = float(rest.sum())
    # In this order of additions, an acceptance of 1 stays 1 to the last bit.
    chance_of_rest = total + (1.0 - acceptance)
    if chance_of_rest < TINY_RESIDUAL:
        return acceptance, left
    return total / chance_of_rest, rest / chance_of_rest
