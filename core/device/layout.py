"""Layout: the full tree of an expansion, as tables; what a draft leaves out of it is marked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from core.tree import ROOT, depths_of

__all__ = ["Layout", "Tables"]


@dataclass(frozen=True)
class Layout:
    """The tree of `shape` <k1,...,km>, `copies` of it side by side under one root.

    A copy's nodes lie behind one another, level by level, families in the order of their parents:
    as drafts are numbered where nothing is left out.
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
    def fed(self) -> int:
        """Nodes of one copy that a drafter is fed: all but the last level's."""
        return self.levels[-1].start if self.levels else 0

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Of every node, ROOT for the root."""
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
        """Of every node among its parent's children in its copy."""
        ranks = [
            place % children
            for children, level in zip(self.shape, self.levels, strict=True)
            for place in range(len(level))
        ]
        return tuple(ranks * self.copies)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        return depths_of(self.parents)

    def tables(self, device: torch.device) -> Tables:
        """The same as tensors."""
        size, depth = len(self), len(self.shape)
        sees = torch.zeros((size + 1, size + 1), dtype=torch.bool)
        lineage = torch.zeros((size + 1, depth), dtype=torch.long)
        sees[0, 0] = True
        for node, parent in enumerate(self.parents):
            sees[node + 1] = sees[parent + 1]
            lineage[node + 1] = lineage[parent + 1]
            sees[node + 1, node + 1] = True
            lineage[node + 1, self.depths[node] - 1 :] = node
        return Tables(
            torch.tensor(self.parents, dtype=torch.long).add(1).to(device),
            torch.tensor((0, *self.depths), dtype=torch.long).to(device),
            sees.to(device),
            lineage.to(device),
            tuple(
                torch.tensor([i for i in range(size) if self.depths[i] == d + 1], device=device)
                for d in range(depth)
            ),
        )


@dataclass(frozen=True, slots=True)
class Tables:
    """Of n nodes; row 0 is the root, row i + 1 node i. `parents` (n,): each node's parent's row.
    `depths` (1 + n,). `sees` (1 + n, 1 + n): each row and those above it. `lineage` (1 + n, depth):
    the node at depth 1, 2, ... on the way to a row, behind its end that end itself. `levels`: the
    nodes at depth 1, 2, ..."""

    parents: torch.Tensor
    depths: torch.Tensor
    sees: torch.Tensor
    lineage: torch.Tensor
    levels: tuple[torch.Tensor, ...]
