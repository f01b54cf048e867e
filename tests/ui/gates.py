"""A gate before the LLM's passes: a request does not end before the page has drawn it, however slow
the machine is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

# By how many seconds each LLM pass is delayed, so that a page on a busy machine can draw a request
# before the request ends.
PASS_S = 0.04
# How many passes are let through one by one, fewer than the longest request has (about seventy).
MAX_STEPS = 25
# How long the page has to draw what the first pass led to, and at most a later one.
FIRST_STEP_MS, STEP_MS = 250, 2000
POLL_S = 0.04


@dataclass
class PassGate:
    """Lets single LLM passes through while it is closed. `pass_s`: how long each pass is delayed,
    in seconds, also while the gate is open."""

    passes: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: bool = False
    pass_s: float = 0.0

    def wait(self) -> None:
        """Called before each pass."""
        time.sleep(self.pass_s)
        while self.closed and not self.passes.acquire(timeout=POLL_S):
            pass

    def step_until_drawn(self, page: Any, selector: str) -> None:
        """Let one pass through at a time, until the page shows the element."""
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


@contextmanager
def gated_passes(llm: Any) -> Iterator[PassGate]:
    """A gate before every pass of this model within the `with` block; it is opened at the end."""
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
