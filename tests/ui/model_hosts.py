"""Fakes for tests of model hosts: a worker with other models, and a loader that a test can hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from core.config import Request
from core.events import Event, ModelInfo
from tests.ui.fakes import FakeWorker, Script, script_of
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair, Say

OTHER = ModelPair("other", ("small",))


def other_worker(*names: str, slowdown: float = 0.1) -> FakeWorker:
    infos = [ModelInfo("other", "llm", 9, "None", 64, 64, "float32", "cpu")]
    infos += [ModelInfo(name, "ssm", 1, "None", 64, 64, "float32", "cpu") for name in names]
    worker = FakeWorker(_with_llm(script_of(6), infos[0]), slowdown)
    worker.engine = SimpleNamespace(
        models=SimpleNamespace(infos=tuple(infos), drafter_names=tuple(names)), schedule="each"
    )
    return worker


def _with_llm(script: Script, llm: ModelInfo) -> Script:
    def play(request: Request, run_id: str) -> list[Event]:
        first, *rest = script(request, run_id)
        models = (llm, *(model for model in first.models if model.role != "llm"))
        return [replace(first, models=models), *rest]

    return play


class Loader:
    """If `held`, each stage of a load waits until `go` is set."""

    def __init__(self, outcome: Callable[[], Any], held: bool = False) -> None:
        self.outcome, self.asked = outcome, list[ModelPair]()
        self.go = threading.Event()
        if not held:
            self.go.set()

    def __call__(self, pair: ModelPair, say: Say) -> Any:
        self.asked.append(pair)
        for stage in ("Looking for the models", "LLM other: weights", "SSM 1 of 1 small: weights"):
            say(stage)
            assert self.go.wait(10)
        return self.outcome()


def failing_loader(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def wait_for_load(model_host: ModelHost) -> None:
    while model_host.swap.is_loading:
        model_host.wait(model_host.swap, 0.1)


def wait_settled(model_host: ModelHost) -> None:
    end = time.monotonic() + 120  # a real run may have to end first
    while model_host.swap.is_loading or model_host._leaving:
        assert time.monotonic() < end, model_host.swap
        time.sleep(0.005)
    for thread in threading.enumerate():
        if thread.name == "swap":
            thread.join(10)
