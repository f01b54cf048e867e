"""A model whose passes wait at a gate, and helpers for tests of the worker."""

import threading
import time
from collections.abc import Callable, Sequence

import torch

from core import Request, Run, SamplingParams, SpeculationConfig, Worker
from core.events import Event
from core.models.protocol import Feed
from tests.fakes import TableModel, random_table

VOCAB = 8
CONTEXT = 4000
CONFIG = SpeculationConfig(expansion=(2, 1), speculation_length=2, max_tree_nodes=6)
TIMEOUT_S = 60.0


class GatedModel(TableModel):
    """`failure` and `narrow_at` act once."""

    def __init__(self) -> None:
        super().__init__("llm", VOCAB, random_table(VOCAB, 1, sharpness=2.5), CONTEXT)
        self.gate = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        self.failure: BaseException | None = None
        self.fails_at: tuple[int, Exception] | None = None  # root token and error
        self.narrow_at: int | None = None  # a root token that gets too few logits

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if not self.open.is_set():
            assert self.gate.acquire(timeout=TIMEOUT_S), "the gate was not opened"
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.fails_at is not None:
            root, error = self.fails_at
            if any(feed.token_ids[0] == root for feed in feeds):
                raise error
        logits = super().forward(feeds)
        narrow = [feed.token_ids[0] == self.narrow_at for feed in feeds]
        if any(narrow):
            self.narrow_at = None
        return [rows[:, :3] if cut else rows for rows, cut in zip(logits, narrow, strict=True)]


def release(llm: GatedModel) -> None:
    llm.open.set()
    llm.gate.release(1000)


def request(text: str = "w1 w2", tokens: int = 20, seed: int = 3) -> Request:
    return Request(text, SamplingParams(tokens, temperature=0.9, seed=seed), CONFIG)


def all_of(run: Run) -> list[Event]:
    events: list[Event] = []
    end = time.monotonic() + TIMEOUT_S
    while not run.is_done:
        assert time.monotonic() < end, "the run did not end"
        events += run.poll(timeout=0.1)
    return events


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.002)


def both_running(worker: Worker, llm: GatedModel) -> bool:
    if worker.running() < 2:
        llm.gate.release()
        time.sleep(0.01)
    return worker.running() == 2
