"""A drafter's slot, which is its colour and its letter, for good: SSMs by the list of the loaded
ones, not by a run's own list, then the drafters without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.config.mechanisms import MODEL_FREE
from core.events import ModelInfo

__all__ = ["letter", "letters_of", "slots_of"]


def letter(index: int) -> str:
    """The drafter's letter: A, B, ... Z, then AA."""
    first = letter(index // 26 - 1) if index >= 26 else ""
    return first + chr(ord("A") + index % 26)


def slots_of(drafters: Sequence[str], models: Iterable[ModelInfo]) -> dict[str, int]:
    """The slot of each of a run's `drafters`, in their order; `models` were loaded in the run."""
    ssms = [model.name for model in models if model.role == "ssm"]
    known = [*ssms, *MODEL_FREE]
    others = [name for name in drafters if name not in known]
    return {name: [*known, *others].index(name) for name in drafters}


def letters_of(slots: dict[str, int]) -> dict[str, str]:
    """The letter of each drafter, in their order."""
    return {name: letter(slot) for name, slot in slots.items()}
