"""Writes a large model grown from a small one, one shard at a time, and compares the two."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from bench.contestants import load_module
from bench.grown.manifest import (
    GrowthRecipe,
    Likeness,
    card,
    check_likeness,
    likeness,
    write_manifest,
)
from bench.grown.module import meta_module, parameter_shapes, tensors
from bench.grown.shape import GrowthPlan
from core.errors import ConfigError, OutOfMemoryError
from core.models.machine import available_bytes, format_bytes

SHARD_BYTES = 1 << 30
# Memory for Python, torch and a text's activations.
OVERHEAD_BYTES = 512 << 20
COPIED = (
    *("added_tokens.json", "chat_template*", "generation_config.json", "merges.txt"),
    *("special_tokens_map.json", "tokenizer*", "vocab.*"),
)


def write_grown(
    folder: Path, source: Path, module: Any, recipe: GrowthRecipe, texts: Sequence[Sequence[int]]
) -> Likeness:
    """Writes the grown model and compares both models on `texts` (token ids). `source`: the folder
    of `module`. `folder` appears only when it is complete. Raises ConfigError if `folder` cannot be
    written, UnsupportedModelError if the logits differ too much."""
    dtype = getattr(torch, recipe.dtype)
    with _atomic_folder(folder) as temporary:
        large = meta_module(module, recipe.plan, dtype)
        large.config.save_pretrained(temporary)
        for path in copied_files(source):
            shutil.copy2(path, temporary / path.name)
        parameters = tensors(module, large, recipe.plan, recipe.seed, dtype)
        _write_weights(temporary, parameter_shapes(large), parameters, dtype.itemsize)
        similarity = likeness(module, load_module(temporary, dtype), texts)
        check_likeness(similarity, dtype, recipe.source)
        (temporary / "README.md").write_text(card(recipe, similarity), encoding="utf-8")
        write_manifest(temporary, recipe, similarity)
    return similarity


def copied_files(source: Path) -> list[Path]:
    return sorted({path for pattern in COPIED for path in source.glob(pattern) if path.is_file()})


@contextmanager
def _atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` if the block succeeds."""
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        yield temporary
        temporary.chmod(0o755)  # temporary folders are readable by their owner only
        if folder.exists():
            folder.rmdir()  # a non-empty folder was refused earlier
        os.replace(temporary, folder)
    except (OSError, SafetensorError) as error:
        raise ConfigError.of("--out", str(folder), f"a folder to write to ({error})") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _write_weights(
    folder: Path,
    shapes: dict[str, torch.Size],
    parameters: Iterator[tuple[str, torch.Tensor]],
    itemsize: int,
) -> None:
    groups = _groups(shapes, itemsize)
    count = len(groups)
    names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    names = names if count > 1 else ["model.safetensors"]
    for file, group in zip(names, groups, strict=True):
        # `parameters` yields in the order of the groups; only one shard is in memory.
        save_file(dict(itertools.islice(parameters, len(group))), folder / file, {"format": "pt"})
        (folder / file).chmod(0o644)  # safetensors makes the file readable by its owner only
    if len(names) > 1:
        total = sum(map(math.prod, shapes.values())) * itemsize
        file_of = {name: file for file, group in zip(names, groups, strict=True) for name in group}
        index = {"metadata": {"total_size": total}, "weight_map": file_of}
        path = folder / "model.safetensors.index.json"
        path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _groups(shapes: dict[str, torch.Size], itemsize: int) -> list[list[str]]:
    """Names by file, in the order of `shapes`. Only a file of one parameter may exceed
    SHARD_BYTES."""
    groups: list[list[str]] = [[]]
    group_bytes = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * itemsize
        if groups[-1] and group_bytes + size > SHARD_BYTES:
            groups.append([])
            group_bytes = 0
        groups[-1].append(name)
        group_bytes += size
    return groups


# -- checks before anything is written --


def check_memory_to_grow(plan: GrowthPlan, dtype: torch.dtype, name: str, copies: int = 1) -> None:
    """Raises OutOfMemoryError if memory is too small for the small model, `copies` large models,
    one shard that is being read from its file, and OVERHEAD_BYTES."""
    small = plan.small.parameters * dtype.itemsize
    large = plan.large.parameters * dtype.itemsize
    size = small + copies * large + min(large, SHARD_BYTES) + OVERHEAD_BYTES
    free = available_bytes(torch.device("cpu"))
    if free is not None and size > free:
        raise OutOfMemoryError(
            f"growing {name} to {plan.large.parameters:,} parameters needs {format_bytes(size)} "
            f"of memory: {format_bytes(free)} are free; choose fewer params or dtype bfloat16"
        )


def check_disk(folder: Path, plans: Sequence[GrowthPlan], dtype: torch.dtype) -> None:
    """Raises ConfigError if the folder's disk has no room for these models."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    size = sum(plan.large.parameters for plan in plans) * dtype.itemsize
    free = shutil.disk_usage(existing).free
    if size > free:
        raise ConfigError.of(
            "--out",
            str(folder),
            f"a folder with {format_bytes(size)} free; it has {format_bytes(free)}",
        )
