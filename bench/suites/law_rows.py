"""The rows of the `laws` suite.

Products, each at temperature 0 and above, with one request and with several at once:
1. presets x pipeline modes
2. combine rules x their weights x length policies, without pipelining
3. combine rules x length policies x pipeline modes
4. draft kinds x verification rules x drafters x shapes, with the combine rule `union`
5. presets x schedules; with several requests only
6. routing rules x draft kinds
7. prompt lookup without an SSM

In products 2, 3 and 6, `pairwise_rows` fills the other fields.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from core.config import COMBINES, DRAFTS, LENGTHS, PIPELINES, PRESETS, WEIGHTS, SpeculationConfig
from core.config.mechanisms import (
    NGRAM,
    SCHEDULES,
    can_begin_ahead,
    choices_of,
    combine_rule,
    draft_kind,
    lossless_rules,
    token_exact_rules,
    weighted_combine_rules,
)

Values = dict[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]

TEMPERATURE = 0.8
TEMPERATURES = (0.0, TEMPERATURE)
CONCURRENCIES = (1, 6)  # requests at once
DRAFTERS = (("first",), ("all",), ("all", NGRAM))
SHAPES: tuple[Values, ...] = (
    {"expansion": (1, 1, 3, 1, 1, 1, 1, 1), "speculation_length": 8, "max_tree_nodes": "uncut"},
    {"expansion": (3, 2, 1, 1, 1, 1), "speculation_length": 6, "max_tree_nodes": 32},
    {"expansion": (1,), "speculation_length": 3, "max_tree_nodes": "uncut"},
)

ROUTED_FIELDS: Mapping[str, Sequence[Any]] = MappingProxyType(
    {
        "schedule": tuple(SCHEDULES),
        "combine": COMBINES,
        "length": LENGTHS,
        "pipeline": PIPELINES,
    }
)


@dataclass(frozen=True, slots=True)
class LawRow:
    """`together`: the number of concurrent requests; when one ends, the next one joins.
    `speculation` has `draft` and `verify` resolved. `is_compared`: false for
    verification rules that keep the distribution but not the tokens."""

    name: str
    temperature: float
    speculation: SpeculationConfig
    together: int
    schedule: str = "each"

    @property
    def is_compared(self) -> bool:
        return self.speculation.verify in token_exact_rules()

    @property
    def key(self) -> dict[str, Any]:
        fields = {"row": self.name, "temperature": self.temperature, "together": self.together}
        if self.schedule != "each":
            fields["schedule"] = self.schedule
        return {**fields, "config": self.speculation.to_plain()}


def law_rows() -> tuple[LawRow, ...]:
    """All rows; a few configurations are in two products."""
    return (
        *_preset_rows(),
        *_ngram_rows(),
        *_crossed_rows(),
        *_draft_rows(),
        *_scheduled_rows(),
        *_routed_rows(),
    )


def _preset_rows() -> Iterator[LawRow]:
    """Product 1."""
    for name, temperature, together in itertools.product(PRESETS, TEMPERATURES, CONCURRENCIES):
        preset = SpeculationConfig.preset(name, temperature).resolve(temperature)
        for pipeline in dict.fromkeys((preset.pipeline, *PIPELINES)):
            is_own_mode = pipeline == preset.pipeline
            if is_own_mode and name == "autoregressive" and temperature > 0 and together == 1:
                continue  # this row is the reference
            if not is_own_mode and (pipeline, together) == ("across", 1):
                continue  # the same as off
            row = LawRow(name, temperature, replace(preset, pipeline=pipeline), together)
            if row.is_compared or is_own_mode:  # not compared: only the preset's own mode is listed
                yield row


def _scheduled_rows() -> Iterator[LawRow]:
    """Product 5, without the schedule `each`."""
    for name, temperature, schedule in itertools.product(PRESETS, TEMPERATURES, SCHEDULES):
        preset = SpeculationConfig.preset(name, temperature).resolve(temperature)
        if schedule == "each" or preset.verify not in token_exact_rules():
            continue
        for pipeline in dict.fromkeys((preset.pipeline, "off")):
            config = replace(preset, pipeline=pipeline)
            yield LawRow("scheduled", temperature, config, max(CONCURRENCIES), schedule)


def _routed_rows() -> Iterator[LawRow]:
    """Product 6."""
    for temperature in TEMPERATURES:
        # Draft kinds whose tokens can be compared and that `resolve` does not replace.
        drafts = [
            draft
            for draft in DRAFTS[1:]
            if not draft_kind(draft).drawn and (draft, temperature) != ("coupled", 0.0)
        ]
        rows = [
            {"routing": routing, "draft": draft, "together": together}
            for routing, draft, together in itertools.product(
                choices_of("routing"), drafts, CONCURRENCIES
            )
        ]
        for values in pairwise_rows(rows, ROUTED_FIELDS, is_valid):
            together, schedule = values.pop("together"), values.pop("schedule")
            config = SpeculationConfig(**values, **SHAPES[1])
            yield LawRow("routed", temperature, config.resolve(temperature), together, schedule)


def _ngram_rows() -> Iterator[LawRow]:
    for temperature, together in itertools.product(TEMPERATURES, CONCURRENCIES):
        config = SpeculationConfig(drafters=(NGRAM,), draft="topk", expansion=(1,))
        yield LawRow("prompt lookup", temperature, config.resolve(temperature), together)


def _crossed_rows() -> Iterator[LawRow]:
    """Products 2 and 3."""
    by_weights = [
        (combine, weights)
        for combine, weights in itertools.product(COMBINES, WEIGHTS)
        if combine in weighted_combine_rules() or weights == WEIGHTS[0]
    ]
    mechanisms = [
        {"length": length, "combine": combine, "weights": weights, "together": together}
        for length, (combine, weights), together in itertools.product(
            LENGTHS, by_weights, CONCURRENCIES
        )
    ]
    by_pipeline = [
        {"length": length, "combine": combine, "pipeline": pipeline, "together": together}
        for pipeline, length, combine, together in itertools.product(
            PIPELINES, LENGTHS, COMBINES, CONCURRENCIES
        )
        # Modes that have the same effect as `off` are left out.
        if pipeline != "off"
        and (pipeline, together) != ("across", 1)
        and not (pipeline == "ahead" and not combine_rule(combine).ahead)
    ]
    products = (("mechanisms", mechanisms), ("pipelined", by_pipeline))
    for (name, crossed), temperature in itertools.product(products, TEMPERATURES):
        for values in pairwise_rows(crossed, open_fields(temperature, crossed), is_valid):
            together, shape = values.pop("together"), SHAPES[values.pop("shape")]
            config = SpeculationConfig(**values, **shape)
            yield LawRow(name, temperature, config.resolve(temperature), together)


def open_fields(temperature: float, crossed: list[Values]) -> dict[str, Sequence[Any]]:
    """Fields that are filled pairwise, preferred values first. `shape` is an index into SHAPES."""
    default = SpeculationConfig().resolve(temperature)
    # Fused drafts are one tree: no combine rule applies.
    drafts = [
        draft
        for draft in DRAFTS[1:]
        if lossless_rules(draft, temperature) and not draft_kind(draft).fused
    ]
    if temperature == 0:
        drafts.remove("coupled")  # `SpeculationConfig.resolve` replaces it
    lossless = lossless_rules(default.draft, temperature)
    rules = [rule for rule in token_exact_rules() if rule in lossless]
    fields: dict[str, Sequence[Any]] = {
        "draft": sorted(drafts, key=lambda draft: draft != default.draft),
        "verify": rules,
        "drafters": DRAFTERS[::-1],
        "shape": (1, 2, 0),
        "weights": WEIGHTS,
    }
    return {field: values for field, values in fields.items() if field not in crossed[0]}


def is_valid(values: Values) -> bool:
    combine, kind = values.get("combine", COMBINES[0]), values.get("draft", "auto")
    rule, draft, pipeline = combine_rule(combine), draft_kind(kind), values.get("pipeline")
    uses_weights = rule.weighted or "combine" not in values
    if not uses_weights and values.get("weights", WEIGHTS[0]) != WEIGHTS[0]:
        return False
    if (pipeline, values.get("together")) == ("across", 1):
        return False  # the same as off
    if pipeline == "ahead" and not can_begin_ahead(kind, combine):
        return False
    if draft.fused and not rule.keeps_all:
        return False
    # Drafts by score need branches, and chains have none: `resolve` replaces such drafts.
    return not (rule.chains and draft.by_score)


def _draft_rows() -> Iterator[LawRow]:
    """Product 4."""
    # Shapes vary slowest: the first shape's rows already cover every rule.
    product = itertools.product(SHAPES, DRAFTERS, CONCURRENCIES, TEMPERATURES, DRAFTS)
    for shape, drafters, together, temperature, draft in product:
        if draft == "auto" or (draft == "coupled" and temperature == 0):
            continue  # `SpeculationConfig.resolve` replaces this draft kind
        for verify in lossless_rules(draft, temperature):
            if verify not in token_exact_rules() and (together > 1 or drafters != ("all",)):
                continue  # not compared: listed for one request and all SSMs only
            config = SpeculationConfig(drafters=drafters, draft=draft, verify=verify, **shape)
            yield LawRow("rules", temperature, config.resolve(temperature), together)


# -- pairwise filling --


def pairwise_rows(
    rows: Sequence[Values],
    open_fields: Mapping[str, Sequence[Any]],
    is_allowed: Callable[[Values], bool],
) -> list[Values]:
    """Fills each row greedily with the values that add the most new pairs. Ties go to the values
    that are listed first. Rows are repeated with other values until no pair is missing."""
    pairs_so_far: set[Pair] = set()
    chosen_rows: list[Values] = []
    names = tuple(open_fields)
    choices = [
        dict(zip(names, values, strict=True)) for values in itertools.product(*open_fields.values())
    ]
    candidates = [
        [filled for choice in choices if is_allowed(filled := {**row, **choice})] for row in rows
    ]

    def best_of(filled_rows: Sequence[Values]) -> Values:
        return max(filled_rows, key=lambda filled: len(_pairs(filled) - pairs_so_far))

    for filled_rows in candidates:
        chosen_rows.append(best_of(filled_rows))
        pairs_so_far |= _pairs(chosen_rows[-1])
    # These rows may be too few for the pairs of many values.
    every_row = list(itertools.chain.from_iterable(candidates))
    while _pairs(best := best_of(every_row)) - pairs_so_far:
        chosen_rows.append(best)
        pairs_so_far |= _pairs(best)
    return chosen_rows


def _pairs(row: Values) -> set[Pair]:
    return set(itertools.combinations(sorted(row.items(), key=lambda item: item[0]), 2))
