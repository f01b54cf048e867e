"""The rules that combine drafts into one tree."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.mechanisms import COMBINE_RULES
from core.trees.combine import CombinedTree, VoteWeights, combine, merge_drafts
from core.trees.draft import Draft
from core.trees.tree import ROOT
from tests.laws.trees import LAW, drafts


def chain(*token_ids: int, score: float = 0.5) -> Draft:
    count = len(token_ids)
    return Draft(
        list(token_ids), [i - 1 if i else ROOT for i in range(count)], [score] * count,
        [1.0] * count, [0] * count,
    )  # fmt: skip


def vote(sequences: list[Draft], weights: list[float], nodes: int = 12) -> CombinedTree:
    return combine("vote", dict(enumerate(sequences)), VoteWeights(dict(enumerate(weights)), nodes))


def test_the_majority_wins_against_the_heaviest() -> None:
    result = vote([chain(1, 2, 3), chain(4, 5, 6), chain(4, 5, 7)], [1.5, 1.0, 0.9])
    assert result.tree.token_ids == (4, 5, 6)
    assert result.node_weights == (1.9, 1.9, 1.0)
    assert result.winner == 1
    assert result.dropped == ((0, 0), (0, 1), (0, 2), (2, 2))
    assert result.dropped_node_weights == (1.5, 1.5, 1.5, 0.9)


def test_the_winner_is_a_sequence_that_one_drafter_drafted() -> None:
    # The heaviest tokens of the three positions are 1, 5 and 9; no drafter drafted this sequence.
    result = vote([chain(1, 2, 9), chain(1, 3, 9), chain(4, 5, 9), chain(6, 5, 9)], [1.0] * 4)
    assert result.tree.token_ids == (1, 2, 9)
    assert result.winner == 0


def test_a_tie_goes_to_the_heavier_single_drafter() -> None:
    result = vote([chain(1), chain(1), chain(2)], [0.5, 0.5, 1.0])
    assert result.tree.token_ids == (2,) and result.winner == 2


def test_a_tie_of_equals_goes_to_the_lower_index() -> None:
    result = vote([chain(3), chain(2), chain(1)], [1.0, 1.0, 1.0])
    assert result.tree.token_ids == (3,) and result.winner == 0


def test_weights_that_differ_only_by_rounding_are_equal() -> None:
    weight = (0.1 + 0.2) / 0.3
    assert weight > 1.0
    result = vote([chain(3), chain(2), chain(1)], [1.0, weight, 1 / weight])
    assert result.tree.token_ids == (3,) and result.winner == 0
    # Up to rounding this is a tie, and the single drafter wins.
    result = vote([chain(1), chain(1), chain(2)], [weight, weight, 2.0])
    assert result.tree.token_ids == (2,) and result.winner == 2


def test_a_vote_of_two_is_always_the_heavier_one() -> None:
    for heavier in (0, 1):
        weights = [1.0, 1.0]
        weights[heavier] = 1.001
        result = vote([chain(1, 2), chain(3, 4)], weights)
        assert result.winner == heavier


def test_a_longer_sequence_also_has_the_votes_of_its_beginning() -> None:
    result = vote([chain(1, 2), chain(1, 2, 3), chain(5, 6, 7)], [1.0, 1.0, 1.9])
    assert result.tree.token_ids == (1, 2, 3) and result.winner == 1
    assert result.node_weights == (2.0, 2.0, 1.0)


def test_without_drafts_there_is_no_winner() -> None:
    for rule in COMBINE_RULES:
        result = combine(rule, {0: Draft(), 1: Draft()}, VoteWeights({0: 1.0, 1: 1.0}))
        assert len(result.tree) == 0 and result.winner is None and result.dropped == ()


def test_proposals_of_the_winning_path_are_all_kept() -> None:
    result = vote([chain(1, 2), chain(1, 3), chain(1, 2)], [1.0, 1.0, 1.0])
    assert [[p.drafter for p in offered] for offered in result.tree.proposals] == [
        [0, 1, 2],
        [0, 2],
    ]


def vote_tree(sequences: list[Draft], weights: list[float], nodes: int) -> CombinedTree:
    return combine(
        "vote_tree", dict(enumerate(sequences)), VoteWeights(dict(enumerate(weights)), nodes)
    )


def test_vote_tree_keeps_the_heaviest_nodes() -> None:
    sequences = [chain(1, 2, score=0.9), chain(3, 4, score=0.5), chain(1, 5, score=0.8)]
    result = vote_tree(sequences, [1.0, 2.0, 3.0], 3)
    # A node's weight: the sum of drafter weight x path probability, divided by 6, the sum of the
    # weights.
    assert result.tree.token_ids == (1, 3, 5)
    assert result.node_weights == pytest.approx(((0.9 + 2.4) / 6, 1.0 / 6, 1.92 / 6))
    assert result.dropped == ((0, 1), (1, 1))
    assert result.dropped_node_weights == pytest.approx((0.81 / 6, 0.5 / 6))
    assert result.winner is None


@LAW
@given(
    parts=st.lists(drafts(), min_size=1, max_size=3),
    weights=st.lists(st.floats(0.01, 10), min_size=3, max_size=3),
    nodes=st.integers(1, 12),
)
def test_vote_tree_keeps_a_tree_that_a_larger_budget_keeps_too(
    parts: list[Draft], weights: list[float], nodes: int
) -> None:
    whole = merge_drafts(dict(enumerate(parts))).tree
    paths = [
        {result.tree.tokens_to(node) for node in range(len(result.tree))}
        for result in (vote_tree(parts, weights, nodes), vote_tree(parts, weights, nodes + 1))
    ]
    assert paths[0] <= paths[1]
    assert len(paths[0]) == min(nodes, len(whole))
    for path in paths[0]:
        assert len(path) == 1 or path[:-1] in paths[0]


@LAW
@given(parts=st.lists(drafts(), min_size=1, max_size=3))
def test_vote_tree_without_a_cut_is_the_union(parts: list[Draft]) -> None:
    named = dict(enumerate(parts))
    uncut = vote_tree(parts, [1.0] * 3, 256)
    assert uncut.tree == combine("union", named).tree and uncut.dropped == ()


def test_every_drafted_node_is_verified_or_dropped_once() -> None:
    parts = [chain(1, 2, 3), chain(1, 4), chain(5, 2)]
    for rule, nodes in itertools.product(COMBINE_RULES, (1, 3, 9)):
        named = dict(enumerate(parts))
        result = combine(rule, named, VoteWeights(dict.fromkeys(named, 1.0), nodes))
        kept = sum(len(offered) for offered in result.tree.proposals)
        assert kept + len(result.dropped) == sum(map(len, parts))
        assert len(result.dropped_node_weights) in (0, len(result.dropped))
        assert (result.winner is not None) == COMBINE_RULES[rule].chains, "a winner is rewarded"


def test_log_pool_node_weights_are_weighted_geometric_means() -> None:
    parts = {0: chain(1, 2, score=0.8), 1: chain(1, 2, score=0.2), 2: chain(3, score=0.5)}
    result = combine("log_pool", parts, VoteWeights({0: 3.0, 1: 1.0, 2: 4.0}))
    assert result.tree.token_ids == (1, 2, 3) and result.winner is None
    one = 0.8 ** (3 / 4) * 0.2 ** (1 / 4)
    assert result.node_weights == pytest.approx((one, one**2, 0.5)), "mean over a node's drafters"
    alone = combine("log_pool", {0: chain(1, 2, score=0.8)}, VoteWeights({0: 7.0}))
    assert alone.node_weights == pytest.approx((0.8, 0.64)), (
        "one drafter's node weights are its probabilities"
    )


def test_a_node_is_kept_if_it_is_for_one_drafter() -> None:
    parts = {0: chain(1, 2, score=0.9), 1: chain(1, 2, score=0.1), 2: chain(3, score=0.1)}
    result = combine("union", parts, None, lambda score: score > 0.5)
    assert result.tree.token_ids == (1, 2)
    assert result.dropped == ((2, 0),)


def test_nothing_below_a_dropped_node_is_kept() -> None:
    parts = {0: chain(1, 2, 3, score=0.5)}
    result = combine("union", parts, None, lambda score: score != 0.25)
    assert result.tree.token_ids == (1,)
    assert result.dropped == ((0, 1), (0, 2))
