"""A hopeless SSM: its passes cost what the real one's do, and nothing it proposes is accepted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from core.models.loading.load import LoadedModels
from core.models.protocol import Feed

__all__ = ["Hopeless", "with_hopeless_ssm"]


class Hopeless:
    """`model` turned against itself: what it holds impossible is what it proposes, and with
    confidence, so that only being refused tells on it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        """The model's own `forward`, its logits negated."""
        logits: list[torch.Tensor] = self._model.forward(feeds)
        return [-rows for rows in logits]


def with_hopeless_ssm(models: LoadedModels) -> LoadedModels:
    """The same LLM with one SSM, the first, turned hopeless."""
    name, model = next(iter(models.ssms.items()))
    ssm: Any = Hopeless(model)
    return dataclasses.replace(models, ssms={name: ssm})
