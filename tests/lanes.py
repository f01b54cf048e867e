"""A drafting lane whose work does not hang on the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from core.pipeline import Job, Lane

__all__ = ["PunctualLane"]


class PunctualLane(Lane):
    """Does its jobs before the LLM's pass, in the caller's thread: as much of them as fits between
    `looks` questions whether the pass has ended."""

    def __init__(self, looks: int = 999) -> None:
        super().__init__()
        self.looks = looks

    @contextmanager
    def beside(self, jobs: Sequence[Job]) -> Iterator[None]:
        left = iter([False] * self.looks)
        for job in jobs:
            job(lambda: next(left, True))
        yield
