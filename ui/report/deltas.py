"""Differences between two nested dicts, so that a report stores changes instead of every frame.

A delta is a list of up to three parts, without empty parts at its end: keys with new values, keys
with a delta of their own (if both values are dicts), removed keys. The inverse is
`assets/deltas.js`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Delta", "delta"]

Delta = list[Any]


def delta(before: Mapping[str, Any], after: Mapping[str, Any]) -> Delta:
    """The delta from `before` to `after`; an empty list if they are equal."""
    news: dict[str, Any] = {}
    inner: dict[str, Delta] = {}
    for key, value in after.items():
        old = before.get(key, ...)
        if old is value:
            continue
        kind = type(value)
        # Types are compared as well, since 0 == False.
        if kind is dict and type(old) is dict and (old or not value):
            own = delta(old, value)
            if own:
                inner[key] = own
        elif type(old) is not kind or old != value:
            news[key] = value
    parts: Delta = [news, inner, [key for key in before if key not in after]]
    while parts and not parts[-1]:
        parts.pop()
    return parts
