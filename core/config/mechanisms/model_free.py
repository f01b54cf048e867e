"""Drafters that are no SSMs: built-in drafters, and user-defined drafters, named by import path."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["MODEL_FREE", "NGRAM", "SUFFIX", "TABLE", "is_model_free", "is_own", "own_among"]

# An SSM with one of these names is renamed when the SSM is loaded.
NGRAM, SUFFIX, TABLE = "ngram", "suffix", "table"
MODEL_FREE = (NGRAM, SUFFIX, TABLE)
"""Built-in drafters without a model."""


def is_own(name: str) -> bool:
    """Whether a name is an import path `package.module:Class`."""
    return ":" in name


def own_among(names: Iterable[str]) -> tuple[str, ...]:
    """The import paths among names of drafters."""
    return tuple(filter(is_own, names))


def is_model_free(name: str) -> bool:
    """Whether a drafter is no SSM."""
    return name in MODEL_FREE or is_own(name)
