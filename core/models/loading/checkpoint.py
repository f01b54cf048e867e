"""The weights of an LLM's files by name, for what reads them without making the whole model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from core.errors import ModelLoadError, UnsupportedModelError
from core.models.loading.catalog import ModelSource
from core.models.loading.fingerprint import Fingerprint
from core.models.machine import weight_files

__all__ = ["Checkpoint", "checkpoint_files", "fingerprint_of_files", "module_without_weights"]


class Checkpoint:
    """The weights of safetensors files by name. A file is mapped only while it is read: what was
    read of a mapping counts as the process's memory."""

    def __init__(self, files: list[Path], dtype: torch.dtype) -> None:
        self.files, self._dtype = files, dtype
        self._file_of: dict[str, Path] = {}
        for file in files:
            with safe_open(file, framework="pt") as kept:
                self._file_of |= dict.fromkeys(kept.keys(), file)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        """The weights of these names, under the keys."""
        with ExitStack() as closing:
            opened: dict[Path, Any] = {}
            found = {}
            for key, name in names.items():
                if name not in self._file_of:
                    raise ValueError(f"weight {name} is missing")
                file = self._file_of[name]
                try:
                    if file not in opened:
                        opened[file] = closing.enter_context(safe_open(file, framework="pt"))
                    # A copy in any case, no view of the mapping.
                    found[key] = opened[file].get_tensor(name).to(self._dtype, copy=True)
                except OSError as error:  # a layer file may be written meanwhile: not its fault
                    raise ModelLoadError(
                        f"weights file is {str(file)!r}: it cannot be read ({error})"
                    ) from error
            return found


def checkpoint_files(source: ModelSource, config: Any) -> list[Path]:
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError(
            f"model {source} has quantized weights: its layers cannot be streamed; whole weights "
            "are allowed"
        )
    files = weight_files(source.name)
    if not files or any(file.suffix != ".safetensors" for file in files):
        raise ModelLoadError(
            f"model is {str(source)!r}: its layers are not in safetensors files on this machine; "
            "to stream them, a folder or a cached hub id with such files is allowed"
        )
    return files


def module_without_weights(config: Any) -> Any:
    """The whole module on the device `meta`."""
    from transformers import AutoModelForCausalLM

    kind: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config)


def fingerprint_of_files(source: ModelSource, module: Any, whole: Any, dtype: torch.dtype) -> str:
    """The fingerprint of the whole model, one weight in memory at a time. `module`: any part of it,
    for its configuration; `whole`: without weights. Empty where the files name weights otherwise,
    or are no safetensors: then the model is known by its other fields."""
    files = weight_files(source.name)
    if not files or any(file.suffix != ".safetensors" for file in files):
        return ""
    checkpoint, fingerprint = Checkpoint(files, dtype), Fingerprint(module)
    tied = {name: whole.all_tied_weights_keys.get(name, name) for name in whole.state_dict()}
    for name, stored in tied.items():
        if stored not in checkpoint:
            return ""
        fingerprint.add(name, checkpoint.read({name: stored})[name])
    return fingerprint.text
