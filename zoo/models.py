"""Model folders: opened in float32, and told apart by what is in them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from core.errors import ConfigError, ModelLoadError
from zoo.files import sha256_of

__all__ = ["open_model", "weights_id"]


def open_model(folder: Path) -> Any:
    """The model in `folder`. ConfigError where there is none, ModelLoadError where it does not
    open."""
    if not (folder / "config.json").is_file():
        raise ConfigError.of("models", str(folder), "a folder that holds config.json and weights")
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelLoadError(f"models is {str(folder)!r}: a folder that opens; {error}") from error


def weights_id(folder: Path) -> str:
    """A hash of the weights in `folder` and their configuration, in hex."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")])
    return hashlib.sha256(" ".join(map(sha256_of, files)).encode()).hexdigest()
