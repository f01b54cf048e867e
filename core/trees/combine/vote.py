"""The combine rules `vote` and `vote_tree`."""

from __future__ import annotations

from core.trees.combine.base import MergedTree, Selection, VoteWeights
from core.trees.tree import ROOT

__all__ = ["DIGITS", "vote", "vote_tree"]

# `vote` compares weights rounded to this number of decimal places: weights that should be equal
# may differ in their last bits.
DIGITS = 9


def vote(trie: MergedTree, vote_weights: VoteWeights) -> Selection:
    """One drafter's sequence (Minions, arXiv 2402.15678, 3.2).

    A node's weight is the sum of the weights of the drafters that proposed it. From the root down
    the heaviest child is taken. Ties go to the child with the heaviest drafter, then to the child
    whose heaviest drafter has the lowest index. The winner is the heaviest drafter of the path's
    last node.
    """
    node_weights = tuple(
        sum(vote_weights.weights[drafter] for drafter in trie.drafters(node))
        for node in range(len(trie.tree))
    )
    children = trie.tree.child_lists()
    path: list[int] = []
    node = ROOT
    while children[node]:
        node = max(
            children[node],
            key=lambda child: (
                round(node_weights[child], DIGITS),
                *_heaviest_drafter(trie, vote_weights, child),
            ),
        )
        path.append(node)
    # Decided at the last node: only drafters whose sequence is the whole path may win.
    winner = -_heaviest_drafter(trie, vote_weights, node)[1] if path else None
    return Selection(tuple(path), node_weights, winner)


def vote_tree(trie: MergedTree, vote_weights: VoteWeights) -> Selection:
    """The `vote_nodes` best nodes by weighted cumulative score.

    The set is closed under ancestors: a drafter's cumulative score never rises along a path, and a
    parent has a lower number than its children.
    """
    total = sum(vote_weights.weights.values())
    node_weights = tuple(
        sum(
            vote_weights.weights[drafter] * trie.cumulative_score(node, drafter)
            for drafter in trie.drafters(node)
        )
        # A node weighs 1 if all drafters are certain of it.
        / total
        for node in range(len(trie.tree))
    )
    by_weight = sorted(range(len(node_weights)), key=lambda node: (-node_weights[node], node))
    return Selection(tuple(sorted(by_weight[: vote_weights.vote_nodes])), node_weights)


def _heaviest_drafter(trie: MergedTree, vote_weights: VoteWeights, node: int) -> tuple[float, int]:
    """The rounded weight and the negated index of the heaviest drafter that proposed a node."""
    return max(
        (round(vote_weights.weights[drafter], DIGITS), -drafter) for drafter in trie.drafters(node)
    )
