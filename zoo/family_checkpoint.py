"""The checkpoint of `zoo chat-family`: a file for each batch of answers, and one for the
training."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core.errors import ConfigError
from zoo.files import remove_folder, replace_file

__all__ = ["FamilyCheckpoint"]


class FamilyCheckpoint:
    """Files in a folder under `out`. `identity`: what a run and the interrupted run that it resumes
    must have in common. Tensors are loaded on `device`."""

    def __init__(self, out: Path, identity: Mapping[str, Any], device: torch.device) -> None:
        description = json.dumps(identity, sort_keys=True)
        name = hashlib.sha256(description.encode()).hexdigest()[:16]
        self._folder, self._device = out / f"chat-family-{name}", device

    def save(self, name: str, state: Mapping[str, Any]) -> None:
        """Stores tensors and plain values; the file is complete when this returns."""
        replace_file(self._folder / f"{name}.pt", lambda file: torch.save(dict(state), file))

    def load(self, name: str) -> dict[str, Any] | None:
        """The stored state, or None. Raises ConfigError for a damaged file."""
        path = self._folder / f"{name}.pt"
        if not path.is_file():
            return None
        try:
            # weights_only, since a pickle could run code.
            state = torch.load(path, map_location=self._device, weights_only=True)
            assert isinstance(state, dict)
            return state
        except (OSError, RuntimeError, EOFError, AssertionError, pickle.UnpicklingError) as error:
            allowed = f"a readable checkpoint; remove {self._folder} to begin anew"
            raise ConfigError.of("out", str(path), allowed) from error

    def clear(self) -> None:
        """Removes all files."""
        remove_folder(self._folder)
