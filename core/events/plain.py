"""Dataclasses from plain values, by their annotations: the inverse of `dataclasses.asdict`.

A field may be a plain value, a dict of plain values, a dataclass, a tuple of these, or None.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from core.errors import ConfigError

__all__ = ["from_plain"]


def from_plain(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """An instance of the dataclass `cls`. Raises ConfigError for a field that `cls` does not have,
    TypeError for a missing field without a default."""
    hints = _hints(typing.cast("typing.Hashable", cls))
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError.must_be(
            "field", unknown[0], f"one of {', '.join(hints)} in {cls.__name__}"
        )
    return cls(**{name: _restore(hints[name], value) for name, value in values.items()})


@cache
def _hints(cls: Any) -> dict[str, Any]:
    # Cached: `get_type_hints` evaluates the annotations, which are strings.
    return typing.get_type_hints(cls)


def _restore(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint):
        return from_plain(typing.cast("type[Any]", hint), value)
    if origin is tuple:
        args = typing.get_args(hint)
        # tuple[X, ...]; else a tuple of fixed length, each item of its own type.
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_restore(args[0], item) for item in value)
        return tuple(_restore(arg, item) for arg, item in zip(args, value, strict=True))
    if origin is types.UnionType and value is not None:  # X | None
        return _restore(next(one for one in typing.get_args(hint) if one is not type(None)), value)
    # Some writers of JSON write 1.0 as 1.
    if hint is float and isinstance(value, int):
        return float(value)
    return value
