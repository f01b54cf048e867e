"""Rigs with fakes: a worker behind other models, and a loader that waits where it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from core.events import ModelInfo
from tests.ui.fakes import FakeWorker, scripted
from ui.exchange import Pair, Say
from ui.rig import Rig

__all__ = ["OTHER", "Loader", "failing", "other_worker", "settled"]

OTHER = Pair("other", ("small",))


def other_worker(*names: str, speed: float = 0.1) -> FakeWorker:
    """A worker behind other models: an LLM called other, and SSMs."""
    worker = FakeWorker(scripted(6), speed)
    infos = [ModelInfo("other", "llm", 9, "None", 64, 64, "float32", "cpu")]
    infos += [ModelInfo(name, "ssm", 1, "None", 64, 64, "float32", "cpu") for name in names]
    worker.engine = SimpleNamespace(
        models=SimpleNamespace(infos=tuple(infos), drafter_names=tuple(names))
    )
    return worker


class Loader:
    """Loads in three stages, each of which waits to be let go where `held`; then `outcome`."""

    def __init__(self, outcome: Callable[[], Any], held: bool = False) -> None:
        self.outcome, self.asked = outcome, list[Pair]()
        self.go = threading.Event()
        if not held:
            self.go.set()

    def __call__(self, pair: Pair, say: Say) -> Any:
        self.asked.append(pair)
        for stage in ("Looking for the models", "LLM other: weights", "SSM 1 of 1 small: weights"):
            say(stage)
            assert self.go.wait(10)
        return self.outcome()


def failing(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def settled(rig: Rig) -> None:
    """Wait until nothing is loaded and nothing of before is left."""
    end = time.monotonic() + 120  # a real run may have to end first
    while rig.exchange.loading or rig._leaving:
        assert time.monotonic() < end, rig.exchange
        time.sleep(0.005)
    for thread in threading.enumerate():
        if thread.name == "exchange":
            thread.join(10)
