"""Parses fields of a SpeculationConfig."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from core.config import SpeculationConfig
from core.config.checks import MAX_EXPANSION
from core.errors import ConfigError

__all__ = ["parse_field", "value_from_text"]


def parse_field(config: SpeculationConfig, name: str, value: str) -> SpeculationConfig:
    """`config` with one field set from text. Raises ConfigError."""
    names = {f.name for f in dataclasses.fields(config)}
    if name not in names:
        raise ConfigError.must_be("field", name, f"one of {', '.join(sorted(names))}")
    return dataclasses.replace(config, **{name: value_from_text(name, value)})


def value_from_text(name: str, value: str) -> Any:
    """The text as a value of the field `name`. Text that is not JSON stays a string, unchecked.
    Raises ConfigError for an `expansion` that is not whole numbers of at most 9 digits."""
    if name == "drafters":
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if name == "expansion":
        parts = [part.strip() for part in value.strip("<> ").split(",")]
        if not all(part.isdecimal() for part in parts):
            raise ConfigError.must_be(name, value, "whole numbers separated by commas, as 1,1,3,1")
        if max(map(len, parts)) > 9:  # Python does not read thousands of digits
            raise ConfigError.must_be(name, value, f"whole numbers from 1 to {MAX_EXPANSION}")
        return tuple(int(part) for part in parts)
    if name == "weight_bounds":
        value = f"[{value.strip('[] ')}]"
    try:
        return json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except (ValueError, RecursionError):
        return value
