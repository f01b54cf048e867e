"""Forms of running drafting beside the LLM: one after the other, in a thread, in a process.

A form owns its draftsman between `open` and `close`. `beside` does one round: the LLM's work in the
caller's thread and the draftsman's next draft, in whichever place the form is about.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Protocol

import torch

from bench.draftsman import Drafted, Draftsman
from core.config import SpeculationConfig
from core.models.loading import LoadedModels, load_models

__all__ = ["Form", "InProcess", "InThread", "Serial"]

PATIENCE_S = 20.0


class Form(Protocol):
    """`threads`: torch's, for each side."""

    def open(self, prompt: str, work: SpeculationConfig, threads: int) -> Drafted:
        """Takes up a text; its first draft."""
        ...

    def beside(self, token_id: int, llm: Callable[[], None]) -> Drafted:
        """Runs `llm` and the draft that follows `token_id`; returns when both are done."""
        ...

    def close(self) -> None:
        """Ends whatever the form started."""
        ...


class Serial:
    """First the LLM, then the SSMs."""

    def __init__(self, models: LoadedModels) -> None:
        self._draftsman = Draftsman(models)

    def open(self, prompt: str, work: SpeculationConfig, threads: int) -> Drafted:
        torch.set_num_threads(threads)
        self._draftsman.open(prompt, work)
        return self._draftsman.next()

    def beside(self, token_id: int, llm: Callable[[], None]) -> Drafted:
        llm()
        return self._draftsman.next(token_id)

    def close(self) -> None:
        self._draftsman.close()


class InThread:
    """A thread for drafting, as the engine has; both share one interpreter. `switch_s`: how long
    one may keep it from the other (None: Python's own 5 ms)."""

    def __init__(self, models: LoadedModels, switch_s: float | None = None) -> None:
        self._draftsman = Draftsman(models)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rehearsal")
        self._usual = sys.getswitchinterval()
        self._switch_s = switch_s or self._usual

    def open(self, prompt: str, work: SpeculationConfig, threads: int) -> Drafted:
        torch.set_num_threads(threads)
        # Each thread of Python's has a pool of torch's threads of its own.
        self._executor.submit(torch.set_num_threads, threads).result()
        self._executor.submit(self._draftsman.open, prompt, work).result()
        return self._executor.submit(self._draftsman.next).result()

    def beside(self, token_id: int, llm: Callable[[], None]) -> Drafted:
        sys.setswitchinterval(self._switch_s)
        future = self._executor.submit(self._draftsman.next, token_id)
        try:
            llm()
        finally:
            drafted = future.result()
            sys.setswitchinterval(self._usual)
        return drafted

    def close(self) -> None:
        self._executor.shutdown()
        self._draftsman.close()


class InProcess:
    """A process for drafting with models of its own, behind a pipe of plain values."""

    def __init__(self, dtype: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, dtype), daemon=True)
        self._process.start()
        theirs.close()

    def open(self, prompt: str, work: SpeculationConfig, threads: int) -> Drafted:
        torch.set_num_threads(threads)
        self._pipe.send((prompt, work.to_plain(), threads))
        return self._received()

    def beside(self, token_id: int, llm: Callable[[], None]) -> Drafted:
        self._pipe.send(token_id)
        try:
            llm()
        finally:
            drafted = self._received()
        return drafted

    def close(self) -> None:
        if not self._pipe.closed:
            with contextlib.suppress(OSError):  # it may have died
                self._pipe.send(None)
            self._process.join(PATIENCE_S)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._pipe.close()

    def _received(self) -> Drafted:
        """Raises EOFError where the process has died."""
        drafted: Drafted = self._pipe.recv()
        return drafted


def _serve(pipe: Connection, dtype: str) -> None:
    """The process: a text to open, a token to go on with, or None to end."""
    draftsman = Draftsman(load_models(dtype=dtype, device="cpu"))
    while (message := pipe.recv()) is not None:
        if isinstance(message, int):
            pipe.send(draftsman.next(message))
            continue
        prompt, work, threads = message
        torch.set_num_threads(threads)
        draftsman.open(prompt, SpeculationConfig.from_plain(work))
        pipe.send(draftsman.next())
