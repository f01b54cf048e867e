"""Compares two token sequences."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_difference"]


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first index at which the ids differ or one sequence has ended; None if they are equal."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))
