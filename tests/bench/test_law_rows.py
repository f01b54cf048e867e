"""The rows of the laws suite: what is crossed fully, and what pairwise."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from bench.suites.law_rows import (
    TEMPERATURE,
    LawRow,
    Values,
    law_rows,
    meets,
    missing,
    open_fields,
    pairwise_rows,
)
from core.config import COMBINES, LENGTHS, PIPELINES
from core.config.mechanisms import NGRAM, PRESETS, WEIGHTS

CROSSED = {
    "mechanisms": {"length": LENGTHS, "combine": COMBINES, "weights": WEIGHTS},
    "pipelined": {"length": LENGTHS, "combine": COMBINES, "pipeline": PIPELINES[1:]},
}
EXPANSIONS = {(1, 1, 3, 1, 1, 1, 1, 1): 0, (3, 2, 1, 1, 1, 1): 1, (1,): 2}


@cache
def every() -> tuple[LawRow, ...]:
    return law_rows()


def values_of(row: LawRow, fields: tuple[str, ...]) -> Values:
    plain = {field: getattr(row.speculation, field, None) for field in fields}
    return {**plain, "together": row.together, "shape": EXPANSIONS[row.speculation.expansion]}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_every_preset_meets_every_way_to_pipeline(name: str, temperature: float) -> None:
    found = {
        (row.speculation.pipeline, row.together)
        for row in every()
        if (row.name, row.temperature) == (name, temperature) and row.is_compared
    }
    wanted = {*product(PIPELINES, (1, 6))} - {("across", 1)}
    if name == "minions":
        wanted.add(("across", 1))  # its own
    if temperature > 0 and name == "autoregressive":
        wanted.remove(("off", 1))  # the reference
    if temperature > 0 and name == "specinfer-paper":
        wanted = set()  # it keeps the distribution, not the tokens
    assert found == wanted


def open_and_crossed(name: str, temperature: float) -> Values:
    crossed = {**CROSSED[name], "together": (1, 6)}
    return {**open_fields(temperature, [crossed]), **crossed}


def go_together(values: Values) -> bool:
    """`meets`, and what no row is made of: one request has no neighbour to draft for, and a pool
    is not drafted ahead."""
    pipeline = values.get("pipeline")
    alone = (pipeline, values.get("together")) == ("across", 1)
    return (
        meets(values) and not alone and (pipeline, values.get("combine")) != ("ahead", "log_pool")
    )


@pytest.mark.parametrize("name", CROSSED)
@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_every_two_values_meet(name: str, temperature: float) -> None:
    fields = open_and_crossed(name, temperature)
    rows = [
        values_of(row, tuple(fields))
        for row in every()
        if (row.name, row.temperature) == (name, temperature)
    ]
    assert missing(rows, fields, go_together) == set()
    # The control: these fields have pairs, and single rows bring them.
    assert any(missing([r for r in rows if r is not row], fields, go_together) for row in rows)


@pytest.mark.parametrize("pipeline", PIPELINES[1:])
def test_nothing_is_left_unpipelined(pipeline: str) -> None:
    """In a product that crosses it, not only in a preset."""
    found = [row.speculation for row in every() if row.name == "pipelined"]
    found = [config for config in found if config.pipeline == pipeline]
    assert {config.draft for config in found} == {
        *("topk", "best_first", "coupled", "sampled", "sampled_iid")
    }
    assert {NGRAM in config.drafters for config in found} == {True, False}
    assert {config.max_tree_nodes for config in found} == {"uncut", 32}
    assert {config.weights for config in found} == set(WEIGHTS)


@pytest.mark.parametrize("combine", ["vote_tree", "log_pool"])
def test_the_best_go_first_under_every_rule_that_has_branches(combine: str) -> None:
    found = [row for row in every() if row.speculation.draft == "best_first"]
    found = [row for row in found if row.speculation.combine == combine]
    assert {row.name for row in found} == {"mechanisms", "pipelined"}
    assert {row.temperature for row in found} == {0.0, TEMPERATURE}


def test_the_suite_stays_affordable() -> None:
    assert len(every()) <= 548
    assert all(row.is_compared for row in every() if row.name in CROSSED)


def test_what_is_filled_keeps_to_what_goes_together() -> None:
    rows: list[Values] = [{"a": i} for i in (0, 1, 2, 0, 1, 2, 0, 1, 2)]
    fields = {"b": ("x", "y"), "c": (True, False)}

    def fits(values: Values) -> bool:
        return (values.get("a"), values.get("b")) != (1, "y")

    found = pairwise_rows(rows, fields, fits)
    assert [row["a"] for row in found] == [row["a"] for row in rows]
    assert all(map(fits, found))
    assert missing(found, {"a": (0, 1, 2), **fields}, fits) == set()
    assert found[-1] == {"a": 2, "b": "x", "c": True}  # nothing is missing: the first of each
