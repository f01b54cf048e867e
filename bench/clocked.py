"""A LanguageModel that keeps count of the time its passes take; all else is passed on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch

from core.models.language_model import Feed
from core.models.loading import LoadedModels

__all__ = ["Clock", "Clocked", "clocked"]


class Clock:
    """Milliseconds of passes since they were last taken, the LLM's and the SSMs' apart."""

    def __init__(self) -> None:
        self._ms = {"llm": 0.0, "ssm": 0.0}

    def add(self, role: str, ms: float) -> None:
        self._ms[role] += ms

    def take(self) -> dict[str, float]:
        """What has been counted, by role; counting starts again."""
        taken, self._ms = self._ms, {"llm": 0.0, "ssm": 0.0}
        return taken


class Clocked:
    """`model` with its passes on the clock. For models on the CPU: a pass there ends when it
    returns."""

    def __init__(self, model: Any, role: str, clock: Clock) -> None:
        self._model = model
        self._role = role
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        """The model's own `forward`, timed."""
        start = time.perf_counter()
        logits: list[torch.Tensor] = self._model.forward(feeds)
        self._clock.add(self._role, (time.perf_counter() - start) * 1000)
        return logits


def clocked(models: LoadedModels, clock: Clock) -> LoadedModels:
    """The same models, all of their passes on one clock."""
    llm: Any = Clocked(models.llm, "llm", clock)
    ssms: Any = {name: Clocked(model, "ssm", clock) for name, model in models.ssms.items()}
    return dataclasses.replace(models, llm=llm, ssms=ssms)
