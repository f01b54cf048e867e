"""A grid: every combination of chosen values of SpeculationConfig's fields and of temperatures.
Combinations that cannot run are left out and listed."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from core.config.checks import MAX_SPECULATION_LENGTH
from core.config.field_text import value_from_text
from core.config.mechanisms import MODEL_FREE
from core.errors import ConfigError
from lab.study import PLAIN, Configuration, Study, plain_configuration

__all__ = [
    "FIELDS",
    "TEMPERATURE",
    "Axis",
    "Grid",
    "Refused",
    "axis_from_text",
    "axis_of",
    "baselines",
    "grid",
    "grid_of",
    "point_name",
    "value_text",
]

MAX_VALUES = 50
MAX_POINTS = 1000
WIDEST_LIMITS = MappingProxyType(
    {"speculation_length": 0, "max_speculation_length": MAX_SPECULATION_LENGTH}
)
"""Two fields that limit each other, at their widest values, so that a value of either can be
checked alone."""
LISTS = ("expansion", "drafters", "weight_bounds")
NOT_TUNED = ("record_top_k", "carry_over")
TEMPERATURE = "temperature"
"""The only field of SamplingParams that can be an axis. Each temperature has its own baseline."""
FIELDS = (
    *(field.name for field in dataclasses.fields(SpeculationConfig) if field.name not in NOT_TUNED),
    TEMPERATURE,
)
# Finds the fields in a point's name; values have no space after a comma.
_AXIS_FIELD = re.compile(rf"(?:^|, )({'|'.join(FIELDS)})=")
LEFT_OUT = "it was left out when the study began"


@dataclass(frozen=True, slots=True)
class Axis:
    """A field and the values it takes."""

    field: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A point that is not measured, and why."""

    name: str
    point: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Grid:
    """`points[i]`: the axes' values of `configurations[i]`, by field."""

    axes: tuple[Axis, ...]
    configurations: tuple[Configuration, ...]
    points: tuple[dict[str, Any], ...]
    refused: tuple[Refused, ...]


def axis_from_text(field: str, typed: str) -> Axis:
    """An axis from typed values: `4, 8, 12`, or `1,1,3 | 1,2,2`. Raises ConfigError."""
    _check_field(field)
    separator = "|" if "|" in typed or field in LISTS else ","
    parts = [part.strip() for part in typed.split(separator)]
    return axis_of(field, [value_from_text(field, part) for part in parts if part])


def axis_of(field: str, values: Sequence[Any]) -> Axis:
    """An axis of plain values, without repetitions; lists become tuples. Raises ConfigError."""
    _check_field(field)
    try:
        each = _each_once(field, [_hashable(value) for value in values])
    except TypeError as error:
        raise ConfigError.must_be(field, values, "a list of values of this field") from error
    if not isinstance(values, (list, tuple)) or not 1 <= len(each) <= MAX_VALUES:
        raise ConfigError.must_be(field, values, f"a list of 1 to {MAX_VALUES} values")
    return Axis(field, each)


def grid(
    base: SpeculationConfig,
    axes: Sequence[Axis],
    sampling: SamplingParams | None = None,
    drafters: Collection[str] | None = None,
) -> Grid:
    """Every combination of the axes' values, applied to `base`; the last axis varies fastest.

    `drafters`: the loaded drafters; None skips the check that a point's drafters are loaded. Raises
    ConfigError without axes, for a repeated axis, for more than MAX_POINTS combinations, or if no
    combination can run.
    """
    fields = [axis.field for axis in axes]
    if not axes or len(set(fields)) != len(fields):
        raise ConfigError.must_be("fields", fields, "at least one field, each once")
    count = math.prod(len(axis.values) for axis in axes)
    if count > MAX_POINTS:
        raise ConfigError.must_be("points of the grid", count, f"at most {MAX_POINTS}")
    configurations: list[Configuration] = []
    points: list[dict[str, Any]] = []
    refused: list[Refused] = []
    for point, configuration in _combinations(base, axes, sampling or SamplingParams(), drafters):
        if isinstance(configuration, Configuration):
            configurations.append(configuration)
            points.append(point)
        else:
            refused.append(configuration)
    if not configurations:
        raise ConfigError(f"no point of the grid can run; the first: {refused[0].reason}")
    return Grid(tuple(axes), tuple(configurations), tuple(points), tuple(refused))


