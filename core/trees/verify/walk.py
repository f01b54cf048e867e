"""Verification from the root down: `greedy` and `match` walk to the LLM's own token, `mss`
(SpecInfer Alg. 2, VerifyStochastic) tries a node's proposals in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from core.trees.sampling import one_hot_residual, residual
from core.trees.tree import ROOT, TokenTree
from core.trees.verify.case import (
    Draws,
    Offer,
    TargetTokens,
    TrialResult,
    Verdict,
    VerifyInput,
    offers,
    verdict_of,
)

__all__ = ["WALKS", "greedy", "match", "mss", "verdict_of_tokens"]

WALKS = ("greedy", "match")
"""The rules that are this walk."""
Own = Callable[[int, int], int]
"""(node, its depth) -> the LLM's token after it."""
Shown = Callable[[int], float]
"""A node -> how probable the LLM holds its token behind its parent."""


def greedy(case: VerifyInput) -> Verdict:
    """Walk to the child whose token is arg max p (SpecInfer Alg. 2, VerifyGreedy)."""
    return _case_walk(case, lambda node, depth: case.target.argmax[node + 1])


def match(case: VerifyInput) -> Verdict:
    """Walk to the child whose token is y = argmax(log p + G(position)), else stop with y.

    y depends on (p, G) alone, so any tree is lossless, and the text equals plain decoding with the
    same seed token for token (ALGORITHMS 2).
    """

    def own(node: int, depth: int) -> int:
        gumbel = case.noise.gumbel(case.root_position + depth + 1)
        return case.target.best(node + 1, gumbel)

    return _case_walk(case, own)


def verdict_of_tokens(tree: TokenTree, target: TargetTokens, eos_ids: frozenset[int]) -> Verdict:
    """The verdict of either rule from the LLM's tokens."""
    tokens, node_probs = target.tokens, target.node_probs
    return _walk(tree, eos_ids, lambda node, _: tokens[node + 1], lambda child: node_probs[child])


def _case_walk(case: VerifyInput, own: Own) -> Verdict:
    return _walk(case.tree, case.eos_ids, own, lambda child: case.target.chances(case.tree)[child])


def _walk(tree: TokenTree, eos_ids: frozenset[int], own: Own, shown: Shown) -> Verdict:
    """The walk both rules share."""
    children = tree.child_lists()
    path: list[int] = []
    tried: list[TrialResult] = []
    node = ROOT
    while True:
        wanted = own(node, len(path))
        taken = ROOT
        for child in children[node]:
            right = tree.token_ids[child] == wanted
            first = tree.proposals[child][0].drafter
            tried.append(TrialResult(child, first, shown(child), 1.0, right))
            if right:
                taken = child
        if taken == ROOT:
            return verdict_of(tree, path, wanted, tried, rejected=bool(children[node]))
        path.append(taken)
        node = taken
        if wanted in eos_ids:
            return Verdict(tuple(path), None, "none", tuple(tried))


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
