"""The rows of the laws suite: which fields are crossed fully, and which pairwise."""

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
def all_rows() -> tuple[LawRow, ...]:
    return law_rows()


def values_of(row: LawRow, fields: tuple[str, ...]) -> Values:
    plain = {field: getattr(row.speculation, field, None) for field in fields}
    return {**plain, "together": row.together, "shape": EXPANSIONS[row.speculation.expansion]}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_every_preset_has_a_row_with_every_pipeline_mode(name: str, temperature: float) -> None:
    results = {
        (row.speculation.pipeline, row.together)
        for row in all_rows()
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


def has_a_row(values: Values) -> bool:
    pipeline = values.get("pipeline")
    across_alone = (pipeline, values.get("together")) == ("across", 1)
    return (
        is_valid(values)
        and not across_alone
        and not (pipeline == "ahead" and not combine_rule(values.get("combine", "union")).ahead)
    )


@pytest.mark.parametrize("name", CROSSED)
@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_every_valid_pair_of_values_has_a_row(name: str, temperature: float) -> None:
    fields = open_and_crossed(name, temperature)
    rows = [
        values_of(row, tuple(fields))
        for row in all_rows()
        if (row.name, row.temperature) == (name, temperature)
    ]
    assert missing_pairs(rows, fields, has_a_row) == set()
    # Control: there is a row without which a pair is missing.
    assert any(missing_pairs([r for r in rows if r is not row], fields, has_a_row) for row in rows)


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_every_valid_pair_of_values_has_a_row_under_routing(temperature: float) -> None:
    drafts = {0.0: ("topk", "best_first", "fused", "fused_credit")}.get(
        temperature, ("topk", "coupled", "best_first", "fused", "fused_credit")
    )
    fields = {"routing": ROUTINGS, "draft": drafts, "together": (1, 6), **ROUTED_FIELDS}
    of_row = ("schedule", "together")
    rows = [
        {name: getattr(row if name in of_row else row.speculation, name) for name in fields}
        for row in all_rows()
        if (row.name, row.temperature) == ("routed", temperature) and row.is_compared
    ]
    assert missing_pairs(rows, fields, has_a_row) == set()
    # Control: there is a row without which a pair is missing.
    assert any(missing_pairs([r for r in rows if r is not row], fields, has_a_row) for row in rows)


def test_a_rule_has_few_rows() -> None:
    results: Counter[tuple[object, ...]] = Counter()
    for row in all_rows():
        config = row.speculation
        rules: dict[str, tuple[object, ...]] = {
            "mechanisms": (config.combine, config.length),
            "pipelined": (config.combine, config.length),
            "rules": (config.draft, config.verify, row.temperature),
            "scheduled": (row.schedule, row.temperature),
            "routed": (config.routing, config.draft),
        }
        results[row.name, *rules.get(row.name, ())] += 1
    most = {
        "mechanisms": 8,
        "pipelined": 10,
        "rules": 18,
        "scheduled": 2 * len(PRESETS),
        # Every length policy occurs with every combine rule: more of them need more rows.
        "routed": 4 + max(0, len(COMBINES) * len(LENGTHS) - 16),
    }
    assert not {key: n for key, n in results.items() if n > most.get(str(key[0]), 16)}
    assert all(row.is_compared for row in all_rows() if row.name in CROSSED)


def test_rows_are_distinct_and_products_are_complete() -> None:
    assert len({json.dumps(row.key, sort_keys=True) for row in all_rows()}) == len(all_rows())
    kinds = {"prompt lookup", "rules", "mechanisms", "pipelined", "scheduled", "routed"}
    assert {row.name for row in all_rows()} == {*PRESETS, *kinds}
    pipelined = {
        (row.speculation.pipeline, row.speculation.combine, row.speculation.length, row.together)
        for row in all_rows()
        if row.name == "pipelined"
    }
    complete = product(PIPELINES[1:], COMBINES, LENGTHS, (1, 6))
    # `across` needs a second request, and some combine rules do not draft ahead.
    assert pipelined == {
        (pipeline, combine, length, together)
        for pipeline, combine, length, together in complete
        if (pipeline, together) != ("across", 1)
        and (pipeline != "ahead" or combine_rule(combine).ahead)
    }
    compared = [row for row in all_rows() if row.is_compared and row.name == "rules"]
    for together in (1, 6):
        found = {
            (row.temperature, row.speculation.draft) for row in compared if row.together == together
        }
        above_zero = {(0.8, draft) for draft in DRAFTS[1:]}
        assert found == above_zero | {
            (0.0, draft) for draft in ("topk", "best_first", "fused", "fused_credit")
        }
    lossless = {rule for draft in DRAFTS[1:] for rule in lossless_rules(draft, TEMPERATURE)}
    assert {row.speculation.verify for row in all_rows() if not row.is_compared} == (
        lossless - set(token_exact_rules())
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("together", [1, 6])
def test_every_combine_rule_and_weights_have_rows_with_every_length_policy(
    temperature: float, together: int
) -> None:
    found = {
        (row.speculation.combine, row.speculation.weights, row.speculation.length)
        for row in all_rows()
        if row.name == "mechanisms"
        and row.is_compared
        and (row.temperature, row.together) == (temperature, together)
    }
    with_default_weights = {(combine, WEIGHTS[0]) for combine in COMBINES}
    pairs = {*with_default_weights, *product(weighted_combine_rules(), WEIGHTS)}
    assert found == {(*pair, length) for pair in pairs for length in LENGTHS}
