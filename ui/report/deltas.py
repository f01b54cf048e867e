"""Differences between two nested dicts, so that a report stores changes instead of every frame.

A delta is a list of up to three parts: a dict of new values, a dict of deltas for keys whose old
and new values are both dicts (unless only the old one is empty), and a list of removed keys. Empty
parts at the end are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Delta", "delta"]

Delta = list[Any]


def delta(before: Mapping[str, Any], after: Mapping[str, Any]) -> Delta:
    """The delta from `before` to `after`; an empty list if they are equal."""
    new_values: dict[str, Any] = {}
    inner: dict[str, Delta] = {}
    for key, value in after.items():
        old = before.get(key, ...)
        if old is value:
            continue
        kind = type(value)
        # Types are compared as well, since 0 == False.
        if kind is dict and type(old) is dict and (old or not value):
            change = delta(old, value)
            if change:
                inner[key] = change
        elif type(old) is not kind or old != value:
            new_values[key] = value
    parts: Delta = [new_values, inner, [key for key in before if key not in after]]
    while parts and not parts[-1]:
        parts.pop()
    return parts
