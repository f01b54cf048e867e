"""Plans and texts for tests of grown models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from bench.grown.module import shape_of
from bench.grown.shape import Plan


def plan_of(module: Any, factor: int = 4, layers: int = 1, ffn: int = 40) -> Plan:
    """So many times as wide, so many layers and feed-forward units more."""
    small = shape_of(module)
    wide = replace(
        small,
        hidden=small.hidden * factor,
        heads=small.heads * factor,
        kv_heads=small.kv_heads * factor,
        ffn=small.ffn + ffn,
        layers=small.layers + layers,
    )
    return Plan(small, wide)


def texts_of(module: Any, count: int = 2, length: int = 40) -> list[list[int]]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(1)
    shape = (count, length)
    return torch.randint(module.config.vocab_size, shape, generator=generator).tolist()
