"""TokenTree: parallel arrays, paths, depths."""

import pytest
from hypothesis import given

from core.trees.tree import ROOT, Proposal, TokenTree, depths_of
from tests.laws.trees import LAW, ancestors, parents

#        0 ── 2 ── 4
# root <   └─ 3
#        1
TREE = TokenTree((5, 6, 7, 8, 9), (ROOT, ROOT, 0, 0, 2), (1, 1, 2, 2, 3), ((),) * 5)


def test_an_empty_tree_has_only_its_root() -> None:
    tree = TokenTree()
    assert (len(tree), tree.depth, tree.child_lists()) == (0, 0, [[]])
    assert tree.path(ROOT) == tree.tokens_to(ROOT) == ()


def test_a_tree_gives_children_paths_and_tokens() -> None:
    assert (len(TREE), TREE.depth) == (5, 3)
    assert TREE.child_lists() == [[2, 3], [], [4], [], [], [0, 1]]
    assert TREE.path(4) == (0, 2, 4)
    assert TREE.tokens_to(3) == (5, 8)


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lengths \[0, 1\]: one length"):
        TokenTree((1,), (ROOT,), (1,), ())


def test_a_proposal_without_a_row_is_deterministic() -> None:
    assert (Proposal(0, 0.5, 0).q, Proposal(0, 0.5, 0).row) == (1.0, None)


@LAW
@given(parents())
def test_depths_count_ancestors(above: list[int]) -> None:
    assert depths_of(above) == tuple(len(ancestors(above, i)) for i in range(len(above)))
