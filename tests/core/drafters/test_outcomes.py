"""The likeliest outcomes of a verification."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.drafters.base import MIN_OUTCOME_PROBABILITY, top_outcomes
from core.trees.tree import ROOT, TokenTree, depths_of
from tests.laws.trees import LAW, parents

VOCAB = 4


def tree_of(token_ids: list[int], above: list[int]) -> TokenTree:
    none = tuple(() for _ in above)
    return TokenTree(tuple(token_ids), tuple(above), depths_of(above), none)


def outcome_probabilities(tree: TokenTree, scores: torch.Tensor) -> dict[tuple[int, ...], float]:
    results: dict[tuple[int, ...], float] = {}
    open_paths: list[tuple[int, tuple[int, ...], float]] = [(ROOT, (), 1.0)]
    while open_paths:
        node, path, mass = open_paths.pop()
        for token_id in range(VOCAB):
            share = mass * float(scores[node + 1, token_id])
            child = next(
                (c for c in tree.child_lists()[node] if tree.token_ids[c] == token_id), None
            )
            if child is None:
                results[(*path, token_id)] = share
            else:
                open_paths.append((child, (*path, token_id), share))
    return results


@LAW
@given(parents(6), st.integers(0, 99), st.integers(1, 8))
def test_top_outcomes_are_the_likeliest_of_all(above: list[int], seed: int, count: int) -> None:
    taken = itertools.count()
    seen: dict[tuple[int, int], int] = {}
    token_ids = [seen.setdefault((p, i), next(taken)) % VOCAB for i, p in enumerate(above)]
    unique = len({(p, t) for p, t in zip(above, token_ids, strict=True)}) == len(above)
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(len(above) + 1, VOCAB, generator=generator).softmax(dim=-1)
    tree = tree_of(token_ids, above)
    if not unique:  # a tree never holds a token twice under one parent
        return
    every = outcome_probabilities(tree, scores)
    assert sum(every.values()) == pytest.approx(1.0)
    result = top_outcomes(tree, scores, count)
    best = sorted(every.values(), reverse=True)[:count]
    worthwhile = [p for p in best if p >= MIN_OUTCOME_PROBABILITY]
    assert [one.probability for one in result] == pytest.approx(worthwhile)
    for one in result:
        assert every[one.token_ids] == pytest.approx(one.probability)


def test_nothing_follows_an_end_of_text() -> None:
    tree = tree_of([1, 2], [ROOT, 0])
    scores = torch.tensor([[0.1, 0.8, 0.0, 0.1], [0.3, 0.3, 0.4, 0.0], [0.5, 0.5, 0.0, 0.0]])
    results = {one.token_ids: one.probability for one in top_outcomes(tree, scores, 20, ends=[1])}
    assert results == pytest.approx({(0,): 0.1, (3,): 0.1})
    results = {one.token_ids: one.probability for one in top_outcomes(tree, scores, 20, ends=[0])}
    assert results == pytest.approx({(3,): 0.1, (1, 1): 0.24, (1, 2, 1): 0.16})


def test_an_empty_tree_has_the_roots_own_tokens() -> None:
    (one,) = top_outcomes(TokenTree(), torch.tensor([[0.2, 0.5, 0.3, 0.0]]), 1)
    assert (one.token_ids, one.probability) == ((1,), 0.5)
