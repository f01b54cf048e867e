"""Checks of plain values, shared by the configuration classes: a check returns or raises."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import ConfigError

__all__ = ["choice", "integer", "names", "number", "text", "whole_characters"]


def integer(field: str, value: object, low: int, high: int) -> None:
    """A whole number in [low, high]; a bool is not one."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError.of(field, value, f"a whole number from {low} to {high}")


def number(
    field: str,
    value: object,
    low: float,
    high: float,
    *,
    low_open: bool = False,
    zero: bool = False,
) -> None:
    """A finite number in [low, high], or (low, high] with `low_open`; `zero` is said to be allowed
    too (the caller lets it pass)."""
    allowed = f"a number {'above' if low_open else 'from'} {low:g} to {high:g}"
    allowed = f"0 or {allowed}" if zero else allowed
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError.of(field, value, allowed)
    # NaN compares false with everything, so it is refused here too.
    if not low <= value <= high or (low_open and value == low):
        raise ConfigError.of(field, value, allowed)


def choice(field: str, value: object, allowed: Sequence[str]) -> None:
    """One of the names in `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError.of(field, value, f"one of {', '.join(allowed)}")


def names(field: str, value: object, *, at_most: int) -> tuple[str, ...]:
    """Up to `at_most` non-empty strings, as a tuple; a bare string is refused."""
    allowed = f"a list of at most {at_most} non-empty strings"
    if not isinstance(value, (tuple, list)):
        raise ConfigError.of(field, value, allowed)
    if len(value) > at_most:
        raise ConfigError(f"{field} is a list of {len(value)}: {allowed}")
    if not all(isinstance(item, str) and item for item in value):
        raise ConfigError.of(field, value, allowed)
    return tuple(value)


def text(field: str, value: object) -> None:
    """A string with at least one character that is not white space, encodable as UTF-8."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError.of(field, value, "a text with at least one visible character")
    whole_characters(field, value)


def whole_characters(field: str, value: str) -> None:
    """Encodable as UTF-8."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError.of(
            field, value[error.start : error.end], "text without half a character (lone surrogate)"
        ) from error
