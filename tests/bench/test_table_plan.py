"""The planner of joined tables (after MicroRec), compared with all pairings."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.table_plan import (
    AccessTimes,
    FeatureTable,
    TablePlan,
    join_tables,
    plan_of,
    plan_tables,
)

KB, MB = 1 << 10, 1 << 20
# Times as in a cache hierarchy.
TIMES = AccessTimes(
    {16 * KB: 6.0, 256 * KB: 9.0, MB: 13.0, 8 * MB: 36.0, 64 * MB: 98.0},
    {16 * KB: 1.5, 256 * KB: 1.5, MB: 2.5, 8 * MB: 5.0, 64 * MB: 25.0},
)


def tables_of(shapes: Sequence[tuple[int, int]]) -> list[FeatureTable]:
    return [FeatureTable((str(i),), *shape) for i, shape in enumerate(shapes)]


def pairings(tables: list[FeatureTable]) -> Iterator[list[FeatureTable]]:
    """Every way to join none, some or all of the tables in pairs."""
    if not tables:
        yield []
        return
    first, *others = tables
    for rest in pairings(others):
        yield [first, *rest]
    for i, other in enumerate(others):
        for rest in pairings(others[:i] + others[i + 1 :]):
            yield [join_tables(first, other), *rest]


def optimum(tables: list[FeatureTable], most_bytes: int) -> TablePlan:
    """The fastest of all pairings within `most_bytes`; separate tables are allowed at any size."""
    plans = [plan_of(tables, TIMES)]
    plans += [plan_of(each, TIMES) for each in pairings(tables)]
    return min(
        (plan for plan in plans if plan is plans[0] or plan.bytes <= most_bytes),
        key=lambda plan: (plan.ns, plan.bytes),
    )


shapes = st.tuples(st.integers(1, 60_000), st.sampled_from([4, 8, 16, 32, 64]))


@settings(max_examples=60)
@given(st.lists(shapes, min_size=1, max_size=8), st.integers(0, 256 * MB))
def test_a_plan_is_between_the_optimum_and_separate_tables(
    given_shapes: list[tuple[int, int]], most_bytes: int
) -> None:
    tables = tables_of(given_shapes)
    plan, separate = plan_tables(tables, TIMES, most_bytes), plan_of(tables, TIMES)
    assert optimum(tables, most_bytes).ns <= plan.ns + 1e-9 <= separate.ns + 2e-9
    assert plan.bytes <= max(most_bytes, separate.bytes)
    names = [name for table in plan.tables for name in table.names]
    assert sorted(names) == sorted(str(i) for i in range(len(tables))), "every feature once"
    assert all(len(table.names) <= 2 for table in plan.tables)


@pytest.mark.parametrize(
    ("row_bytes", "least_optimal", "farthest"),
    [((32,), 1.0, 1.0), ((4, 8, 16, 32, 64), 0.7, 1.2)],
    ids=["rows equally long", "rows of many lengths"],
)
def test_how_far_plans_are_from_the_optimum(
    row_bytes: tuple[int, ...], least_optimal: float, farthest: float
) -> None:
    rng, ratios = random.Random(0), []
    for _ in range(150):
        count = rng.randint(2, 8)
        sizes = [(round(2 ** rng.uniform(1, 12)), rng.choice(row_bytes)) for _ in range(count)]
        tables, most_bytes = tables_of(sizes), rng.choice([1, 16, 64, 256]) * MB
        plan = plan_tables(tables, TIMES, most_bytes)
        ratios.append(plan.ns / optimum(tables, most_bytes).ns)
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) >= least_optimal * len(ratios)
    assert max(ratios) <= farthest + 1e-9


def equal_times(ns: float) -> AccessTimes:
    return AccessTimes({MB: ns}, {MB: ns})


def test_small_tables_are_joined_smallest_with_largest() -> None:
    tables = tables_of([(4, 16), (5, 16), (6, 16), (7, 16), (4_000_000, 64)])
    plan = plan_tables(tables, TIMES, 1 << 30)
    assert {frozenset(table.names) for table in plan.tables} == {
        frozenset("03"), frozenset("12"), frozenset("4")
    }  # fmt: skip
    assert [table.row_bytes for table in plan.tables[1:]] == [32, 32]
    assert plan.ns == 98 + 1.5 + 1.5


def test_tables_whose_product_is_slower_are_not_joined() -> None:
    assert len(plan_tables(tables_of([(1000, 32)] * 2), TIMES, 64_000_000).tables) == 2


def test_a_memory_bound_keeps_tables_separate() -> None:
    tables = tables_of([(1000, 32), (1000, 32)])
    assert len(plan_tables(tables, equal_times(10.0), 64_000_000).tables) == 1
    assert len(plan_tables(tables, equal_times(10.0), 63_999_999).tables) == 2


def test_of_equally_fast_plans_the_smallest_is_chosen() -> None:
    """All plans take 0 ns; separate tables need the least storage."""
    assert len(plan_tables(tables_of([(10, 8)] * 4), equal_times(0.0), MB).tables) == 4


@pytest.mark.parametrize(("size", "ns"), [(1, 6.0), (MB, 13.0), (1 << 40, 98.0)])
def test_times_at_and_beyond_measured_sizes(size: int, ns: float) -> None:
    assert TIMES.token_ns(tables_of([(1, size)])) == pytest.approx(ns)


def test_times_between_sizes_are_linear_in_the_logarithm() -> None:
    times = AccessTimes({MB: 10.0, 4 * MB: 20.0}, {MB: 0.0})
    assert times.token_ns(tables_of([(2, MB)])) == pytest.approx(15.0)
    assert times.token_ns([]) == 0
