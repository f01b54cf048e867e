"""Fills what rows leave open, pairwise: every two values that go together occur in some row.

Knows nothing of what the values mean. The same rows and fields give the same result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Values", "filled", "missing"]

Values = dict[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def filled(
    rows: Sequence[Values],
    open_fields: Mapping[str, Sequence[Any]],
    meets: Callable[[Values], bool],
) -> list[Values]:
    """Each row with the values that bring the most pairs that no row before it has; among equals
    the first, so that what is listed first is what most rows have."""
    seen: set[Pair] = set()
    found = []
    names = tuple(open_fields)
    choices = [
        dict(zip(names, values, strict=True)) for values in itertools.product(*open_fields.values())
    ]
    for row in rows:
        fitting = [whole for choice in choices if meets(whole := {**row, **choice})]
        found.append(max(fitting, key=lambda whole: len(_pairs(whole) - seen)))
        seen |= _pairs(found[-1])
    return found


def missing(
    rows: Sequence[Values],
    fields: Mapping[str, Sequence[Any]],
    meets: Callable[[Values], bool],
) -> set[Pair]:
    """The pairs of values that go together and that no row has."""
    seen: set[Pair] = set().union(*map(_pairs, rows))
    return {
        ((a, x), (b, y))
        for a, b in itertools.combinations(sorted(fields), 2)
        for x in fields[a]
        for y in fields[b]
        if meets({a: x, b: y})
    } - seen


def _pairs(row: Values) -> set[Pair]:
    return set(itertools.combinations(sorted(row.items(), key=lambda item: item[0]), 2))
