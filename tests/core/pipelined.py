"""Small pipelined requests over tiny models, with a drafting process that is a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters import homes
from core.events import Event, RoundCompleted
from core.models.loading import LoadedModels
from tests.core.engines import ids_of_events
from tests.core.threaded import ThreadedProcess
from tests.fakes import loaded, perturbed, tiny_module

__all__ = [
    "PROMPTS",
    "SOON",
    "beside",
    "is_free",
    "models",
    "notes_of",
    "pipelined",
    "plain",
    "requests",
]

PROMPTS = ("w3 w9 w27 w17", "w5 w25")
TOKENS = 12
SHAPE: dict[str, Any] = {"expansion": (2, 1), "speculation_length": 3, "max_tree_nodes": 24}
SOON = 20.0


@cache
def models() -> LoadedModels:
    llm = tiny_module("llama", seed=1, dtype=torch.float32)
    return loaded(llm, [perturbed(llm, 0.05, seed=3), tiny_module("llama", 2, torch.float32)])


@contextmanager
def pipelined(monkeypatch: pytest.MonkeyPatch, *, at_once: bool = True) -> Iterator[Engine]:
    """An engine whose drafting process stands, `at_once` or when it is wanted."""
    monkeypatch.setattr(homes, "DraftingProcess", ThreadedProcess)
    made = Engine(models(), place="process")
    assert not at_once or made.ready_beside(SOON)
    yield made
    made.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("drafting")]


def requests(pipeline: str, tokens: int = TOKENS, **fields: Any) -> list[Request]:
    config = SpeculationConfig(**{**SHAPE, **fields}, pipeline=pipeline)
    return [Request(prompt, SamplingParams(tokens, ignore_eos=True), config) for prompt in PROMPTS]


@cache
def plain(tokens: int = TOKENS) -> tuple[list[int], ...]:
    engine = Engine(models(), place="thread")
    asked = requests("off", tokens, drafters=())
    return tuple(ids_of_events(engine.generate(request)) for request in asked)


def beside(engine: Engine) -> ThreadedProcess:
    process = engine._drafting.homes._process
    assert isinstance(process, ThreadedProcess)
    return process


def is_free(engine: Engine) -> bool:
    """No lock, no thread, no row of anybody."""
    rows = [engine.models.llm, *engine.models.ssms.values()]
    threads = [t for t in threading.enumerate() if t.name.startswith("drafting_")]
    held = [row for model in rows for row in model._rows if row is not None]  # type: ignore[attr-defined]
    return not (engine.busy.locked() or threads or held)


def notes_of(events: list[Event]) -> list[str]:
    return [note for e in events if isinstance(e, RoundCompleted) for note in e.notes]
