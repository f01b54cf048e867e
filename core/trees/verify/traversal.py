"""`traversal`: block-wise verification from the leaves to the root (Traversal Verification, NeurIPS
2025; on a chain it is Block Verification).

A branch that fails gives its chance back to its parent instead of ending the path, so a token whose
continuation is good may stay although it would have been rejected by itself.

Why it is lossless. Each node u has a chance a and a distribution M of what follows it. To be shown:
averaged over what is drawn below u, its branch is accepted with probability a, and then the text
goes on with M. A leaf keeps that: it tosses a coin for a and draws from p = M. At another node the
next proposal x ~ q has the chance min(1, a M[x] / q[x]), so its branch is accepted, as token x,
with probability min(q[x], a M[x]). That leaves R = max(0, a M - q) to be given, S = sum R; the
branch is rejected with probability S + 1 - a, and given that, R / (S + 1 - a) is to be given: the
chance a' = S / (S + 1 - a) of the distribution R / S. With S = 0 the chance is gone (to leave it as
it was biases: TV 0.2), but for the root's, which is 1 and stays 1.

A rejection tells nothing of the proposals yet to be tried, because the chance of x's branch is the
same whatever hangs below x; so several drafters' proposals may follow one another, and one node may
carry what all of them drafted below it. Where x was rejected a M[x] < q[x], so R[x] = 0: when x is
proposed again it has no chance, and only takes its q out of the rest.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from core.trees.sampling import TINY_RESIDUAL
from core.trees.tree import ROOT
from core.trees.verify.case import (
    Draws,
    Offer,
    TrialResult,
    Verdict,
    VerifyInput,
    offers,
    verdict_of,
)

__all__ = ["traversal"]


def traversal(case: VerifyInput) -> Verdict:
    """The first branch, from the leaves on, that keeps its chance; `tried` lists the decisions in
    the order made, a node after everything below it."""
    walk = _Walk(case)
    found = walk.branch(ROOT, 1.0, ())
    assert found is not None, "the root is committed"
    return replace(found, tried=tuple(walk.tried))


class _Walk:
    def __init__(self, case: VerifyInput) -> None:
        self.tried: list[TrialResult] = []
        self._case = case
        self._children = case.tree.child_lists()

    def branch(self, node: int, chance: float, draws: Draws) -> Verdict | None:
        """The verdict below `node`, given that the path goes through it, or None: it does not.

        Over all drafts below `node` the path does go through it with probability `chance`.
        """
        children = [] if self._ends(node) else self._children[node]
        if chance == 0.0 or not children:
            return self._itself(node, chance, draws, None)
        left = chance * self._case.target.probabilities(node + 1)  # a M of the module's docstring
        tried: set[int] = set()
        for offer in offers(self._case, children):
            p_token, found = float(left[offer.token_id]), None
            if offer.child not in tried:
                below = (*draws, (offer.drafter, offer.attempt))
                found = self.branch(offer.child, offer.ratio(p_token), below)
            tried.add(offer.child)
            decision = TrialResult(
                offer.child, offer.drafter, p_token, offer.q_token, found is not None
            )
            self.tried.append(decision)
            if found is not None:
                return replace(found, path=(offer.child, *found.path))
            chance, left = _rest(chance, left, offer)
        return self._itself(node, chance, draws, left)

    def _itself(
        self, node: int, chance: float, draws: Draws, left: torch.Tensor | None
    ) -> Verdict | None:
        """Decides `node` alone, nothing below it having been accepted; `left` (V,) weighs the
        LLM's own token, None: nothing was tried there."""
        case = self._case
        if node != ROOT:
            key = ("accept", case.root_position, draws[:-1], draws[-1][1])
            if chance == 0.0 or not case.noise.coin(chance, key):
                return None
        if self._ends(node):
            return Verdict((), None, "none")
        weights = case.target.probabilities(node + 1) if left is None else left
        own = case.noise.choose(weights, ("final", case.root_position, draws))
        return verdict_of(case.tree, (), own, (), rejected=left is not None)

    def _ends(self, node: int) -> bool:
        return node != ROOT and self._case.tree.token_ids[node] in self._case.eos_ids


def _rest(chance: float, left: torch.Tensor, offer: Offer) -> tuple[float, torch.Tensor]:
    """a and a M after the offer's branch was rejected.

    Where all of a M was covered by q both become 0, and with them the chance of the offers behind:
    only at a = 1 could nothing be left by rounding alone.
    """
    if offer.q is None:
        rest = left.clone()
        rest[offer.token_id] = 0.0
    else:
        rest = (left - offer.q).clamp_(min=0.0)
    total = float(rest.sum())
    rejected = total + (1.0 - chance)  # in this order a chance of 1 stays 1 to the last bit
    if rejected < TINY_RESIDUAL:
        return chance, left
    return total / rejected, rest / rejected