def _combinations(
    base: SpeculationConfig,
    axes: Sequence[Axis],
    sampling: SamplingParams,
    drafters: Collection[str] | None,
) -> Iterator[tuple[dict[str, Any], Configuration | Refused]]:
    for values in itertools.product(*(axis.values for axis in axes)):
        point = {axis.field: value for axis, value in zip(axes, values, strict=True)}
        name = point_name(point)
        temperature = point.get(TEMPERATURE)
        fields = {field: value for field, value in point.items() if field != TEMPERATURE}
        point_sampling = sampling
        try:
            speculation = SpeculationConfig.from_plain({**base.to_plain(), **fields})
            if temperature is not None:
                point_sampling = dataclasses.replace(sampling, temperature=temperature)
            # Raises if the rules are not lossless at this temperature.
            Request("x", point_sampling, speculation)
            _check_loaded(speculation, drafters)
        except ConfigError as error:
            yield point, Refused(name, point, str(error))
        else:
            yield point, Configuration(name, speculation, temperature)


def baselines(axes: Sequence[Axis]) -> tuple[Configuration, ...]:
    """Plain decoding, once for each temperature of the axes."""
    values = next((axis.values for axis in axes if axis.field == TEMPERATURE), (None,))
    return tuple(plain_configuration(temperature=value) for value in values)


def grid_of(study: Study) -> Grid:
    """The grid from which a study was made, each axis's numbers sorted. Points that are not in the
    study are among the refused points. Raises ConfigError for a study that was not made from a
    grid."""
    by_name = {one.name: one for one in study.configurations if not one.name.startswith(PLAIN)}
    axes = _axes_of(study, by_name)
    if not axes:
        raise ConfigError.must_be("study", study.title, "a study of a grid")
    base = next(iter(by_name.values())).speculation
    measured: list[tuple[Configuration, dict[str, Any]]] = []
    refused: list[Refused] = []
    for point, configuration in _combinations(base, axes, study.sampling, _drafters_of(study)):
        if configuration.name in by_name:
            measured.append((by_name[configuration.name], point))
        elif isinstance(configuration, Refused):
            refused.append(configuration)
        else:
            refused.append(Refused(configuration.name, point, LEFT_OUT))
    if len(measured) != len(by_name):
        raise ConfigError.must_be("study", study.title, "a study of a grid")
    configurations, points = zip(*measured, strict=True)
    return Grid(tuple(axes), configurations, points, tuple(refused))


def _axes_of(study: Study, by_name: Mapping[str, Configuration]) -> list[Axis]:
    """The study's axes; for an older study, read from its configurations."""
    if study.axes and by_name:
        axes = [axis_of(field, values) for field, values in study.axes]
        return [Axis(axis.field, _in_order(axis.values)) for axis in axes]
    fields = _AXIS_FIELD.findall(next(iter(by_name), ""))
    return [Axis(field, _values_of(field, by_name.values())) for field in fields]


def _drafters_of(study: Study) -> tuple[str, ...]:
    """Names of the SSMs that were loaded, from `name (...)`."""
    return tuple(model.rpartition(" (")[0] or model for model in study.models[1:])


def _values_of(field: str, configurations: Iterable[Configuration]) -> tuple[Any, ...]:
    values = dict.fromkeys(
        one.temperature if field == TEMPERATURE else _hashable(getattr(one.speculation, field))
        for one in configurations
    )
    return _in_order(tuple(values))


def _in_order(values: tuple[Any, ...]) -> tuple[Any, ...]:
    numbers = all(isinstance(value, (int, float)) for value in values)
    return tuple(sorted(values)) if numbers else values


def point_name(point: Mapping[str, Any]) -> str:
    """A point's name: `speculation_length=4, expansion=1,1,3`."""
    return ", ".join(f"{field}={value_text(value)}" for field, value in point.items())


def value_text(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, (tuple, list)):
        return ",".join(value_text(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    # `:g` would give the same name to two nearly equal values.
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _each_once(field: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Of equal values (2.0 and 2, true and 1), keeps the first that the field allows."""
    by_key: dict[Any, Any] = {}
    for value in values:
        if value not in by_key or (_fits(field, value) and not _fits(field, by_key[value])):
            by_key[value] = value
    return tuple(by_key.values())


def _fits(field: str, value: Any) -> bool:
    """Whether the field allows the value, regardless of other fields."""
    try:
        if field == TEMPERATURE:
            SamplingParams(temperature=value)
        else:
            SpeculationConfig.from_plain({**WIDEST_LIMITS, field: value})
    except ConfigError:
        return False
    return True


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_field(field: str) -> None:
    if field not in FIELDS:
        raise ConfigError.must_be("field", field, f"one of {', '.join(FIELDS)}")


def _check_loaded(speculation: SpeculationConfig, drafters: Collection[str] | None) -> None:
    if drafters is None:
        return
    allowed = ("all", "first", *MODEL_FREE, *drafters)
    missing = [name for name in speculation.drafters if name not in allowed]
    if missing:
        raise ConfigError.must_be(
            "drafters", ",".join(missing), f"drafters of {', '.join(allowed)}"
        )
