"""Numbers in sentences and messages."""

from __future__ import annotations

__all__ = ["noun_of", "number_of"]


def noun_of(count: int, noun: str) -> str:
    """The noun, in the plural unless `count` is 1."""
    return noun if count == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"


def number_of(count: int, noun: str) -> str:
    """The count and its noun: 1 token, 2 tokens."""
    return f"{count} {noun_of(count, noun)}"
