"""Opens models in float32 and identifies them; chooses the precision of matrix products."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from core.errors import ConfigError, ModelLoadError
from core.models.loading.catalog import is_path
from core.models.loading.finding import find_folder
from core.models.loading.gguf_cache import sha256_of

__all__ = ["autocast", "model_folder", "named_id", "open_model", "weights_id"]


def open_model(folder: Path, field: str = "models", vocab_size: int | None = None) -> Any:
    """The model in `folder`, with at most `vocab_size` tokens: embeddings are often padded. Raises
    ConfigError, which names `field`, if there is no model; ModelLoadError if it cannot be
    loaded."""
    if not (folder / "config.json").is_file():
        raise ConfigError.of(field, str(folder), "a folder that holds config.json and weights")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelLoadError.of(field, str(folder), f"a folder that opens; {error}") from error
    if vocab_size is not None and model.config.vocab_size > vocab_size:
        model.resize_token_embeddings(vocab_size)
    return model


def model_folder(path: Path) -> Path:
    """`path` itself; for a GGUF file or `smollm2`, the folder of its dequantized or downloaded
    weights. Raises ModelError."""
    return Path(find_folder(str(path)))


def weights_id(folder: Path) -> str:
    """A hash of the weights in `folder` and their configuration, in hex."""
    patterns = ("*.safetensors", "*.bin", "config.json")
    files = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return hashlib.sha256(" ".join(map(sha256_of, files)).encode()).hexdigest()


def named_id(name: str) -> str:
    """The identity of a model: for a folder, the hash of its weights; else its hub id."""
    name = find_folder(name)
    return weights_id(Path(name).expanduser()) if is_path(name) else name


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 matrix products; float32 on a CPU that has no instructions for them."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=_multiplies_bfloat16(device))


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type != "cpu":
        return True
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
