"""Checkpoint: reads an LLM's weights from its files by name, without making the entire model."""

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
    """The weights of safetensors files by name, converted to `dtype`. A file is mapped only while
    it is read: mapped pages count toward the process's memory."""

    def __init__(self, files: list[Path], dtype: torch.dtype) -> None:
        self.files, self._dtype = files, dtype
        self._file_of: dict[str, Path] = {}
        for file in files:
            with safe_open(file, framework="pt") as tensors:
                self._file_of |= dict.fromkeys(tensors.keys(), file)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        """Reads weights: `names` maps a key of the result to a weight's name. Raises ValueError for
        an unknown name, ModelLoadError for a file that cannot be read."""
        with ExitStack() as exit_stack:
            files: dict[Path, Any] = {}
            weights = {}
            for key, name in names.items():
                if name not in self._file_of:
                    raise ValueError(f"weight {name} is missing")
                file = self._file_of[name]
                try:
                    if file not in files:
                        files[file] = exit_stack.enter_context(safe_open(file, framework="pt"))
                    # Always a copy: the mapping is closed below.
                    weights[key] = files[file].get_tensor(name).to(self._dtype, copy=True)
                except OSError as error:
                    # An OSError would make offloading.py say that the layer file cannot be written.
                    raise ModelLoadError.of(
                        "weights file", str(file), f"it cannot be read ({error})"
                    ) from error
            return weights


def checkpoint_files(source: ModelSource, config: Any) -> list[Path]:
    """The safetensors files of a model whose layers can be read one by one. Raises
    UnsupportedModelError for quantized weights, ModelLoadError without such files."""
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError(
            f"model {source} has quantized weights: its layers cannot be streamed; "
            "unquantized weights are allowed"
        )
    if not (files := _safetensors_files(source)):
        raise ModelLoadError.of(
            "model",
            str(source),
            "its layers are not in safetensors files on this machine; "
            "to stream them, a folder or a cached hub id with such files is allowed",
        )
    return files


def _safetensors_files(source: ModelSource) -> list[Path]:
    """A model's weight files if all of them are safetensors, else none."""
    files = weight_files(source.name)
    return files if all(file.suffix == ".safetensors" for file in files) else []


def module_without_weights(config: Any) -> Any:
    """The module of a configuration with all its layers, on the device `meta`."""
    from transformers import AutoModelForCausalLM

    kind: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config)


def fingerprint_of_files(source: ModelSource, module: Any, meta: Any, dtype: torch.dtype) -> str:
    """The fingerprint of the entire model, computed with one weight in memory at a time. `module`:
    the model or a part of it, whose configuration is digested; `meta`: the result of
    `module_without_weights`. Empty if the files are not safetensors, or if they lack a
    weight of `meta`."""
    if not (files := _safetensors_files(source)):
        return ""
    checkpoint, fingerprint = Checkpoint(files, dtype), Fingerprint(module)
    # Files have a tied weight once; the state dict has each of its names.
    keys = {name: meta.all_tied_weights_keys.get(name, name) for name in meta.state_dict()}
    for name, key in keys.items():
        if key not in checkpoint:
            return ""
        fingerprint.add(name, checkpoint.read({name: key})[name])
    return fingerprint.text
