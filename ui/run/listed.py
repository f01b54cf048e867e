"""Joins names to a phrase, shortens texts, and turns lists into dicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["by_index", "join_names", "shorten"]

T = TypeVar("T")


def by_index(values: Iterable[T]) -> dict[str, T]:
    """A dict from index, as text, to value: pictures take no lists (ui/run/values.py)."""
    return {str(i): value for i, value in enumerate(values)}


def join_names(names: Sequence[str]) -> str:
    """A; A and B; A, B and C."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def shorten(text: str, most: int) -> str:
    """The text in at most `most` characters; a cut text ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
