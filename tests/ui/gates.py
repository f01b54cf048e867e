"""A gate before the LLM's passes, so that a request does not end before the page has drawn it,
however slow the machine is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

# The delay of each LLM pass in seconds. It lets a page on a busy machine draw a request before the
# request ends.
PASS_S = 0.04
# The largest number of passes that are let through one by one. The longest request has more passes
# (about seventy).
MAX_STEPS = 25
# The time that the page has to draw the result of the first pass, and the longest such time for
# later passes.
FIRST_STEP_MS, STEP_MS = 250, 2000
POLL_S = 0.04


@dataclass
class PassGate:
    """Lets LLM passes through one by one while it is closed. `pass_s`: the delay of each pass in
    seconds, also while the gate is open."""

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
    """A gate before every pass of this model within the `with` block. The gate is opened at the end
    of the block."""
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
