"""SuffixDrafter, and its index compared with a plain search."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.suffix import BOUND, GROWTH, SuffixDrafter
from core.drafters.text_index import (
    LONGEST_MATCH,
    MAX_CANDIDATES,
    ORDERS,
    SEPARATOR,
    add_tokens,
    find_tree,
    new_index,
)
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.tree import ROOT
from tests.core.drafters.held import held_bytes
from tests.fakes import sequence_of

CONFIG = SpeculationConfig(drafters=("suffix",))
WEIGHTS = GROWTH ** np.minimum(np.arange(LONGEST_MATCH + 1), BOUND).astype(np.float64)

Paths = dict[tuple[int, ...], float]


def open_drafter(tokens: list[int], **fields: object) -> tuple[SuffixDrafter, TokenSequence]:
    drafter, sequence = SuffixDrafter("suffix", 1024), sequence_of(tokens, CONFIG, **fields)
    assert drafter.open(sequence) == ()
    return drafter, sequence


def draft(
    drafter: SuffixDrafter,
    sequence: TokenSequence,
    shape: tuple[int, ...] = (2,) * 3,
    budget: int = 64,
) -> Draft:
    (drafted,) = drafter.draft([DraftRequest(sequence, 0, "topk", shape, budget)])
    return drafted


def by_hand(own: Sequence[int], earlier: Sequence[int], depth: int) -> Paths:
    """The weight of every path that follows a match. ORDERS are the least lengths of a match."""
    weights: Counter[tuple[int, ...]] = Counter()
    for text, is_own in ((own, True), (earlier, False)):
        for order in ORDERS:
            lengths = [(end, match_length(text, end, own)) for end in range(len(text) - 1)]
            matches = [(end, length) for end, length in lengths if length >= order]
            for end, length in matches[-MAX_CANDIDATES:]:
                followed = list(text[end + 1 :])
                if is_own:
                    followed = (followed * depth)[:depth]
                elif SEPARATOR in followed:
                    followed = followed[: followed.index(SEPARATOR)]
                for steps in range(1, min(depth, len(followed)) + 1):
                    weights[tuple(followed[:steps])] += WEIGHTS[length]
            if matches:
                break
    return weights


def match_length(text: Sequence[int], end: int, own: Sequence[int]) -> int:
    length = 0
    while length < min(LONGEST_MATCH, len(own), end + 1) and text[end - length] == own[-1 - length]:
        length += 1
    return length


def found_paths(own: Sequence[int], earlier: Sequence[int], depth: int, buckets: int) -> Paths:
    indices = [new_index(max(1, len(text)), buckets) for text in (own, earlier)]
    for index, text in zip(indices, (own, earlier), strict=True):
        add_tokens(index, np.array(text, np.int64))
    nodes, matches = np.zeros((4096, 3)), np.zeros((2, 2 * MAX_CANDIDATES), np.int64)
    tail = np.array(own[-LONGEST_MATCH:], np.int64)
    count, _, _ = find_tree(*indices, tail, (0, 0), depth, WEIGHTS, matches, nodes)
    paths: dict[int, tuple[int, ...]] = {ROOT: ()}
    for node, (token, parent, _) in enumerate(nodes[:count].tolist()):
        paths[node] = (*paths[int(parent)], int(token))
    return {paths[node]: nodes[node, 2] for node in range(count)}


texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@given(texts, texts, texts, st.integers(1, 6), st.sampled_from([1, 4, 1024]))
def test_the_tree_is_what_followed_every_match(
    own: list[int], one: list[int], other: list[int], depth: int, buckets: int
) -> None:
    # With one bucket, all positions are in one hash chain: in longer texts, MAX_CANDIDATES would
    # cut off matches.
    earlier = [*one[:15], SEPARATOR, *other[:15]] if buckets == 1 else [*one, SEPARATOR, *other]
    own = own[:30] if buckets == 1 else own
    expected = by_hand(own, earlier, depth)
    assert found_paths(own, earlier, depth, buckets) == pytest.approx(expected)


def test_overwritten_tokens_of_the_ring_are_not_found() -> None:
    index = new_index(32, 8)
    add_tokens(index, np.array([*[1, 2, 3, 4, 5], SEPARATOR], np.int64))
    own = new_index(8, 8)
    tail = np.array([1, 2, 3], np.int64)
    add_tokens(own, tail)
    nodes, matches = np.zeros((64, 3)), np.zeros((2, 2 * MAX_CANDIDATES), np.int64)
    count, longest, _ = find_tree(own, index, tail, (0, 0), 4, WEIGHTS, matches, nodes)
    assert (nodes[:count, 0].tolist(), longest) == ([4, 5], 3)
    add_tokens(index, np.array([9] * 40, np.int64))
    count, _, _ = find_tree(own, index, tail, (0, 0), 4, WEIGHTS, matches, nodes)
    assert count == 0


def test_the_likeliest_nodes_come_parents_first_within_the_budget() -> None:
    drafter, sequence = open_drafter([1, 2, 3, 4, 1, 2, 3, 5, 6, 1, 2, 3, 5, 7, 1, 2, 3])
    drafted = draft(drafter, sequence, budget=3)
    # In the text, 1 2 3 is followed twice by 5 and once by 4.
    assert drafted.token_ids[0] == 5 and len(drafted) == 3
    assert all(parent < node for node, parent in enumerate(drafted.parents))
    roots = [node for node, parent in enumerate(drafted.parents) if parent == ROOT]
    assert [drafted.ranks[node] for node in roots] == list(range(len(roots)))
    assert sum(drafted.scores[node] for node in roots) <= 0.5 + 1e-9, "a rate of 0.5 at first"
    assert drafted.qs == [1.0] * 3 and drafted.q is None and drafted.logits is None


def test_an_expansion_without_branches_is_a_chain() -> None:
    drafter, sequence = open_drafter([1, 2, 3, 4, 1, 2, 3, 5, 6, 1, 2, 3])
    drafted = draft(drafter, sequence, shape=(1,) * 4)
    assert drafted.parents == [-1, 0, 1, 2]


def test_nothing_follows_an_end_of_text() -> None:
    drafter, sequence = open_drafter([1, 2, 9, 4, 1, 2], eos_ids=frozenset({9}))
    assert draft(drafter, sequence).token_ids == [9]


def test_the_draft_ends_with_the_budget_and_the_shape() -> None:
    text = [5, 6, 7, 8, 9, 5]
    assert draft(*open_drafter(text), (1, 1)).token_ids == [6, 7]
    assert draft(*open_drafter(text), (1,) * 9, budget=3).token_ids == [6, 7, 8]
    assert draft(*open_drafter([1, 2, 3])).token_ids == []
    assert draft(*open_drafter([4, 4]), ()).token_ids == []


def test_a_text_that_repeats_itself_is_continued_periodically() -> None:
    assert draft(*open_drafter([5, 6, 5]), (1,) * 5).token_ids == [6, 5, 6, 5, 6]
    assert draft(*open_drafter([4, 4]), (1,) * 4).token_ids == [4] * 4


def test_earlier_texts_are_continued_once_they_have_ended() -> None:
    drafter, first = open_drafter([1, 2, 3, 4, 5])
    second, again = sequence_of([7, 1, 2, 3], CONFIG), sequence_of([1, 2, 3, 4, 5], CONFIG)
    second.run_id, again.run_id = "second", "again"
    drafter.open(second)
    assert not len(draft(drafter, second)), "the first text still runs"
    first.tokens += [6, 1, 2]
    drafter.learn(first)
    drafter.close(first)
    assert draft(drafter, second, (1,) * 4).token_ids == [4, 5, 6, 1]
    drafter.open(again)
    assert not len(draft(drafter, again)), "the same prompt's earlier result is not read"
    drafter.close(second)
    drafter.close(second)


def test_a_run_does_not_read_another_run_of_its_prompt() -> None:
    drafter, first = open_drafter([1, 2, 3])
    other = sequence_of([1, 2, 3], CONFIG)
    other.run_id = "other"
    drafter.open(other)
    other.tokens += [4, 5, 6]
    drafter.learn(other)
    drafter.close(other)
    assert not len(draft(drafter, first))
    third = sequence_of([7, 2, 3], CONFIG)
    drafter.open(third)
    assert draft(drafter, third, (1,) * 3).token_ids == [4, 5, 6]


def test_ngram_reads_only_the_runs_own_text() -> None:
    drafter = SuffixDrafter("ngram")
    one, two = sequence_of([5, 6, 5], CONFIG), sequence_of([5, 9, 5, 6], CONFIG)
    two.run_id = "two"
    for sequence in (one, two):
        drafter.open(sequence)
    requests = [DraftRequest(s, 0, "topk", (1,), 9) for s in (one, two)]
    assert [drafted.token_ids for drafted in drafter.draft(requests)] == [[6], []]
    drafter.close(one)
    assert not len(draft(drafter, two))


def test_a_score_is_the_acceptance_rate_after_matches_of_its_length() -> None:
    drafter, sequence = open_drafter([5, 6, 7, 8, 5])
    first = draft(drafter, sequence, (1,) * 3)
    assert first.scores == [0.5] * 3, "before any verification the rate is 1/2, never 1"
    drafter.commit(sequence, first, (6, 7, 1))  # two accepted, the third rejected
    # The match has one token at the root, two at the first node, and three at the second node.
    assert draft(drafter, sequence, (1,) * 3).scores == [2 / 3, 2 / 3, 1 / 3]
    drafter.commit(sequence, first, (1,))  # none accepted: only the first token was tried
    assert draft(drafter, sequence, (1,) * 3).scores == [2 / 4, 2 / 3, 1 / 3]
    drafter.commit(sequence, first, (6,))  # cut off by the end of the run: nothing was rejected
    assert draft(drafter, sequence, (1,) * 3).scores == [3 / 5, 2 / 3, 1 / 3]


def test_memory_does_not_grow_with_the_runs() -> None:
    drafter, bytes_then = SuffixDrafter("suffix", 64), 0
    for number in range(10_000):
        sequence = sequence_of([number, 1, 2, 3, number], CONFIG)
        sequence.run_id = str(number)
        drafter.open(sequence)
        drafter.commit(sequence, draft(drafter, sequence), (1, 2))
        drafter.learn(sequence)
        drafter.close(sequence)
        if number == 1000:
            bytes_then = held_bytes(drafter)
    # `held_bytes` pickles: larger hashes and positions take a few more bytes.
    assert held_bytes(drafter) < bytes_then + 256
    assert drafter._states == {} and len(drafter._earlier.tokens) == 64
    assert len(drafter._texts) <= 64 // 6 + 1


def test_long_prompts_are_kept_only_in_the_ring() -> None:
    drafter = SuffixDrafter("suffix", 1 << 13)
    tracemalloc.start()
    try:
        for run in range(20):
            sequence = sequence_of(range(1000 * run, 1000 * run + 4000), CONFIG)
            drafter.open(sequence)
            drafter.learn(sequence)
            drafter.close(sequence)
        del sequence
        traced_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One prompt, as a list of numbers, takes at least 32,000 bytes.
    assert traced_bytes < 20_000 and len(drafter._texts) <= 3
