"""Rows of settings in which every allowed pair of values of two fields occurs at least once."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from core.config import COMBINES, DRAFTS, LENGTHS, PIPELINES, ROUTINGS, WEIGHTS
from core.config.mechanisms import SCHEDULES, combine_rule, draft_kind

# Fields and values of laws 1 and 2 on the bundled models. Of equally useful values the first is
# taken: the cheapest should be first.
TREES: dict[str, Sequence[Any]] = {
    "expansion": ((4,), (2,), (1, 1, 3, 1, 1, 1, 1, 1), (3, 1, 2)),
    "max_tree_nodes": (7, 1, "auto", 24, "uncut"),
    "drafters": (
        *(("ngram",), ("suffix",), ("first",), ("ssm-code", "ngram"), ("all",)),
        *(("suffix", "all"), ("table",), ("table", "all")),
    ),
    "combine": COMBINES,
    "routing": ROUTINGS,
    "routed_drafters": (2, 1),
    "weights": WEIGHTS,
    "vote_nodes": (12, 3, 1),
    "speculation_length": (4, 1, 8, 16),
    "max_speculation_length": (16, 24),
}
ROUNDS: dict[str, Sequence[Any]] = {
    "length": LENGTHS,
    "confidence_threshold": (0.4, 0.9),
    "pipeline": PIPELINES,
    "carry_over": (False, True),
    "record_top_k": (0, 5),
    "mode": ("batched", "mixed", "alone"),
    "schedule": tuple(SCHEDULES),
}

Row = dict[str, Any]
FUSED = tuple(name for name in DRAFTS if draft_kind(name).fused)
ONE_SSM = (("ngram",), ("suffix",), ("table",), ("first",), ("ssm-code", "ngram"))
Pair = tuple[tuple[str, Any], tuple[str, Any]]
# Without drafts other fields have no effect: these rows are separate.
NEVER: tuple[Row, ...] = (
    {"drafters": (), "mode": "batched", "pipeline": "across", "combine": "union"},
    {"drafters": (), "mode": "mixed", "length": "goodput", "combine": "vote_tree"},
    {"drafters": (), "mode": "alone", "pipeline": "ahead", "length": "trend", "combine": "vote"},
    {"speculation_length": 0, "mode": "batched", "length": "fixed", "combine": "log_pool"},
    {"speculation_length": 0, "mode": "mixed", "length": "confidence", "pipeline": "auto"},
)


def pairwise(
    fields: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool] = lambda row: True
) -> list[Row]:
    """`allowed`: whether a row, even an incomplete one, may occur."""
    # Fields with the most values come first: fewer rows suffice.
    fields = dict(sorted(fields.items(), key=lambda field: -len(field[1])))
    missing = dict.fromkeys(_pairs(fields, allowed))
    rows: list[Row] = []
    while missing:
        row = dict(next(iter(missing)))
        for name, values in fields.items():
            if name not in row:
                row[name] = _best(row, name, values, missing, allowed)
        rows.append({name: row[name] for name in fields})
        for pair in _pairs_of(rows[-1]):
            missing.pop(pair, None)
    return rows


def parametrize_pairs(
    allowed: Callable[[Row], bool] = lambda row: True,
    indirect: Sequence[str] = (),
    **fields: Sequence[Any],
) -> pytest.MarkDecorator:
    rows = [tuple(row[name] for name in fields) for row in pairwise(fields, allowed)]
    return pytest.mark.parametrize(tuple(fields), rows, indirect=list(indirect))


def affordable(row: Row) -> bool:
    """Excludes wide and long trees that are not cut: they may have hundreds of nodes."""
    uncut = row.get("max_tree_nodes") == "uncut"
    long = row.get("speculation_length", 0) >= 8
    return not (uncut and long and sum(row.get("expansion", ())) > 3)


def of_effect(row: Row) -> bool:
    """Excludes some rows in which one value leaves another without effect."""
    pipeline, name, draft = row.get("pipeline", "off"), row.get("combine"), row.get("draft")
    combine = combine_rule(name or "union")
    without_effect = (
        # Lookups are not pipelined.
        pipeline != "off" and row.get("drafters") in (("ngram",), ("suffix",), ("table",)),
        pipeline == "across" and row.get("mode") == "alone",
        pipeline == "ahead" and not combine.ahead,
        combine.chains and draft == "best_first",
        bool(name) and not combine.weighted and row.get("weights") == "paper",
        # Fused drafts are one tree: other rules have nothing to combine.
        combine.name != "union" and draft in FUSED,
        pipeline == "ahead" and draft in FUSED,
        row.get("weights") == "paper" and draft in FUSED,
        # One request has nothing to share.
        row.get("schedule", "each") != "each" and row.get("mode") == "alone",
        # One SSM leaves nothing to route.
        row.get("routing", "all") != "all" and row.get("drafters") in ONE_SSM,
    )
    return not any(without_effect)


def missing_pairs(
    rows: Sequence[Row],
    fields: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool] = lambda row: True,
) -> set[Pair]:
    covered = {pair for row in rows for pair in _pairs_of({name: row[name] for name in fields})}
    return set(_pairs(fields, allowed)) - covered


def _best(
    row: Row,
    name: str,
    values: Sequence[Any],
    missing: Mapping[Pair, None],
    allowed: Callable[[Row], bool],
) -> Any:
    fitting = [value for value in values if allowed({**row, name: value})]
    return max(
        fitting,
        key=lambda value: sum(
            pair in missing
            for other in row
            for pair in (((other, row[other]), (name, value)), ((name, value), (other, row[other])))
        ),
    )


def _pairs(fields: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool]) -> list[Pair]:
    return [
        ((a, x), (b, y))
        for a, b in itertools.combinations(fields, 2)
        for x in fields[a]
        for y in fields[b]
        if allowed({a: x, b: y})
    ]


def _pairs_of(row: Row) -> list[Pair]:
    return list(itertools.combinations(row.items(), 2))
