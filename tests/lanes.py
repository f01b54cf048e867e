"""A drafting lane whose work does not hang on the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from core.pipeline import Job, Lane

__all__ = ["Looks", "PunctualLane"]


class Looks:
    """See Done: set at the question after so many; whoever waits for it gives another process
    `seconds` to work."""

    def __init__(self, looks: int, seconds: float = 0.05) -> None:
        self._left = looks
        self._seconds = seconds

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self) -> bool:
        time.sleep(self._seconds)
        return True


class PunctualLane(Lane):
    """Does its jobs before the LLM's pass, in the caller's thread: as much of them as fits between
    `looks` questions whether the pass has ended."""

    def __init__(self, looks: int = 999) -> None:
        super().__init__()
        self.looks = looks

    @contextmanager
    def beside(self, jobs: Sequence[Job]) -> Iterator[None]:
        done = Looks(self.looks)
        for job in jobs:
            job(done)
        yield
