"""TokenTree: a tree of drafted tokens, as parallel arrays.

The root is the last committed token, not a node. A parent has a lower number than its children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ROOT", "Proposal", "TokenTree", "depths_of", "path_of"]

ROOT = -1


@dataclass(frozen=True, slots=True)
class Proposal:
    """One drafter's proposal of a node.

    `drafter`: index in the run's order of drafters. `score`: the drafter's estimate of P(the node
    is accepted | its parent is). `rank`: the order, from 0, among siblings in the drafter's draft;
    0 or 1 in a fused draft (see core/drafters/fused_tree.py). `q`: the probability with which the
    token was drawn, 1 for a deterministic proposal. `row`: the row of `Draft.q` from which the
    token was drawn, None for a deterministic proposal.
    """

    drafter: int
    score: float
    rank: int
    q: float = 1.0
    row: int | None = None


@dataclass(frozen=True, slots=True)
class TokenTree:
    """A tree of drafted tokens under the root; parallel tuples of one length, parents first."""

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    proposals: tuple[tuple[Proposal, ...], ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(self.token_ids), len(self.parents), len(self.depths), len(self.proposals)}
        if len(sizes) != 1:
            raise ValueError(
                f"TokenTree arrays have lengths {sorted(sizes)}: one length is allowed"
            )

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def depth(self) -> int:
        """Depth of the deepest node; children of the root have depth 1; 0 without nodes."""
        return max(self.depths, default=0)

    def child_lists(self) -> list[list[int]]:
        """Children of every node; the last entry (index -1 == ROOT) has the root's children."""
        lists: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for i, parent in enumerate(self.parents):
            lists[parent].append(i)
        return lists

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from a child of the root down to `node`; empty for ROOT."""
        return path_of(self.parents, node)

    def tokens_to(self, node: int) -> tuple[int, ...]:
        """The token ids along `path(node)`."""
        return tuple(self.token_ids[i] for i in self.path(node))


def path_of(parents: Sequence[int], node: int) -> tuple[int, ...]:
    """Nodes from a child of the root down to `node`; empty for ROOT."""
    nodes: list[int] = []
    while node != ROOT:
        nodes.append(node)
        node = parents[node]
    return tuple(reversed(nodes))


def depths_of(parents: Sequence[int]) -> tuple[int, ...]:
    """Depth of each node, from `parents`, in which a parent comes before its children."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return tuple(depths)
