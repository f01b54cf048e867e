"""Models whose passes' time is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from core.models.loading import LoadedModels

__all__ = ["Clock", "clocked"]

Passes = Callable[[Any], float] | None
"""Seconds of passes, of what came of them; None: all that it took."""


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
    passes = [(one, way, role) for one, role in roles for way in WAYS if hasattr(one, way)]
    for one, way, role in passes:
        setattr(one, way, _timed(getattr(one, way), role, clock, WAYS[way]))
    try:
        yield models
    finally:
        for one, way, _ in passes:
            delattr(one, way)  # the class's own again


def _timed(made: Callable[..., Any], role: str, clock: Clock, passes: Passes) -> Callable[..., Any]:
    def timed(*asked: Any) -> Any:
        start = time.perf_counter()
        found = made(*asked)
        whole = time.perf_counter() - start
        clock.add(role, 1000 * (whole if passes is None else passes(found)))
        return found

    return timed


def _of_drafts(drafted: Any) -> float:
    return float(sum(end - begin for begin, end in drafted.passes))


# Passes over feeds, and compiled drafts, of which only the passes count.
WAYS = MappingProxyType({"forward": None, "drafts": _of_drafts})
