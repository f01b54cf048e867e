"""Merging over tensors: which nodes of trees that lie side by side are the same node."""

from __future__ import annotations

import torch

from core.device.layout import Tables

__all__ = ["first_alike"]

# More than there are token ids.
TOKENS = 1 << 32


def first_alike(tokens: torch.Tensor, tables: Tables) -> torch.Tensor:
    """For the root and each node, whose tokens are (rows, n), the first row with the same tokens on
    its way from the root: (rows, 1 + n)."""
    rows, size = tokens.shape
    found = torch.arange(size + 1, device=tokens.device).repeat(rows, 1)
    for nodes in tables.levels:
        above = found[:, tables.parents[nodes]]
        key = above * TOKENS + tokens[:, nodes] + 1
        same = key[:, :, None] == key[:, None]
        order = torch.arange(len(nodes), 0, -1, device=tokens.device)
        found[:, nodes + 1] = nodes[(same * order).argmax(-1)] + 1
    return found
