"""`greedy` and `match`: the LLM names its token at each node, and the walk goes there if it can.

The token does not depend on the tree, so any tree is lossless.
"""

from __future__ import annotations

from collections.abc import Callable

from core.trees.tree import ROOT, TokenTree
from core.trees.verify.case import TargetTokens, TrialResult, Verdict, VerifyInput, verdict_of

__all__ = ["WALKS", "greedy", "match", "verdict_of_tokens"]

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
