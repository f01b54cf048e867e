"""`vote`: Minions' majority vote over the drafters' sequences. `vote_tree`: the best nodes of the
union by weighted score, one dial from the vote to the union."""

from __future__ import annotations

from core.trees.combine.base import MergedTree, Selection, VoteWeights
from core.trees.tree import ROOT

__all__ = ["vote", "vote_tree"]

# Behind the point: closer than this, masses and weights are a tie.
DIGITS = 9


def vote(whole: MergedTree, ballot: VoteWeights) -> Selection:
    """One drafter's sequence (Minions 3.2; ALGORITHMS 3).

    A node's mass is the sum of the weights of the drafters through it. From the root down the
    heaviest child is taken; on a tie that of the heavier single drafter, then of the lower index.
    Weights that went up and down by the same factors are equal, whatever their last bits say.
    """
    masses = tuple(
        sum(ballot.weights[drafter] for drafter in whole.drafters(node))
        for node in range(len(whole.tree))
    )
    children = whole.tree.child_lists()
    path: list[int] = []
    node = ROOT
    while children[node]:
        node = max(
            children[node],
            key=lambda child: (round(masses[child], DIGITS), *_best(whole, ballot, child)),
        )
        path.append(node)
    winner = -_best(whole, ballot, node)[1] if path else None
    return Selection(tuple(path), masses, winner)


def vote_tree(whole: MergedTree, ballot: VoteWeights) -> Selection:
    """The `vote_nodes` best nodes by weighted cumulative score.

    A drafter's cumulative score only falls along a path, so the kept set is closed under ancestors;
    of equal nodes the parent comes first.
    """
    total = sum(ballot.weights.values())
    masses = tuple(
        sum(
            ballot.weights[drafter] * whole.chance(node, drafter)
            for drafter in whole.drafters(node)
        )
        / total
        for node in range(len(whole.tree))
    )
    ranked = sorted(range(len(masses)), key=lambda node: (-masses[node], node))
    return Selection(tuple(sorted(ranked[: ballot.vote_nodes])), masses)


def _best(whole: MergedTree, ballot: VoteWeights, node: int) -> tuple[float, int]:
    """The heaviest drafter through a node: its weight and, negated, its index."""
    return max(
        (round(ballot.weights[drafter], DIGITS), -drafter) for drafter in whole.drafters(node)
    )
