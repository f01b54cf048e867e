"""SpecScope's engine: token ids, tensors and time. Knows no widget and no SQL.

The public names are imported when first asked for: who wants only `core.events` need not load
torch.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.config import Request, SamplingParams, SpeculationConfig
    from core.engine import Engine
    from core.heap import one_arena
    from core.models.loading import LoadedModels, load_models
    from core.threads import use_threads
    from core.worker import Run, Worker

__all__ = [
    "Engine",
    "LoadedModels",
    "Request",
    "Run",
    "SamplingParams",
    "SpeculationConfig",
    "Worker",
    "load_models",
    "one_arena",
    "use_threads",
]

_HOME = MappingProxyType(
    {
        "Engine": "core.engine",
        "LoadedModels": "core.models.loading",
        "Request": "core.config",
        "Run": "core.worker",
        "SamplingParams": "core.config",
        "SpeculationConfig": "core.config",
        "Worker": "core.worker",
        "load_models": "core.models.loading",
        "one_arena": "core.heap",
        "use_threads": "core.threads",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'core' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
