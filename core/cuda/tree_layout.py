"""TreeLayout: the full tree of an expansion as index tables; absent nodes hold no token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from core.trees.tree import ROOT, depths_of

__all__ = ["LayoutTensors", "TreeLayout", "first_equal"]

# More than there are token ids.
TOKENS = 1 << 32


@dataclass(frozen=True)
class TreeLayout:
    """The tree of `shape` <k1,...,km>, `copies` of it side by side under one root.

    Nodes of a copy are numbered level by level, siblings together in the order of their parents:
    as in a Draft that leaves no node out.
    """

    shape: tuple[int, ...]
    copies: int = 1

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def levels(self) -> tuple[range, ...]:
        """The nodes of one copy at depth 1, 2, ..."""
        found, width, start = [], 1, 0
        for children in self.shape:
            width *= children
            found.append(range(start, start + width))
            start += width
        return tuple(found)

    @cached_property
    def num_fed(self) -> int:
        """Nodes of one copy that a drafter's model is fed: all but the last level's."""
        return self.levels[-1].start if self.levels else 0

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Each node's parent, ROOT for the root."""
        found: list[int] = []
        before = range(ROOT, ROOT + 1)
        for children, level in zip(self.shape, self.levels, strict=True):
            found += [before[place // children] for place in range(len(level))]
            before = level
        each = len(found)
        return tuple(
            parent if parent == ROOT else copy * each + parent
            for copy in range(self.copies)
            for parent in found
        )

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Each node's rank among its siblings of the same copy."""
        ranks = [
            place % children
            for children, level in zip(self.shape, self.levels, strict=True)
            for place in range(len(level))
        ]
        return tuple(ranks * self.copies)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        return depths_of(self.parents)

    def tensors(self, device: torch.device) -> LayoutTensors:
        """The same tables on the device."""
        size, depth = len(self), len(self.shape)
        ancestors = torch.zeros((size + 1, size + 1), dtype=torch.bool)
        lineage = torch.zeros((size + 1, depth), dtype=torch.long)
        ancestors[0, 0] = True
        for node, parent in enumerate(self.parents):
            ancestors[node + 1] = ancestors[parent + 1]
            lineage[node + 1] = lineage[parent + 1]
            ancestors[node + 1, node + 1] = True
            lineage[node + 1, self.depths[node] - 1 :] = node
        return LayoutTensors(
            torch.tensor(self.parents, dtype=torch.long).add(1).to(device),
            torch.tensor((0, *self.depths), dtype=torch.long).to(device),
            ancestors.to(device),
            lineage.to(device),
            tuple(
                torch.tensor([i for i in range(size) if self.depths[i] == d + 1], device=device)
                for d in range(depth)
            ),
        )


@dataclass(frozen=True, slots=True)
class LayoutTensors:
    """Tables of n nodes, where row 0 is the root and row i + 1 node i. `parents` (n,): the row of
    each node's parent. `depths` (1 + n,). `ancestors` (1 + n, 1 + n): each row's ancestors and
    itself. `lineage` (1 + n, depth): the node at depth 1, 2, ... on the way to a row; past the
    row's own depth that row's node. `levels`: the nodes at depth 1, 2, ..."""

    parents: torch.Tensor
    depths: torch.Tensor
    ancestors: torch.Tensor
    lineage: torch.Tensor
    levels: tuple[torch.Tensor, ...]


def first_equal(tokens: torch.Tensor, tables: LayoutTensors) -> torch.Tensor:
    """For the root and each node, whose tokens are (rows, n), the first row with the same tokens on
    its path from the root: (rows, 1 + n). Merges the trees of several drafters."""
    rows, size = tokens.shape
    found = torch.arange(size + 1, device=tokens.device).repeat(rows, 1)
    for nodes in tables.levels:
        above = found[:, tables.parents[nodes]]
        key = above * TOKENS + tokens[:, nodes] + 1
        same = key[:, :, None] == key[:, None]
        order = torch.arange(len(nodes), 0, -1, device=tokens.device)
        found[:, nodes + 1] = nodes[(same * order).argmax(-1)] + 1
    return found
