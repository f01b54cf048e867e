"""Names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["join_names"]


def join_names(names: Sequence[str]) -> str:
    """A; A and B; A, B and C."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
