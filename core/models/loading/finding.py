"""Resolves a model's name to a folder or hub id that transformers reads. Downloads `smollm2` and
dequantizes GGUF files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from huggingface_hub import snapshot_download

from core.models.loading.catalog import (
    BUNDLED,
    SMOLLM2,
    ModelSource,
    bundled_llm,
    is_gguf,
    is_path,
    locate,
)
from core.models.loading.gguf_cache import dequantize_file
from core.models.loading.progress import Say
from core.models.loading.smollm2 import find_smollm2

__all__ = ["find", "find_folder"]


def find(name: str, say: Say) -> ModelSource:
    """The folder or hub id of a model's name. Raises ModelError."""
    if name == BUNDLED:
        name = str(bundled_llm())
    source = find_smollm2(say) if name == SMOLLM2 else locate(name)
    if not source.local or not is_gguf(source.name):
        return source
    folder = dequantize_file(Path(source.name), say)
    return replace(source, name=str(folder), file=source.name)


def find_folder(name: str, say: Say = lambda _: None) -> str:
    """The folder into which a GGUF file is dequantized, or that of `smollm2`; any other name
    unchanged. Raises ModelError."""
    if name != SMOLLM2 and not (is_path(name) and is_gguf(name)):
        return name
    source = find(name, say)
    return source.name if is_path(source.name) else snapshot_download(source.name)
