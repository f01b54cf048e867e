"""A gate before the LLM's passes, so that a slow page can draw a request before its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

PASS_S = 0.04
MAX_STEPS = 25
# The first and the longest timeout for the result of a pass. Each pass doubles the timeout.
FIRST_STEP_MS, STEP_MS = 250, 2000
POLL_S, POLL_MS = 0.04, 50


@dataclass
class PassGate:
    """While the gate is closed, each LLM pass waits for a permit. `pass_s`: a delay of every pass
    in seconds, also while the gate is open."""

    passes: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: bool = False
    pass_s: float = 0.0

    def wait(self) -> None:
        time.sleep(self.pass_s)
        while self.closed and not self.passes.acquire(timeout=POLL_S):
            pass

    def step_until_drawn(self, page: Any, selector: str) -> None:
        from playwright.sync_api import TimeoutError as NotInTime

        for step in range(MAX_STEPS):
            self.passes.release()
            try:
                timeout_ms = min(FIRST_STEP_MS * 2**step, STEP_MS)
                page.locator(selector).first.wait_for(timeout=timeout_ms)
                return
            except NotInTime:
                continue
        raise AssertionError(f"{selector} was not drawn within {MAX_STEPS} passes")

    def step_until(self, page: Any, condition: Callable[[], bool]) -> None:
        for step in range(MAX_STEPS):
            self.passes.release()
            for _ in range(min(FIRST_STEP_MS * 2**step, STEP_MS) // POLL_MS):
                if condition():
                    return
                page.wait_for_timeout(POLL_MS)
        raise AssertionError(f"it did not happen within {MAX_STEPS} passes")


@contextmanager
def gated_passes(llm: Any) -> Iterator[PassGate]:
    gate, forward = PassGate(), llm.forward

    def wait_and_forward(feeds: Any) -> Any:
        gate.wait()
        return forward(feeds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llm, "forward", wait_and_forward)
        try:
            yield gate
        finally:
            gate.closed = False
