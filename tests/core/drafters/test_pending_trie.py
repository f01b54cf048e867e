"""PendingTrie: walks, and the subtree that remains when a path is committed."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from core.drafters.ssm_state import PendingTrie
from core.models.protocol import CACHED
from tests.laws.trees import LAW, parents


def logits_from(number: int) -> torch.Tensor:
    return torch.tensor([float(number)])


def trie_after(token_ids: list[int], above: list[int]) -> PendingTrie:
    pending = PendingTrie(logits_from(-1))
    for place, (token_id, parent) in enumerate(zip(token_ids, above, strict=True)):
        assert pending.add([token_id], [parent], logits_from(place)[None]) == [place]
    return pending


def test_a_walk_ends_after_the_fed_tokens() -> None:
    pending = trie_after([5, 6, 5], [CACHED, 0, CACHED])
    assert pending.walk([5, 6, 7]) == [0, 1]
    assert pending.walk([6]) == []


def test_a_token_fed_twice_is_followed_at_its_first_node() -> None:
    pending = trie_after([5, 5, 8], [CACHED, CACHED, 1])
    assert pending.walk([5, 8]) == [0]


def test_the_subtree_below_a_committed_path_stays() -> None:
    # root - 0:5 - 1:6 - 3:8
    #            \ 2:7 - 4:9 - 5:4
    pending = trie_after([5, 6, 7, 8, 9, 4], [CACHED, 0, 0, 1, 2, 4])
    kept_nodes, new_numbers, rest = pending.subtree_after([0, 2])
    assert kept_nodes == [4, 5] and new_numbers == {2: CACHED, 4: 0, 5: 1}
    assert rest.walk([9, 4]) == [0, 1] and len(rest) == 2
    assert [float(rest.logits[place]) for place in (CACHED, 0, 1)] == [2.0, 4.0, 5.0]
    assert rest.add([3], [1], logits_from(7)[None]) == [2]


@LAW
@given(parents(), st.data())
def test_any_path_leaves_its_subtree(above: list[int], data: st.DataObject) -> None:
    # All tokens differ: paths are unique.
    pending = trie_after(list(range(len(above))), above)
    last = data.draw(st.integers(0, len(above) - 1))
    path = [last]
    while above[path[0]] != CACHED:
        path.insert(0, above[path[0]])
    kept_nodes, new_numbers, rest = pending.subtree_after(path)
    inside = [n for n in range(len(above)) if n != last and _under(above, n, last)]
    assert kept_nodes == inside
    for node in inside:
        tokens = []
        at = node
        while at != last:
            tokens.insert(0, at)
            at = above[at]
        assert rest.walk(tokens)[-1] == new_numbers[node]
        assert float(rest.logits[new_numbers[node]]) == node


def _under(above: list[int], node: int, root: int) -> bool:
    while node != CACHED:
        if node == root:
            return True
        node = above[node]
    return False
