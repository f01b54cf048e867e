"""Strategies for random trees and drafts; paths in trees."""

from collections.abc import Sequence

import torch
from hypothesis import settings
from hypothesis import strategies as st

from core.trees.draft import Draft
from core.trees.tree import ROOT, depths_of

LAW = settings(derandomize=True, max_examples=40)
"""The same examples in every run."""


@st.composite
def parents(draw: st.DrawFn, max_size: int = 12) -> list[int]:
    size = draw(st.integers(1, max_size))
    return [draw(st.integers(ROOT, i - 1)) for i in range(size)]


@st.composite
def drafts(draw: st.DrawFn, vocab: int = 3, max_size: int = 8) -> Draft:
    """Tokens may repeat under one parent, as in independent draws."""
    result = draw(parents(max_size))
    token_ids = draw(
        st.lists(st.integers(0, vocab - 1), min_size=len(result), max_size=len(result))
    )
    scores = draw(st.lists(st.floats(0.01, 0.99), min_size=len(result), max_size=len(result)))
    ranks = [result[:i].count(parent) for i, parent in enumerate(result)]
    rows = {parent: row for row, parent in enumerate(dict.fromkeys(result))}
    q = torch.full((len(rows), vocab), 1.0 / vocab, dtype=torch.float64)
    drawn = draw(st.booleans())
    return Draft(
        token_ids, result, scores, [1.0 / vocab if drawn else 1.0] * len(result), ranks, rows, {},
        None, None, q if drawn else None,
    )  # fmt: skip


def ancestors(parents: Sequence[int], node: int) -> set[int]:
    """The node and its ancestors, without the root."""
    results = set()
    while node != ROOT:
        results.add(node)
        node = parents[node]
    return results


def paths(token_ids: Sequence[int], parents: Sequence[int]) -> list[tuple[int, ...]]:
    results: list[tuple[int, ...]] = []
    for token_id, parent in zip(token_ids, parents, strict=True):
        above = () if parent == ROOT else results[parent]
        results.append((*above, token_id))
    assert [len(path) for path in results] == list(depths_of(parents))
    return results
