"""Models whose passes' time is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.models.loading import LoadedModels

__all__ = ["Clock", "clocked"]


class Clock:
    """Milliseconds of passes since they were last taken, the LLM's and the SSMs' apart."""

    def __init__(self) -> None:
        self._ms = {"llm": 0.0, "ssm": 0.0}

    def add(self, role: str, ms: float) -> None:
        self._ms[role] += ms

    def take(self) -> dict[str, float]:
        """What has been counted, by role; counting starts again."""
        taken, self._ms = self._ms, {"llm": 0.0, "ssm": 0.0}
        return taken


@contextmanager
def clocked(models: LoadedModels, clock: Clock) -> Iterator[LoadedModels]:
    """The models while all their passes are on the clock, those made for several SSMs at once too.
    For models on the CPU: a pass there ends when it returns."""
    stacks = {id(s): s for ssm in models.ssms.values() if (s := getattr(ssm, "stack", None))}
    roles: list[tuple[Any, str]] = [(models.llm, "llm")]
    roles += [(one, "ssm") for one in (*models.ssms.values(), *stacks.values())]
    passes = [
        (one, way, role)
        for one, role in roles
        for way in ("forward", "answers")  # by feeds, and by single queries
        if hasattr(one, way)
    ]
    for one, way, role in passes:
        setattr(one, way, _timed(getattr(one, way), role, clock))
    try:
        yield models
    finally:
        for one, way, _ in passes:
            delattr(one, way)  # the class's own again


def _timed(made: Callable[..., Any], role: str, clock: Clock) -> Callable[..., Any]:
    def timed(*asked: Any) -> Any:
        start = time.perf_counter()
        found = made(*asked)
        clock.add(role, (time.perf_counter() - start) * 1000)
        return found

    return timed
