"""Compares two token sequences."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_difference"]


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first index at which the ids differ or one sequence has ended; None if they are equal."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return None if len(one) == len(other) else min(len(one), len(other))
