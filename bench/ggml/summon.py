"""Whether llama.cpp can compete, and the sentence that a table says about it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch

from bench.ggml.peer import LlamaCpp
from core.errors import SpecScopeError

__all__ = ["installed", "summoned"]

PACKAGES = ("llama_cpp", "gguf")
COMMAND = "pip install llama-cpp-python gguf"


def installed() -> bool:
    """Whether its packages are there."""
    return all(find_spec(name) is not None for name in PACKAGES)


def summoned(module: Any, assistants: Mapping[str, Any]) -> tuple[LlamaCpp | None, str]:
    """llama.cpp over the weights of transformers modules, with as many threads as torch has, and
    its version; or None and why it does not compete."""
    if not installed():
        return None, f"llama.cpp did not compete: it is not installed (`{COMMAND}`)."
    try:
        llama = LlamaCpp(module, assistants, torch.get_num_threads())
    except (ImportError, OSError, RuntimeError, ValueError, SpecScopeError) as error:
        return None, f"llama.cpp did not compete: {' '.join(str(error).split())[:200]}."
    return llama, f"llama.cpp is that of llama-cpp-python {llama.version}."
