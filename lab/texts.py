"""Where two token sequences part."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_difference"]


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first place where the ids differ, the end of the shorter included; None for the same."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))
