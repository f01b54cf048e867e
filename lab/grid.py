"""A grid: chosen values of chosen fields of SpeculationConfig, every combination a configuration.

What cannot run (a combination that would not be lossless, a number out of range) is left out and
told, so that the rest can be measured.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from core.field_text import value_from_text
from lab.study import Configuration

__all__ = ["FIELDS", "Axis", "Grid", "axis_from_text", "grid", "point_name", "value_text"]

MAX_VALUES = 50
LISTS = ("expansion", "drafters", "weight_bounds")
NOT_TUNED = ("record_top_k", "carry_over")
FIELDS = tuple(
    field.name for field in dataclasses.fields(SpeculationConfig) if field.name not in NOT_TUNED
)


@dataclass(frozen=True, slots=True)
class Axis:
    """A field and the values it takes."""

    field: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """`points[i]`: the values behind `configurations[i]`, by field. `refused`: (point, reason)."""

    axes: tuple[Axis, ...]
    configurations: tuple[Configuration, ...]
    points: tuple[dict[str, Any], ...]
    refused: tuple[tuple[str, str], ...]


def axis_from_text(field: str, typed: str) -> Axis:
    """`4, 8, 12`, or `1,1,3 | 1,2,2` where a value has commas of its own. ConfigError names it."""
    if field not in FIELDS:
        raise ConfigError.of("field", field, f"one of {', '.join(FIELDS)}")
    separator = "|" if "|" in typed or field in LISTS else ","
    parts = [part.strip() for part in typed.split(separator)]
    values = tuple(dict.fromkeys(_hashable(value_from_text(field, part)) for part in parts if part))
    if not 1 <= len(values) <= MAX_VALUES:
        raise ConfigError.of(field, typed, f"from 1 to {MAX_VALUES} values")
    return Axis(field, values)


def grid(
    base: SpeculationConfig, axes: Sequence[Axis], sampling: SamplingParams | None = None
) -> Grid:
    """Every combination of the axes' values over `base`, the last axis fastest.

    ConfigError where no combination can run, or an axis comes twice.
    """
    fields = [axis.field for axis in axes]
    if not axes or len(set(fields)) != len(fields):
        raise ConfigError.of("fields", fields, "at least one field, each once")
    made: list[Configuration] = []
    points: list[dict[str, Any]] = []
    refused: list[tuple[str, str]] = []
    for values in itertools.product(*(axis.values for axis in axes)):
        point = dict(zip(fields, values, strict=True))
        name = point_name(point)
        try:
            speculation = SpeculationConfig.from_plain({**base.to_plain(), **point})
            Request("x", sampling or SamplingParams(), speculation)
        except ConfigError as error:
            refused.append((name, str(error)))
            continue
        made.append(Configuration(name, speculation))
        points.append(point)
    if not made:
        raise ConfigError(f"no point of the grid can run; the first: {refused[0][1]}")
    return Grid(tuple(axes), tuple(made), tuple(points), tuple(refused))


def point_name(point: Mapping[str, Any]) -> str:
    """`speculation_length=4, expansion=1,1,3`."""
    return ", ".join(f"{field}={value_text(value)}" for field, value in point.items())


def value_text(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, (tuple, list)):
        return ",".join(value_text(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
