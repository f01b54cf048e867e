"""Draft shapes, drafter names, walks and the fixed length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import SpeculationConfig
from core.config.budget import cut_shape, shape_nodes
from core.drafters import make_drafters, resolve_drafters
from core.drafters.ssm_pool import SsmPool
from core.errors import ConfigError
from core.speculation_length import Choice, RoundOutcome
from core.speculation_length.fixed import Fixed
from core.trees.draft import Draft
from tests.fakes import TableModel, loaded_tables, random_table
from tests.laws.trees import LAW

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


@pytest.mark.parametrize(
    ("shape", "nodes"), [((), 0), ((1,), 1), ((1, 1, 3, 1), 8), ((2, 2, 2), 14), ((4,), 4)]
)
def test_shape_nodes_counts_the_nodes_of_an_expansion(shape: tuple[int, ...], nodes: int) -> None:
    assert shape_nodes(shape) == nodes


@pytest.mark.parametrize(
    ("shape", "budget", "cut"),
    [
        ((1, 1, 3, 1), 8, (1, 1, 3, 1)),
        ((1, 1, 3, 1), 7, (1, 1, 3)),
        ((1, 1, 3, 1), 4, (1, 1)),
        ((4, 2), 11, (4,)),
        ((4, 2), 3, (3,)),
        ((4, 2), 1, (1,)),
        ((4, 2), 0, ()),
    ],
)
def test_depth_is_cut_before_width(shape: tuple[int, ...], budget: int, cut: tuple[int, ...]):
    assert cut_shape(shape, budget) == cut


@LAW
@given(SHAPES, st.integers(1, 60))
def test_a_cut_shape_fits_and_wastes_no_step(shape: tuple[int, ...], budget: int) -> None:
    cut = cut_shape(shape, budget)
    assert 1 <= shape_nodes(cut) <= budget
    assert cut == shape[: len(cut)] or len(cut) == 1
    if len(cut) < len(shape):
        assert shape_nodes(shape[: len(cut) + 1]) > budget


def test_a_walk_follows_the_first_of_equal_draws() -> None:
    draft = Draft([4, 4, 7, 7, 9], [-1, -1, 1, 0, 3])
    assert draft.walk((4, 7, 9, 1)) == [0, 3, 4]
    assert draft.walk((5,)) == draft.walk(()) == []
    assert draft.depths == (1, 1, 2, 2, 3)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (("all",), ("a", "b")),
        (("first",), ("a",)),
        (("b",), ("b",)),
        (("ngram", "all"), ("ngram", "a", "b")),
        (("b", "all"), ("b", "a")),
        ((), ()),
    ],
)
def test_names_are_resolved_in_order(asked: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert resolve_drafters(asked, ("a", "b")) == names


def test_unknown_names_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^drafters is 'c': it must be one of all, first, a, b, ngram, suffix, table$",
    ):
        resolve_drafters(("a", "c"), ("a", "b"))


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (("all",), ("suffix", "table")),
        (("first",), ("suffix",)),
        (("all", "ngram"), ("suffix", "table")),
        (("ngram",), ("ngram",)),
        ((), ()),
    ],
)
def test_without_an_ssm_lookups_take_its_place(
    asked: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert resolve_drafters(asked, ()) == names


def test_every_ssm_and_every_lookup_is_a_drafter() -> None:
    tables = [TableModel(name, 3, random_table(3, 0)) for name in ("llm", "a", "b")]
    models = loaded_tables(tables[0], tables[1:])
    drafters = make_drafters(SsmPool(models.ssms, models.llm.vocab_size), models.llm.vocab_size)
    assert {name: drafter.name for name, drafter in drafters.items()} == {
        "a": "a", "b": "b", "ngram": "ngram", "suffix": "suffix", "table": "table",
    }  # fmt: skip


@pytest.mark.parametrize("length", [0, 1, 16])
def test_a_fixed_length_does_not_change(length: int) -> None:
    policy = Fixed(SpeculationConfig(speculation_length=length))
    for tokens in range(1, 4):
        assert policy.choose() == Choice(length)
        policy.observe(RoundOutcome(length, tokens, length, 1.0, 2.0))
    assert policy.choose() == Choice(length)
