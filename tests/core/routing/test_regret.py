"""Regret on synthetic traces with known results."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.routing.regret import chain_lengths, regret_of

DEPTH = 3


def trace(text: str) -> list[bool]:
    return [one == "x" for one in text]


def test_chains_end_at_the_first_miss_and_at_the_depth() -> None:
    assert chain_lengths(trace("xx.xxxxx"), 3) == [2, 1, 0, 3, 3, 3, 2, 1]
    assert chain_lengths(trace("xxxx"), 2) == [2, 2, 2, 1] and chain_lengths([], 4) == []


def test_always_routing_to_the_best_drafter_has_no_regret() -> None:
    hits = {"good": trace("x" * 40), "bad": trace("." * 40)}
    regret = regret_of(hits, [{"good"}] * 40, DEPTH)
    assert regret.fixed.drafters == ("good",) and regret.fixed.passes == 10
    assert regret.against(regret.fixed) == regret.against(regret.oracle) == 0
    assert regret.fixed.tokens_per_pass == DEPTH + 1 and regret.group is None
    wrong = regret_of(hits, [{"bad"}] * 40, DEPTH)
    assert wrong.routed.passes == 40 and wrong.against(wrong.fixed) == 3.0


def test_where_the_domain_changes_the_oracle_beats_every_fixed_drafter() -> None:
    hits = {"story": trace("x" * 20 + "." * 20), "code": trace("." * 20 + "x" * 20)}
    regret = regret_of(hits, [{"story"}] * 20 + [{"code"}] * 20, DEPTH)
    assert [one.passes for one in regret.alone] == [25, 25]
    assert regret.oracle.passes == regret.routed.passes == 10
    assert regret.against(regret.fixed) == pytest.approx(10 / 25 - 1)
    late = regret_of(hits, [{"story"}] * 28 + [{"code"}] * 12, DEPTH)
    assert late.routed.passes == 5 + 8 + 3 and late.against(late.oracle) == pytest.approx(0.6)


def test_a_routed_group_is_compared_with_the_best_group_of_its_size() -> None:
    hits = {"a": trace("xx......"), "b": trace("...xxxxx"), "c": trace("xxx.....")}
    regret = regret_of(hits, [{"a", "b"}] * 8, DEPTH)
    # Tokens of each pass: 3, 4, 1 with a and b; 4, 4 with b and c.
    assert regret.routed.passes == 3 and regret.routed.drafters == ("a", "b")
    assert regret.group is not None and regret.group.drafters == ("b", "c")
    assert regret.group.passes == regret.oracle.passes == 2
    assert regret.fixed.drafters == ("b",) and regret.fixed.passes == 5


def test_a_routed_ssm_without_hits_has_no_tokens_accepted() -> None:
    regret = regret_of({"a": trace("xxxx")}, [{"gone"}] * 4, DEPTH)
    assert regret.routed.passes == 4 and regret.oracle.passes == 1 and regret.group is None


hits_of_three = st.integers(1, 9).flatmap(
    lambda size: st.lists(
        st.lists(st.booleans(), min_size=size, max_size=size), min_size=3, max_size=3
    )
)


@given(hits_of_three, st.integers(1, 4), st.data())
def test_the_oracle_is_the_best_of_all_sequences_of_choices(
    rows: list[list[bool]], depth: int, data: st.DataObject
) -> None:
    size, names = len(rows[0]), ("a", "b", "c")
    hits = dict(zip(names, rows, strict=True))
    chains = {name: chain_lengths(own, depth) for name, own in hits.items()}

    @cache
    def fewest(place: int) -> int:
        if place >= size:
            return 0
        longest = max(chains[name][place] for name in names)
        return 1 + min(fewest(place + taken + 1) for taken in range(longest + 1))

    routes = [{data.draw(st.sampled_from(names))} for _ in range(size)]
    regret = regret_of(hits, routes, depth)
    assert regret.oracle.passes == fewest(0)
    choices = (regret.routed, regret.fixed, *regret.alone)
    assert all(one.passes >= regret.oracle.passes and one.tokens == size for one in choices)
    pairs = {pair for pair in product(names, repeat=2) if len(set(pair)) == 2}
    two = regret_of(hits, [set(pair) for pair in pairs][:1] * size, depth)
    assert two.group is not None and regret.oracle.passes <= two.group.passes <= two.routed.passes
