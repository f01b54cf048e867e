"""The rows of the `laws` suite: every preset, and the full product of the rules that exist.

Built from the lists of `core.config`, so that a new rule joins by existing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.choices import (
    COMBINES,
    DRAFTS,
    LENGTHS,
    NGRAM,
    NOT_AHEAD,
    PIPELINES,
    PRESETS,
    WEIGHTED_COMBINES,
    WEIGHTS,
    lossless_rules,
)
from core.config import SpeculationConfig

__all__ = ["TEMPERATURE", "Row", "law_rows"]

TEMPERATURE = 0.8
TOGETHER = 6
# Rules whose text equals plain decoding's token for token; the others only keep its distribution.
EXACT_RULES = ("greedy", "match")
DRAFTERS = (("first",), ("all",), ("all", NGRAM))
SHAPES: tuple[dict[str, Any], ...] = (
    {"expansion": (1, 1, 3, 1, 1, 1, 1, 1), "speculation_length": 8, "max_tree_nodes": "uncut"},
    {"expansion": (3, 2, 1, 1, 1, 1), "speculation_length": 6, "max_tree_nodes": 32},
    {"expansion": (1,), "speculation_length": 3, "max_tree_nodes": "uncut"},
)


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration to hold against the reference. `together`: requests live at a time.

    `speculation` has `draft` and `verify` resolved. `compared` is false where the rule is lossless
    in distribution only, so that no token ids are there to compare.
    """

    name: str
    temperature: float
    speculation: SpeculationConfig
    together: int

    @property
    def compared(self) -> bool:
        return self.speculation.verify in EXACT_RULES

    @property
    def key(self) -> dict[str, Any]:
        """What tells the row apart in a file of results."""
        return {
            "row": self.name,
            "temperature": self.temperature,
            "together": self.together,
            "config": self.speculation.to_plain(),
        }


def law_rows() -> tuple[Row, ...]:
    """The presets, prompt lookup by itself, the products of all mechanisms and of all pipelining,
    then that of all ways to draft and verify a union."""
    return (
        *_preset_rows(),
        *_ngram_rows(),
        *_mechanism_rows(),
        *_pipeline_rows(),
        *_draft_rows(),
    )


def _preset_rows() -> Iterator[Row]:
    for name, temperature, together in itertools.product(
        PRESETS, (0.0, TEMPERATURE), (1, TOGETHER)
    ):
        speculation = SpeculationConfig.preset(name, temperature).resolved(temperature)
        if name == "autoregressive" and temperature > 0 and together == 1:
            continue  # the reference itself
        yield Row(name, temperature, speculation, together)


def _ngram_rows() -> Iterator[Row]:
    for temperature, together in itertools.product((0.0, TEMPERATURE), (1, TOGETHER)):
        config = SpeculationConfig(drafters=(NGRAM,), draft="topk", expansion=(1,))
        yield Row("prompt lookup", temperature, config.resolved(temperature), together)


def _mechanism_rows() -> Iterator[Row]:
    """Every combine rule with every weighing, under every length policy."""
    weighed = [("union", WEIGHTS[0]), *itertools.product(WEIGHTED_COMBINES, WEIGHTS)]
    product = itertools.product(LENGTHS, weighed, (0.0, TEMPERATURE), (1, TOGETHER))
    for length, (combine, weights), temperature, together in product:
        config = SpeculationConfig(
            drafters=("all", NGRAM),
            combine=combine,
            weights=weights,
            length=length,
            **SHAPES[1],
        )
        yield Row("mechanisms", temperature, config.resolved(temperature), together)


def _pipeline_rows() -> Iterator[Row]:
    """Every way to pipeline, under every combine rule and length policy."""
    product = itertools.product(PIPELINES, LENGTHS, COMBINES, (0.0, TEMPERATURE), (1, TOGETHER))
    for pipeline, length, combine, temperature, together in product:
        if pipeline == "off" or (pipeline == "across" and together == 1):
            continue  # the same as a row above
        if pipeline == "ahead" and combine in NOT_AHEAD:
            continue
        config = SpeculationConfig(combine=combine, length=length, pipeline=pipeline, **SHAPES[1])
        yield Row("pipelined", temperature, config.resolved(temperature), together)


def _draft_rows() -> Iterator[Row]:
    """Drafts first, then temperatures, drafters, shapes: early rows already meet every rule."""
    product = itertools.product(SHAPES, DRAFTERS, (1, TOGETHER), (0.0, TEMPERATURE), DRAFTS)
    for shape, drafters, together, temperature, draft in product:
        if draft == "auto" or (draft == "coupled" and temperature == 0):
            continue  # both resolve to another row
        for verify in lossless_rules(draft, temperature):
            if verify not in EXACT_RULES and (together > 1 or drafters != ("all",)):
                continue  # not compared: one row says so
            config = SpeculationConfig(
                drafters=drafters,
                draft=draft,
                verify=verify,
                **shape,
            )
            yield Row("rules", temperature, config.resolved(temperature), together)
