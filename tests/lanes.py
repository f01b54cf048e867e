"""A DraftThread whose work does not depend on the clock."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from core.engine.overlap import DraftThread, Job


class DoneAfter:
    def __init__(self, checks: int) -> None:
        self._left = checks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


class PunctualLane(DraftThread):
    """Runs its jobs in the caller's thread, before the LLM's pass."""

    def __init__(self, checks: int = 999) -> None:
        super().__init__()
        self.checks = checks

    @contextmanager
    def run_during(self, jobs: Sequence[Job]) -> Iterator[None]:
        done = DoneAfter(self.checks)
        for job in jobs:
            job(done)
        yield
