"""Law 5: merging drafts, and the nodes that `best_first` keeps."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core import SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.calibration import Calibration
from core.drafters.growth import BestFirst
from core.trees.combine import CombinedTree, MergedTree, combine, merge_drafts
from core.trees.draft import Draft
from core.trees.tree import ROOT, TokenTree, depths_of
from tests.fakes import TableModel, random_table, sequence_of
from tests.laws.trees import LAW, drafts, paths

TokenPath = tuple[int, ...]


def union(drafts: Mapping[int, Draft]) -> CombinedTree:
    return combine("union", drafts)


def tree_paths(tree: TokenTree) -> list[TokenPath]:
    return paths(tree.token_ids, tree.parents)


def multiplicities(tree: TokenTree) -> Counter[TokenPath]:
    sizes = [len(proposals) for proposals in tree.proposals]
    return Counter(dict(zip(tree_paths(tree), sizes, strict=True)))


@LAW
@given(draft=drafts(), other=drafts())
def test_paths_are_the_union_and_multiplicities_add(draft: Draft, other: Draft) -> None:
    check_union(draft, other)


def check_union(draft: Draft, other: Draft) -> None:
    tree = union({0: draft, 1: other}).tree
    of_draft = Counter(paths(draft.token_ids, draft.parents))
    of_other = Counter(paths(other.token_ids, other.parents))
    assert multiplicities(tree) == of_draft + of_other, "no proposal is lost"
    assert len(set(tree_paths(tree))) == len(tree), "each path is one node"


def test_control_merged_proposals_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(drafts: Mapping[int, Draft]) -> MergedTree:
        trie = merge_drafts(drafts)
        first = tuple(proposals[:1] for proposals in trie.tree.proposals)
        return replace(trie, tree=replace(trie.tree, proposals=first))

    monkeypatch.setattr("core.trees.combine.merge_drafts", merge)
    draft = Draft([1, 2], [ROOT, 0], [0.5, 0.5], [1.0, 1.0], [0, 0])
    with pytest.raises(AssertionError, match="no proposal is lost"):
        check_union(draft, draft)


@LAW
@given(draft=drafts())
def test_merging_a_draft_with_itself_adds_no_path(draft: Draft) -> None:
    once, twice = union({0: draft}).tree, union({0: draft, 1: draft}).tree
    assert set(tree_paths(once)) == set(tree_paths(twice))
    assert {path: 2 * n for path, n in multiplicities(once).items()} == multiplicities(twice)


@LAW
@given(draft=drafts(), other=drafts(), third=drafts())
def test_the_order_of_drafts_changes_only_the_order_of_lists(
    draft: Draft, other: Draft, third: Draft
) -> None:
    tree = union({0: draft, 1: other, 2: third}).tree
    reverse = union({2: third, 1: other, 0: draft}).tree
    for node, path in enumerate(tree_paths(tree)):
        same = reverse.proposals[tree_paths(reverse).index(path)]
        assert Counter(tree.proposals[node]) == Counter(same)
    assert len(tree) == len(reverse)


@LAW
@given(draft=drafts(), other=drafts())
def test_a_proposal_keeps_its_drafters_numbers(draft: Draft, other: Draft) -> None:
    tree = union({0: draft, 1: other}).tree
    of_tree = Counter(
        (path, p.drafter, p.score, p.rank, p.q, p.row)
        for path, proposals in zip(tree_paths(tree), tree.proposals, strict=True)
        for p in proposals
    )
    expected = Counter(
        (
            path,
            index,
            source.scores[node],
            source.ranks[node],
            source.qs[node],
            source.rows[source.parents[node]] if source.q is not None else None,
        )
        for index, source in enumerate((draft, other))
        for node, path in enumerate(paths(source.token_ids, source.parents))
    )
    assert of_tree == expected


@LAW
@given(draft=drafts())
def test_a_tree_is_parents_first_with_true_depths(draft: Draft) -> None:
    tree = union({0: draft}).tree
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert tree.depths == depths_of(tree.parents)
    assert union({0: draft}).dropped == ()


def grow(seed: int, shape: tuple[int, ...], budget: int) -> tuple[Draft, BestFirst]:
    model = TableModel("table", 5, random_table(5, seed))
    sequence = sequence_of((0, 1, 2), SpeculationConfig(draft="best_first"))
    growth = BestFirst(DraftRequest(sequence, 0, "best_first", shape, budget), Calibration())
    while growth.frontier:
        above = [() if node == ROOT else path_to(growth.out, node) for node in growth.frontier]
        growth.absorb(torch.stack([model.logits((0, 1, 2, *path)) for path in above]))
    return growth.draft(), growth


def path_to(draft: Draft, node: int) -> TokenPath:
    return paths(draft.token_ids, draft.parents)[node]


@LAW
@given(
    seed=st.integers(0, 1000),
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple),
    budget=st.integers(1, 12),
)
def test_best_first_keeps_a_closed_set_of_the_best(
    seed: int, shape: tuple[int, ...], budget: int
) -> None:
    draft, growth = grow(seed, shape, budget)
    everything = growth.whole_draft()
    kept = set(paths(draft.token_ids, draft.parents))
    assert len(draft) == min(budget, len(everything))
    assert all(path[:-1] in kept for path in kept if len(path) > 1), "closed under ancestors"
    assert max(draft.depths) <= len(shape)

    def value(path: TokenPath) -> float:
        product, all_paths = 1.0, paths(everything.token_ids, everything.parents)
        for i in range(len(path)):
            product *= everything.scores[all_paths.index(path[: i + 1])]
        return product

    left_out = set(paths(everything.token_ids, everything.parents)) - kept
    if left_out:
        assert min(map(value, kept)) >= max(map(value, left_out)) * (1 - 1e-9)
