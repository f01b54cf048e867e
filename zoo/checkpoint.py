"""The saved state of one training run, replaced atomically."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core.errors import ConfigError, ModelError
from zoo.files import replace_file
from zoo.trainer import Trainer

__all__ = ["TrainingCheckpoint"]

FIELDS = frozenset(("identity", "spent", "trainer"))


class TrainingCheckpoint:
    """One file. `identity`: the settings of the run."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self._path = path
        self._identity = dict(identity)

    def save(self, trainer: Trainer, spent: float, *, evaluation_due: bool = False) -> None:
        """Replaces the file. `spent`: seconds of the budget so far. `evaluation_due`: whether this
        step's model is still to be evaluated. Raises ModelError if the loss is not finite; the old
        file stays."""
        loss = trainer.loss()
        if not math.isfinite(loss):
            raise ModelError(
                f"loss of {trainer.recipe.name} is {loss} at step {trainer.num_steps}: "
                "only a finite loss can be saved; try a lower learning_rate"
            )
        state = {
            "identity": self._identity,
            "spent": spent,
            "owes": evaluation_due,  # the name in stored files
            "trainer": trainer.state(),
        }
        replace_file(self._path, lambda file: torch.save(state, file))

    def load(self, trainer: Trainer) -> tuple[float, bool]:
        """Loads the state into `trainer`; returns (`spent`, `evaluation_due`), (0.0, False) without
        a file. Raises ConfigError for an unreadable file or another identity."""
        if not self._path.is_file():
            return 0.0, False
        state = self._read(trainer.device)
        self._check(state["identity"])
        trainer.load_state(state["trainer"])
        return float(state["spent"]), bool(state.get("owes", False))  # not in older files

    def _read(self, device: torch.device) -> dict[str, Any]:
        unreadable = ConfigError.of(
            "out", str(self._path), "a readable checkpoint; remove it to train anew"
        )
        try:
            # weights_only, since a pickle could run code.
            state = torch.load(self._path, map_location=device, weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise unreadable from error
        if not isinstance(state, dict) or not state.keys() >= FIELDS:
            raise unreadable
        return state

    def _check(self, identity: Mapping[str, Any]) -> None:
        for field in {**self._identity, **identity}:  # missing on one side counts as different
            if identity.get(field) != self._identity.get(field):
                raise ConfigError.of(
                    "out",
                    str(self._path),
                    f"a checkpoint of the same {field}; remove it to train anew",
                )
