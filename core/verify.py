"""(tree, the LLM's distributions, noise) to a verdict: which path is accepted, and the LLM's own
token.

Rules by name: `greedy`, `match`, `mss`. Pure but for the noise that is passed in; never sees a
model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from core.noise import Noise
from core.sampling import Target, one_hot_residual, residual
from core.tree import ROOT, Proposal, TokenTree

__all__ = ["VERIFY_RULES", "Case", "Tried", "Verdict", "verify"]


@dataclass(frozen=True, slots=True)
class Case:
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
class Tried:
    """One decision: `node` proposed by `drafter`, p and q at that moment."""

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
    tried: tuple[Tried, ...] = ()

    def outcomes(self, tree: TokenTree) -> tuple[str, ...]:
        """`accepted`, `rejected` (a child of the path that was not taken) or `not_reached`."""
        accepted = {ROOT, *self.path}
        return tuple(
            "accepted" if i in accepted else "rejected" if parent in accepted else "not_reached"
            for i, parent in enumerate(tree.parents)
        )


Rule = Callable[[Case], Verdict]


def verify(rule: str, case: Case) -> Verdict:
    """The verdict of the named rule."""
    return VERIFY_RULES[rule](case)


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
    """The walk `greedy` and `match` share: `own(node, depth)` is the LLM's token after a node."""
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
            return _verdict(case, path, wanted, tried, rejected=bool(children[node]))
        path.append(taken)
        node = taken
        if wanted in case.eos_ids:
            return Verdict(tuple(path), None, "none", tuple(tried))


def mss(case: Case) -> Verdict:
    """Multi-step speculative sampling (SpecInfer Alg. 2, VerifyStochastic), by proposals.

    A token proposed twice is tried twice. The order depends on no token: drafters in their fixed
    order, each one's draws in draw order. A draw without replacement is tried with q where that
    drafter's earlier draws are zeroed.
    """
    children = case.tree.child_lists()
    path: list[int] = []
    draws: tuple[tuple[int, int], ...] = ()
    tried: list[Tried] = []
    node = ROOT
    while True:
        p = case.target.probabilities(node + 1)
        taken, draw, p = _try_children(case, children[node], p, draws, tried)
        if taken == ROOT:
            key = ("final", case.root_position, draws)
            own = case.noise.choose(p, key)
            return _verdict(case, path, own, tried, rejected=bool(children[node]))
        path.append(taken)
        draws = (*draws, draw)
        node = taken
        if case.tree.token_ids[node] in case.eos_ids:
            return Verdict(tuple(path), None, "none", tuple(tried))


def _try_children(
    case: Case,
    children: list[int],
    p: torch.Tensor,
    draws: tuple[tuple[int, int], ...],
    tried: list[Tried],
) -> tuple[int, tuple[int, int], torch.Tensor]:
    """Tries the proposals among `children`: the accepted child (ROOT if none), the draw that named
    it, and what is left of p."""
    drawn: dict[tuple[int, int | None], list[int]] = {}
    for attempt, (proposal, child) in enumerate(_offers(case.tree, children)):
        token_id = case.tree.token_ids[child]
        earlier = drawn.setdefault((proposal.drafter, proposal.row), [])
        q = _distribution(case, proposal, earlier)
        p_token, q_token = float(p[token_id]), 1.0 if q is None else float(q[token_id])
        ratio = p_token / q_token if q_token > 0.0 else 0.0
        key = ("accept", case.root_position, draws, attempt)
        accepted = case.noise.coin(min(1.0, ratio), key)
        tried.append(Tried(child, proposal.drafter, p_token, q_token, accepted))
        if accepted:
            return child, (proposal.drafter, attempt), p
        p = one_hot_residual(p, token_id) if q is None else residual(p, q)
        earlier.append(token_id)
    return ROOT, (0, 0), p


def _offers(tree: TokenTree, children: list[int]) -> list[tuple[Proposal, int]]:
    """Every proposal of `children` in the order of trying: by drafter, then by draw.

    Nothing in it depends on a token or its probability (ALGORITHMS 2, traps of order).
    """
    offers = [(proposal, child) for child in children for proposal in tree.proposals[child]]
    return sorted(offers, key=lambda offer: (offer[0].drafter, offer[0].row or 0, offer[0].rank))


def _distribution(case: Case, proposal: Proposal, earlier: list[int]) -> torch.Tensor | None:
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


def _verdict(
    case: Case, path: list[int], own: int, tried: list[Tried], *, rejected: bool
) -> Verdict:
    kind = "recovered" if rejected else "bonus" if len(case.tree) else "plain"
    return Verdict(tuple(path), own, kind, tuple(tried))


VERIFY_RULES: Mapping[str, Rule] = MappingProxyType({"greedy": greedy, "match": match, "mss": mss})
