"""Law 5: a tree node attends to the committed prefix, its ancestors and itself, and to nothing
else."""

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.models.hf_model import HfModel
from core.models.loading.tree_check import checked_model
from core.models.protocol import Feed, chain
from core.trees.tree import depths_of
from tests.fakes import WINDOW, info_of, tiny_module
from tests.laws.trees import LAW, ancestors, parents

PREFIX = tuple((11 * i) % 59 + 2 for i in range(WINDOW + 5))
UNCHANGED_BELOW, CHANGED_ABOVE = 1e-9, 1e-7
# The tiny mistral has two windowed layers: information travels at most one window per layer.
REACH = 2 * (WINDOW - 1)
# RMS norms compute in float32 in every dtype: passes of different widths round differently.
ROUNDING = 1e-5


@cache
def model(family: str) -> HfModel:
    module = tiny_module(family, seed=5)
    return checked_model(module, info_of(module, family))


def tree_logits(
    family: str, prefix: tuple[int, ...], token_ids: list[int], parents: list[int]
) -> torch.Tensor:
    lm = model(family)
    row = lm.open_row()
    try:
        lm.forward([chain(row, prefix, last_only=True)])
        lm.commit(row, range(len(prefix)))
        return lm.forward([Feed(row, token_ids, parents)])[0]
    finally:
        lm.close_row(row)


def with_other_token(token_ids: list[int], node: int) -> list[int]:
    return [(t + 31) % 64 if i == node else t for i, t in enumerate(token_ids)]


def tokens(count: int) -> list[int]:
    return [(17 * i + 5) % 61 for i in range(count)]


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt2"])
@LAW
@given(tree=parents(), data=st.data())
def test_a_changed_token_changes_only_its_descendants(
    family: str, tree: list[int], data: st.DataObject
) -> None:
    node = data.draw(st.integers(0, len(tree) - 1))
    before = tree_logits(family, PREFIX, tokens(len(tree)), tree)
    after = tree_logits(family, PREFIX, with_other_token(tokens(len(tree)), node), tree)
    change = (after - before).abs().amax(dim=-1)
    depths = depths_of(tree)
    for other in range(len(tree)):
        if node not in ancestors(tree, other):
            assert change[other] <= UNCHANGED_BELOW
        elif depths[other] - depths[node] < WINDOW:  # `node` is in the window of `other`
            assert change[other] > CHANGED_ABOVE


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
@LAW
@given(tree=parents(), position=st.integers(0, len(PREFIX) - 1))
def test_every_node_attends_to_the_prefix_within_its_window(
    family: str, tree: list[int], position: int
) -> None:
    change = change_by_prefix(family, tree, position)
    for node, depth in enumerate(depths_of(tree)):
        distance = len(PREFIX) + depth - 1 - position
        # One of gemma2's layers has no window.
        if family != "mistral" or distance < WINDOW:
            assert change[node] > CHANGED_ABOVE
        elif distance > REACH:
            assert change[node] <= UNCHANGED_BELOW


def test_a_chain_grows_out_of_reach_of_the_prefix() -> None:
    chain_parents = list(range(-1, 5))
    change = change_by_prefix("mistral", chain_parents, 0)
    in_reach = REACH - len(PREFIX) + 1
    assert 0 < in_reach < len(chain_parents)
    assert change[:in_reach].min() > CHANGED_ABOVE
    assert change[in_reach:].max() <= UNCHANGED_BELOW


def change_by_prefix(family: str, tree: list[int], position: int) -> torch.Tensor:
    other = tuple(with_other_token(list(PREFIX), position))
    before = tree_logits(family, PREFIX, tokens(len(tree)), tree)
    after = tree_logits(family, other, tokens(len(tree)), tree)
    return (after - before).abs().amax(dim=-1)


@LAW
@given(tree=parents(8), others=parents(5))
def test_dropped_nodes_and_other_rows_do_not_change_the_logits(
    tree: list[int], others: list[int]
) -> None:
    lm = model("llama")
    alone = tree_logits("llama", PREFIX, tokens(len(tree)), tree)
    rows = [lm.open_row(), lm.open_row()]
    try:
        for row, prefix in zip(rows, (PREFIX, PREFIX[:4]), strict=True):
            lm.forward([chain(row, prefix, last_only=True)])
            lm.commit(row, range(len(prefix)))
        # Dropped nodes leave their keys in the cache.
        lm.forward([Feed(rows[0], tokens(len(others)), others)])
        lm.commit(rows[0], [])
        feeds = [Feed(rows[0], tokens(len(tree)), tree), Feed(rows[1], tokens(len(others)), others)]
        together = lm.forward(feeds)[0]
    finally:
        for row in rows:
            lm.close_row(row)
    assert (together - alone).abs().max() <= ROUNDING


@LAW
@given(tree=parents(10), split=st.integers(1, 9))
def test_a_tree_fed_in_two_passes_has_the_same_logits(tree: list[int], split: int) -> None:
    lm, cut = model("gemma2"), min(split, len(tree))
    full = tree_logits("gemma2", PREFIX, tokens(len(tree)), tree)
    row = lm.open_row()
    try:
        lm.forward([chain(row, PREFIX, last_only=True)])
        lm.commit(row, range(len(PREFIX)))
        parts = [lm.forward([Feed(row, tokens(len(tree))[:cut], tree[:cut])])[0]]
        if cut < len(tree):
            parts.append(lm.forward([Feed(row, tokens(len(tree))[cut:], tree[cut:])])[0])
    finally:
        lm.close_row(row)
    assert (torch.cat(parts) - full).abs().max() <= ROUNDING


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "opt"])
@LAW
@given(tree=parents(10))
def test_each_path_has_the_logits_of_its_plain_text(family: str, tree: list[int]) -> None:
    ids = tokens(len(tree))
    logits = tree_logits(family, PREFIX, ids, tree)
    deepest = max(range(len(tree)), key=lambda i: depths_of(tree)[i])
    path = [ids[i] for i in sorted(ancestors(tree, deepest))]
    with torch.inference_mode():
        plain = model(family)._module(input_ids=torch.tensor([[*PREFIX, *path]])).logits[0, -1]
    assert (logits[deepest] - plain.float()).abs().max() <= ROUNDING * plain.abs().max()
