"""The rows of the laws suite: what is crossed fully, and what pairwise."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import product

import pytest

from bench.suites.law_rows import (
    ROUTED_FIELDS,
    TEMPERATURE,
    LawRow,
    Values,
    is_valid,
    law_rows,
    open_fields,
)
from core.config import COMBINES, DRAFTS, LENGTHS, PIPELINES, ROUTINGS
from core.config.mechanisms import (
    PRESETS,
    WEIGHTS,
    combine_rule,
    lossless_rules,
    token_exact_rules,
    weighted_combine_rules,
)
from tests.laws.pairwise import missing_pairs

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
    results = {
        (row.speculation.pipeline, row.together)
        for row in every()
        if (row.name, row.temperature) == (name, temperature) and row.is_compared
    }
    expected = {*product(PIPELINES, (1, 6))} - {("across", 1)}
    if name in ("minions", "cosine"):
        expected.add(("across", 1))  # the pipeline of these presets
    if temperature > 0 and name == "autoregressive":
        expected.remove(("off", 1))  # the reference
    if temperature > 0 and name == "specinfer-paper":
        expected = set()  # it keeps the distribution, not the tokens
    assert results == expected


def open_and_crossed(name: str, temperature: float) -> Values:
    crossed = {**CROSSED[name], "together": (1, 6)}
    return {**open_fields(temperature, [crossed]), **crossed}


def go_together(values: Values) -> bool:
    """`is_valid`, without the pairs that no row has: `across` with one request, and `ahead` with a
    rule that does not draft ahead."""
    pipeline = values.get("pipeline")
    alone = (pipeline, values.get("together")) == ("across", 1)
    return (
        is_valid(values)
        and not alone
        and not (pipeline == "ahead" and not combine_rule(values.get("combine", "union")).ahead)
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
    assert missing_pairs(rows, fields, go_together) == set()
    # The control: without some row a pair is missing.
    assert any(
        missing_pairs([r for r in rows if r is not row], fields, go_together) for row in rows
    )


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_every_two_values_meet_under_routing(temperature: float) -> None:
    drafts = {0.0: ("topk", "best_first", "fused", "fused_credit")}.get(
        temperature, ("topk", "coupled", "best_first", "fused", "fused_credit")
    )
    fields = {"routing": ROUTINGS, "draft": drafts, "together": (1, 6), **ROUTED_FIELDS}
    of_row = ("schedule", "together")
    rows = [
        {name: getattr(row if name in of_row else row.speculation, name) for name in fields}
        for row in every()
        if (row.name, row.temperature) == ("routed", temperature) and row.is_compared
    ]
    assert missing_pairs(rows, fields, go_together) == set()
    # The control, as above.
    assert any(
        missing_pairs([r for r in rows if r is not row], fields, go_together) for row in rows
    )


def test_the_suite_stays_affordable() -> None:
    """The number of rows of one rule does not grow with the number of other rules."""
    results: Counter[tuple[object, ...]] = Counter()
    for row in every():
        of = row.speculation
        own: dict[str, tuple[object, ...]] = {
            "mechanisms": (of.combine, of.length),
            "pipelined": (of.combine, of.length),
            "rules": (of.draft, of.verify, row.temperature),
            "scheduled": (row.schedule, row.temperature),
            "routed": (of.routing, of.draft),
        }
        results[row.name, *own.get(row.name, ())] += 1
    most = {
        "mechanisms": 8,
        "pipelined": 10,
        "rules": 18,
        "scheduled": 2 * len(PRESETS),
        "routed": 4,
    }
    assert not {key: n for key, n in results.items() if n > most.get(str(key[0]), 16)}
    assert all(row.is_compared for row in every() if row.name in CROSSED)


def test_the_product_meets_everything_there_is() -> None:
    assert len({json.dumps(row.key, sort_keys=True) for row in every()}) == len(every())
    kinds = {"prompt lookup", "rules", "mechanisms", "pipelined", "scheduled", "routed"}
    assert {row.name for row in every()} == {*PRESETS, *kinds}
    ways = {
        (row.speculation.pipeline, row.speculation.combine, row.speculation.length, row.together)
        for row in every()
        if row.name == "pipelined"
    }
    every_way = product(PIPELINES[1:], COMBINES, LENGTHS, (1, 6))
    # One request has no other to draft for, and a pool does not draft ahead.
    assert ways == {
        (pipeline, combine, length, together)
        for pipeline, combine, length, together in every_way
        if (pipeline, together) != ("across", 1)
        and (pipeline != "ahead" or combine_rule(combine).ahead)
    }
    compared = [row for row in every() if row.is_compared and row.name == "rules"]
    for together in (1, 6):
        met = {
            (row.temperature, row.speculation.draft) for row in compared if row.together == together
        }
        above = {(0.8, draft) for draft in DRAFTS[1:]}
        assert met == above | {
            (0.0, draft) for draft in ("topk", "best_first", "fused", "fused_credit")
        }
    above = {rule for draft in DRAFTS[1:] for rule in lossless_rules(draft, TEMPERATURE)}
    assert {row.speculation.verify for row in every() if not row.is_compared} == (
        above - set(token_exact_rules())
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("together", [1, 6])
def test_every_mechanism_meets_every_other(temperature: float, together: int) -> None:
    met = {
        (row.speculation.combine, row.speculation.weights, row.speculation.length)
        for row in every()
        if row.name == "mechanisms"
        and row.is_compared
        and (row.temperature, row.together) == (temperature, together)
    }
    even = {(combine, WEIGHTS[0]) for combine in COMBINES}
    weighed = {*even, *product(weighted_combine_rules(), WEIGHTS)}
    assert met == {(*pair, length) for pair in weighed for length in LENGTHS}
