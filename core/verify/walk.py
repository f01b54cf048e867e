"""`greedy` and `match`: the LLM names its token at each node, and the walk goes there if it can.

The token does not depend on the tree, so any tree is lossless.
"""

from __future__ import annotations

from collections.abc import Callable

from core.tree import ROOT
from core.verify.case import Case, Tried, Verdict, verdict_of

__all__ = ["greedy", "match"]


def greedy(case: Case) -> Verdict:
    """Walk to the child whose token is arg max p (SpecInfer Alg. 2, VerifyGreedy)."""
    return _walk(case, lambda node, depth: case.target.argmax[node + 1])


def match(case: Case) -> Verdict:
    """Walk to the child whose token is y = argmax(log p + G(position)), else stop with y.

    y depends on (p, G) alone, so any tree is lossless, and the text equals plain decoding with the
    same seed token for token (ALGORITHMS 2).
    """

    def own(node: int, depth: int) -> int:
        gumbel = case.noise.gumbel(case.root_position + depth + 1)
        return int((case.target.scores[node + 1].double() + gumbel).argmax())

    return _walk(case, own)


def _walk(case: Case, own: Callable[[int, int], int]) -> Verdict:
    """The walk both rules share: `own(node, depth)` is the LLM's token after a node."""
    children = case.tree.child_lists()
    path: list[int] = []
    tried: list[Tried] = []
    node = ROOT
    while True:
        wanted = own(node, len(path))
        shown = case.target.shown[node + 1]
        taken = ROOT
        for child in children[node]:
            token_id = case.tree.token_ids[child]
            first = case.tree.proposals[child][0].drafter
            tried.append(Tried(child, first, float(shown[token_id]), 1.0, token_id == wanted))
            if token_id == wanted:
                taken = child
        if taken == ROOT:
            return verdict_of(case, path, wanted, tried, rejected=bool(children[node]))
        path.append(taken)
        node = taken
        if wanted in case.eos_ids:
            return Verdict(tuple(path), None, "none", tuple(tried))
