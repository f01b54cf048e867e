"""A drafter's slot is a number that determines the drafter's colour and letter.

The first slots belong to the loaded SSMs, the next to the built-in drafters without a model, the
last to user-defined drafters. An SSM has the same slot in all runs with the same models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.config.mechanisms import MODEL_FREE
from core.events import ModelInfo

__all__ = ["letter", "letters_of", "slots_of"]


def letter(index: int) -> str:
    """The letter of slot `index`: A, B, ... Z, then AA."""
    first = letter(index // 26 - 1) if index >= 26 else ""
    return first + chr(ord("A") + index % 26)


def slots_of(drafters: Sequence[str], models: Iterable[ModelInfo]) -> dict[str, int]:
    """The slot of each drafter, in the order of `drafters`. `models`: the models that were loaded
    during the run."""
    ssms = [model.name for model in models if model.role == "ssm"]
    names = [*ssms, *MODEL_FREE]
    others = [name for name in drafters if name not in names]
    return {name: [*names, *others].index(name) for name in drafters}


def letters_of(slots: dict[str, int]) -> dict[str, str]:
    """The letter of each drafter."""
    return {name: letter(slot) for name, slot in slots.items()}
