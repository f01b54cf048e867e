"""Whether there is room to grow a family: asked before anything is read or written."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.grown.shape import Plan
from bench.grown.writing import SHARD_BYTES
from core.errors import ConfigError, OutOfMemoryError
from core.models.loading.memory import available_bytes, readable

__all__ = ["check_disk", "check_memory_to_grow"]

# Python, torch and a text's activations.
BESIDE_BYTES = 512 << 20


def check_memory_to_grow(plan: Plan, dtype: torch.dtype, name: str, copies: int = 1) -> None:
    """Raises OutOfMemoryError. The small model and the large one, `copies` times, are there at
    once, and a shard of it again on its way from its file (0.5 B parameters in float32: 3.0 GiB
    seen, 3.4 asked for)."""
    small = plan.small.parameters * dtype.itemsize
    large = plan.large.parameters * dtype.itemsize
    needed = small + copies * large + min(large, SHARD_BYTES) + BESIDE_BYTES
    free = available_bytes(torch.device("cpu"))
    if free is not None and needed > free:
        raise OutOfMemoryError(
            f"growing {name} to {plan.large.parameters:,} parameters needs {readable(needed)} of "
            f"memory: {readable(free)} are free; choose fewer params or dtype bfloat16"
        )


def check_disk(folder: Path, plans: Sequence[Plan], dtype: torch.dtype) -> None:
    """Raises ConfigError where the folder's disk has no room for these plans' weights."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    needed = sum(plan.large.parameters for plan in plans) * dtype.itemsize
    free = shutil.disk_usage(there).free
    if needed > free:
        raise ConfigError.of(
            "--out", str(folder), f"a folder with {readable(needed)} free: {readable(free)} are"
        )
