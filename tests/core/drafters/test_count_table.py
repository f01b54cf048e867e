"""Counts, trees and memory of the count table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.drafters.count_table import (
    CANDIDATES,
    LONGEST_CONTEXT,
    ONCE,
    add_text,
    count_tokens,
    grow_tree,
    insert_rows,
    new_table,
    own_weights,
)

Tree = dict[tuple[int, ...], tuple[float, int]]


def table_of(text: Sequence[int], rows: int = 1024, first: int = 1) -> np.ndarray:
    table = new_table(rows)
    add_text(table, np.array(text, np.int64), first)
    return table


def tree_of(
    table: np.ndarray, tail: Sequence[int], depth: int = 3, budget: int = 16, *,
    chain: bool = False, ends: Sequence[int] = (), rates: Sequence[float] = (1.0,) * 4,
) -> tuple[Tree, int]:  # fmt: skip
    """The score and rank of each path's last node, and the number of look-ups."""
    room = (budget + 1) * CANDIDATES
    nodes = np.empty((budget, 6))
    size, lookups = grow_tree(
        table, np.array(tail[-LONGEST_CONTEXT:], np.int64), depth, budget, chain,
        np.array(ends, np.int64), np.array(rates), np.zeros((5, room), np.int64),
        np.zeros((2, room)), np.zeros(LONGEST_CONTEXT + depth, np.int64), nodes,
    )  # fmt: skip
    paths: list[tuple[int, ...]] = []
    for token, parent in nodes[:size, :2].astype(int).tolist():
        assert parent < len(paths), "parents come first"
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    values = nodes[:size, 2:4].tolist()
    return {path: (s, int(rank)) for path, (s, rank) in zip(paths, values, strict=True)}, lookups


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=60))
def test_own_counts_are_those_of_a_dictionary(text: list[int]) -> None:
    counted: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for at in range(1, len(text)):
        for length in range(1, min(LONGEST_CONTEXT, at) + 1):
            counted[tuple(text[at - length : at])][text[at]] += 1
    table = table_of(text, 1 << 14)
    rows = table[table[:, -1] > 0]
    assert len(rows) == len(counted)
    ours = Counter[tuple[int, int, int]]()
    for row in rows.tolist():
        for token, entry in zip(row[:CANDIDATES], row[CANDIDATES : 2 * CANDIDATES], strict=True):
            if entry and entry & 3 == row[-1]:
                ours[row[-1], token, (entry >> 2) // ONCE] += 1
    theirs = Counter[tuple[int, int, int]]()
    for context, tokens in counted.items():
        for token, count in tokens.items():
            theirs[len(context), token, count] += 1
    # Only counts after one-token contexts are compared: an entry of a longer context may also have
    # weight inherited from a shorter context.
    of_last = {key for key in theirs if key[0] == 1}
    assert {key: theirs[key] for key in of_last} == {k: ours[k] for k in ours if k[0] == 1}
    assert sum(ours.values()) == sum(theirs.values())


def test_the_longest_context_decides_and_shorter_ones_follow() -> None:
    table = table_of([5, 2, 3, 4, 0, 6, 2, 3, 4, 0, 1, 2, 3, 9])
    tree, _ = tree_of(table, [1, 2, 3], depth=1)
    assert set(tree) == {(9,), (4,)}
    # 9 was counted once after 1 2 3; the earlier counts after 2 3 weigh as three tokens.
    assert tree[4,][0] == pytest.approx(0.75) and tree[9,][0] == pytest.approx(0.25)
    assert tree_of(table, [7, 2, 3], depth=1)[0][4,][1] == 0
    assert sum(score for score, _ in tree.values()) == pytest.approx(1.0)


def test_a_row_is_read_once_a_node() -> None:
    text = np.random.default_rng(0).integers(0, 50, 4000).tolist()
    table = table_of(text, 1 << 14)
    tree, lookups = tree_of(table, text[1000:1003], depth=6, budget=32)
    # A node below the root reads at most one row.
    assert len(tree) == 32 and lookups <= len(tree) + LONGEST_CONTEXT


def test_memory_is_bounded_and_repeated_texts_stay() -> None:
    table = new_table(256)
    often = [901, 902, 903, 904]
    for seed in range(300):
        noise = np.random.default_rng(seed).integers(0, 800, 20).tolist()
        add_text(table, np.array([*often, *noise], np.int64), 1)
    assert table.shape == (256, 16)
    assert tree_of(table, often[:3], depth=1)[0][904,][1] == 0


def test_probabilities_are_counted_as_parts_of_a_token() -> None:
    table = new_table(64)
    ids, weights = np.array([[5, 6]]), np.array([[ONCE * 3 // 4, ONCE // 4]])
    count_tokens(table, np.array([1, 0]), 1, ids, weights)
    tree, _ = tree_of(table, [1], depth=1)
    assert {token: score for (token,), (score, _) in tree.items()} == {5: 0.75, 6: 0.25}


def test_rows_without_weight_are_overwritten_in_their_own_bucket() -> None:
    """The table has two buckets: even tokens are in the first bucket, odd tokens in the second."""
    table = new_table(8)
    for token in (1, 3, 5, 7):
        add_text(table, np.array([token, 9]), 1)
    others = table[4:].copy()
    for token in (0, 2, 4, 6, 8):
        count_tokens(table, np.array([token, 9]), 1, np.array([[5]]), np.array([[0]]))
    assert (table[:, -1] == 1).all()
    assert np.array_equal(table[4:], others)


def test_an_end_of_text_has_no_children_and_a_chain_no_siblings() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3]
    tree, _ = tree_of(table_of(text), [9, 1], ends=[2])
    assert set(tree) == {(2,)}
    chain, _ = tree_of(table_of(text), [9, 1], depth=4, chain=True)
    assert sorted(map(len, chain)) == [1, 2, 3, 4] and {rank for _, rank in chain.values()} == {0}


def test_rates_scale_the_scores_by_context_length() -> None:
    table = table_of([1, 2, 3, 1, 2, 3])
    full, _ = tree_of(table, [8, 2], depth=1)
    half, _ = tree_of(table, [8, 2], depth=1, rates=(1.0, 0.5, 1.0, 1.0))
    assert half[3,][0] == pytest.approx(full[3,][0] / 2)


def test_rows_can_be_inserted_into_a_table_of_another_size() -> None:
    text = np.random.default_rng(1).integers(0, 30, 600).tolist()
    large = table_of(text, 1 << 12)
    rows = large[large[:, -1] > 0]
    copy = new_table(1 << 13)
    insert_rows(copy, rows)
    for at in range(3, 300, 7):
        tail = text[at - 3 : at]
        assert tree_of(copy, tail)[0] == tree_of(large, tail)[0]
    small = new_table(64)
    insert_rows(small, rows)
    assert own_weights(small).sum() > 0


def test_a_row_that_is_left_out_changes_no_other_row() -> None:
    table = new_table(4)
    for token in range(4):
        count_tokens(table, np.array([token, 9]), 1, np.array([[5]]), np.array([[10 * ONCE]]))
    before = table.copy()
    light = table_of([6, 9])
    insert_rows(table, light[light[:, -1] > 0])
    assert np.array_equal(table, before)


def test_a_row_that_is_inserted_fades_the_other_rows_of_its_bucket() -> None:
    table = new_table(4)
    for token in range(4):
        weight = np.array([[(token + 1) * 16 * ONCE]])
        count_tokens(table, np.array([token, 9]), 1, np.array([[5]]), weight)
    heavy = new_table(4)
    count_tokens(heavy, np.array([6, 9]), 1, np.array([[7]]), np.array([[16 * ONCE]]))
    insert_rows(table, heavy[:1])
    assert np.array_equal(table[0], heavy[0])
    assert own_weights(table).tolist() == [16, 30, 45, 60]
