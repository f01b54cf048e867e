"""Checks of configuration values. A check raises ConfigError for a value that is not allowed."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import ConfigError

__all__ = [
    "MAX_EXPANSION",
    "MAX_SPECULATION_LENGTH",
    "MAX_TREE_NODES",
    "boolean",
    "choice",
    "expansion",
    "integer",
    "names",
    "number",
    "text",
    "tree_nodes",
    "weight_bounds",
    "whole_characters",
]


def integer(field: str, value: object, low: int, high: int) -> None:
    """A whole number in [low, high], not a bool."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError.must_be(field, value, f"a whole number from {low} to {high}")


def number(
    field: str,
    value: object,
    low: float,
    high: float,
    *,
    low_open: bool = False,
    zero: bool = False,
) -> None:
    """A number in [low, high], or in (low, high] with `low_open`. `zero`: the message also names 0,
    which the caller accepts itself."""
    allowed = f"a number {'above' if low_open else 'from'} {low:g} to {high:g}"
    allowed = f"0 or {allowed}" if zero else allowed
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError.must_be(field, value, allowed)
    # NaN fails the comparison.
    if not low <= value <= high or (low_open and value == low):
        raise ConfigError.must_be(field, value, allowed)


def boolean(field: str, value: object) -> None:
    """True or False, not a number."""
    if not isinstance(value, bool):
        raise ConfigError.must_be(field, value, "true or false")


def choice(field: str, value: object, allowed: Sequence[str]) -> None:
    """One of the names in `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError.must_be(field, value, f"one of {', '.join(allowed)}")


def names(field: str, value: object, *, at_most: int) -> tuple[str, ...]:
    """A list or tuple of at most `at_most` non-empty strings; returned as a tuple."""
    allowed = f"a list of at most {at_most} non-empty strings"
    if not isinstance(value, (tuple, list)):
        raise ConfigError.must_be(field, value, allowed)
    if len(value) > at_most:
        # The message names the list's length, since `must_be` would show its first items only.
        raise ConfigError(f"{field} is a list of {len(value)}: it must be {allowed}")
    if not all(isinstance(item, str) and item for item in value):
        raise ConfigError.must_be(field, value, allowed)
    return tuple(value)


def text(field: str, value: object) -> None:
    """A string with at least one character that is not white space, encodable as UTF-8."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError.must_be(field, value, "a text with at least one visible character")
    whole_characters(field, value)


def whole_characters(field: str, value: str) -> None:
    """A string without lone surrogates: JSON can spell them, UTF-8 cannot."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError.must_be(
            field, value[error.start : error.end], "text without half a character (lone surrogate)"
        ) from error


# These limits bound the memory of a round and the messages to and from remote SSMs.
MAX_TREE_NODES = 256
MAX_SPECULATION_LENGTH = 64
MAX_EXPANSION = 16


def expansion(value: object) -> tuple[int, ...]:
    """An expansion <k1,...,km>; returned as a tuple."""
    if not isinstance(value, (tuple, list)) or not 1 <= len(value) <= MAX_SPECULATION_LENGTH:
        raise ConfigError.must_be(
            "expansion", value, f"1 to {MAX_SPECULATION_LENGTH} whole numbers from 1"
        )
    for width in value:
        integer("expansion", width, 1, MAX_EXPANSION)
    return tuple(value)


def weight_bounds(value: object) -> tuple[float, float]:
    """The least and the greatest weight of a drafter; returned as two floats."""
    allowed = "two numbers, the lower from 0.001 to 1 and the upper from 1 to 1000"
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ConfigError.must_be("weight_bounds", value, allowed)
    low, high = value
    number("weight_bounds", low, 0.001, 1.0)
    number("weight_bounds", high, 1.0, 1000.0)
    return float(low), float(high)


def tree_nodes(value: object) -> None:
    """A node budget: `auto`, `uncut` or a whole number."""
    if isinstance(value, str):
        if value not in ("auto", "uncut"):
            raise ConfigError.must_be(
                "max_tree_nodes", value, f"auto, uncut, or a number from 1 to {MAX_TREE_NODES}"
            )
        return
    integer("max_tree_nodes", value, 1, MAX_TREE_NODES)
