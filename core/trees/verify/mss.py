"""`mss`: multi-step speculative sampling, from the root down (SpecInfer Alg. 2, VerifyStochastic).

By proposals, not by nodes: a token proposed twice is tried twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.trees.sampling import one_hot_residual, residual
from core.trees.tree import ROOT
from core.trees.verify.case import TrialResult, Verdict, VerifyInput, verdict_of
from core.trees.verify.offers import Draws, Offer, offers

__all__ = ["mss"]


def mss(case: VerifyInput) -> Verdict:
    """At each node try the proposals in turn: accept iff u < p[x] / q[x], on a failure
    p = norm(max(0, p - q)); none accepted: draw from what is left of p."""
    children = case.tree.child_lists()
    path: list[int] = []
    draws: Draws = ()
    tried: list[TrialResult] = []
    node = ROOT
    while True:
        p = case.target.probabilities(node + 1)
        taken, p = _try(case, children[node], p, draws, tried)
        if taken is None:
            own = case.noise.choose(p, ("final", case.root_position, draws))
            return verdict_of(case.tree, path, own, tried, rejected=bool(children[node]))
        path.append(taken.child)
        draws = (*draws, (taken.drafter, taken.attempt))
        node = taken.child
        if case.tree.token_ids[node] in case.eos_ids:
            return Verdict(tuple(path), None, "none", tuple(tried))


def _try(
    case: VerifyInput,
    children: Sequence[int],
    p: torch.Tensor,
    draws: Draws,
    tried: list[TrialResult],
) -> tuple[Offer | None, torch.Tensor]:
    """The accepted proposal among `children` (None if none was), and what is left of p."""
    for offer in offers(case, children):
        p_token = float(p[offer.token_id])
        key = ("accept", case.root_position, draws, offer.attempt)
        accepted = case.noise.coin(offer.ratio(p_token), key)
        tried.append(TrialResult(offer.child, offer.drafter, p_token, offer.q_token, accepted))
        if accepted:
            return offer, p
        p = one_hot_residual(p, offer.token_id) if offer.q is None else residual(p, offer.q)
    return None, p
