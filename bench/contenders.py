"""Contenders: who competes for tokens per second on one family of models in one dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.context import Context
from bench.ggml.peer import LlamaCpp
from bench.ggml.summon import summoned
from bench.theirs import Theirs, load_module
from core.engine.engine import Engine
from core.models.loading.catalog import bundled_ssms

__all__ = ["Contenders", "Summon", "bundled_contenders"]


@dataclass(frozen=True, slots=True)
class Contenders:
    """Our engines over one LLM, by what is to be said of their SSMs (empty where there is one
    engine); transformers with the same LLM, and its assistants by name; llama.cpp with the same
    ones where it is installed, and a sentence about it."""

    engines: Mapping[str, Engine]
    theirs: Theirs
    assistants: Mapping[str, Any]
    llama: LlamaCpp | None = None
    told: str = ""


Summon = Callable[[Context, str], Contenders]
"""Loads the contenders of a dtype."""


def bundled_contenders(context: Context, dtype: str) -> Contenders:
    """Of the bundled family."""
    theirs = Theirs(dtype)
    assistants = {path.name: load_module(path, theirs.dtype) for path in bundled_ssms()}
    peer = summoned(theirs.module, assistants)
    return Contenders({"": Engine(context.load(dtype))}, theirs, assistants, *peer)
