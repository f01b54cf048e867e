"""Measures the time of a call, and the time of the models' forward passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

from core.models.loading.load import LoadedModels

T = TypeVar("T")
PassSeconds = Callable[[Any], float] | None
"""Takes a call's result, gives the seconds of its passes; None: the call's wall time."""


def time_call(call: Callable[[], T]) -> tuple[T, float]:
    """The call's result, and its seconds of wall time."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


class PassClock:
    """Milliseconds of passes since the last `take`."""

    def __init__(self) -> None:
        self._ms = {"llm": 0.0, "ssm": 0.0}

    def add(self, role: str, ms: float) -> None:
        self._ms[role] += ms

    def take(self) -> dict[str, float]:
        """The milliseconds by role; the counters restart at 0."""
        times_ms, self._ms = self._ms, {"llm": 0.0, "ssm": 0.0}
        return times_ms


@contextmanager
def timing_passes(models: LoadedModels, clock: PassClock) -> Iterator[LoadedModels]:
    """`clock` counts the time of every pass of `models`. For models on the CPU only: there a pass
    has ended when the call returns."""
    # SSMs may share a stack (core.models.stacking), which makes their common passes.
    stacks = {id(s): s for ssm in models.ssms.values() if (s := getattr(ssm, "stack", None))}
    roles: list[tuple[Any, str]] = [(models.llm, "llm")]
    roles += [(one, "ssm") for one in (*models.ssms.values(), *stacks.values())]
    passes = [
        (one, method, role) for one, role in roles for method in METHODS if hasattr(one, method)
    ]
    for one, method, role in passes:
        setattr(one, method, _with_timer(getattr(one, method), role, clock, METHODS[method]))
    try:
        yield models
    finally:
        for one, method, _ in passes:
            delattr(one, method)  # the class's method is found again


def _with_timer(
    timed_call: Callable[..., Any], role: str, clock: PassClock, passes: PassSeconds
) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        result, wall_seconds = time_call(lambda: timed_call(*arguments))
        clock.add(role, 1000 * (wall_seconds if passes is None else passes(result)))
        return result

    return call


def _seconds_of_passes(drafted: Any) -> float:
    return float(sum(end - start for start, end in drafted.passes))


# `drafts` is a compiled draft: only the time of its passes counts.
METHODS = MappingProxyType({"forward": None, "drafts": _seconds_of_passes})
