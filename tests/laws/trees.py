"""Strategies for random trees and drafts."""

from collections.abc import Sequence

import torch
from hypothesis import settings
from hypothesis import strategies as st

from core.trees.draft import Draft
from core.trees.tree import ROOT, depths_of

LAW = settings(derandomize=True, max_examples=40)
"""The same examples in every run, however slow the machine."""


@st.composite
def parents(draw: st.DrawFn, most: int = 12) -> list[int]:
    """A parents-first list."""
    size = draw(st.integers(1, most))
    return [draw(st.integers(ROOT, i - 1)) for i in range(size)]


@st.composite
def drafts(draw: st.DrawFn, vocab: int = 3, most: int = 8) -> Draft:
    """A draft with valid rows; tokens may repeat under one parent, as independent draws do."""
    found = draw(parents(most))
    token_ids = draw(st.lists(st.integers(0, vocab - 1), min_size=len(found), max_size=len(found)))
    scores = draw(st.lists(st.floats(0.01, 0.99), min_size=len(found), max_size=len(found)))
    ranks = [found[:i].count(parent) for i, parent in enumerate(found)]
    rows = {parent: row for row, parent in enumerate(dict.fromkeys(found))}
    q = torch.full((len(rows), vocab), 1.0 / vocab, dtype=torch.float64)
    drawn = draw(st.booleans())
    return Draft(
        token_ids, found, scores, [1.0 / vocab if drawn else 1.0] * len(found), ranks, rows, {},
        None, None, q if drawn else None,
    )  # fmt: skip


def ancestors(parents: Sequence[int], node: int) -> set[int]:
    """The node and everything above it, the root left out."""
    found = set()
    while node != ROOT:
        found.add(node)
        node = parents[node]
    return found


def paths(token_ids: Sequence[int], parents: Sequence[int]) -> list[tuple[int, ...]]:
    """The tokens from the root to each node."""
    found: list[tuple[int, ...]] = []
    for token_id, parent in zip(token_ids, parents, strict=True):
        above = () if parent == ROOT else found[parent]
        found.append((*above, token_id))
    assert [len(path) for path in found] == list(depths_of(parents))
    return found
