"""What changed between two values of dicts, so that a run is told once and not frame by frame.

A delta is a list, cut short where its end is empty: keys with their new values, keys with a delta
of their own (where both sides are dicts), keys that are gone. The inverse is `assets/deltas.js`.
Knows no picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Delta", "delta"]

Delta = list[Any]


def delta(before: Mapping[str, Any], after: Mapping[str, Any]) -> Delta:
    """What turns `before` into `after`; an empty list where nothing does."""
    news: dict[str, Any] = {}
    inner: dict[str, Delta] = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and (old or not value):
            own = delta(old, value) if old is not value else []
            inner |= {key: own} if own else {}
        elif key not in before or not _same(old, value):
            news[key] = value
    parts: Delta = [news, inner, [key for key in before if key not in after]]
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _same(old: Any, value: Any) -> bool:
    """As JSON tells them: 0 is no false."""
    return old is value or (isinstance(old, bool) == isinstance(value, bool) and old == value)
