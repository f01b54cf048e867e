"""SpecScope's engine. Imports neither the page (Gradio) nor the run log (SQLite).

Public names are imported on first access: `import core.events` does not load torch.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.config import Request, SamplingParams, SpeculationConfig
    from core.engine.engine import Engine
    from core.engine.worker import Run, Worker
    from core.models.loading.load import LoadedModels, load_models
    from core.models.machine import one_arena, use_threads
    from core.remote_ssms.connecting import connect_nodes

__all__ = [
    "Engine",
    "LoadedModels",
    "Request",
    "Run",
    "SamplingParams",
    "SpeculationConfig",
    "Worker",
    "connect_nodes",
    "load_models",
    "one_arena",
    "use_threads",
]

_MODULES = MappingProxyType(
    {
        "Engine": "core.engine.engine",
        "LoadedModels": "core.models.loading.load",
        "Request": "core.config.config",
        "Run": "core.engine.worker",
        "SamplingParams": "core.config.config",
        "SpeculationConfig": "core.config.config",
        "Worker": "core.engine.worker",
        "connect_nodes": "core.remote_ssms.connecting",
        "load_models": "core.models.loading.load",
        "one_arena": "core.models.machine",
        "use_threads": "core.models.machine",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'core' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
