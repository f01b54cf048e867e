"""Batch scheduling: which live requests of an engine share an LLM pass, and how far each may
draft."""

from __future__ import annotations

from collections.abc import Callable

from core.config.checks import choice
from core.config.mechanisms import SCHEDULES, implementation_of
from core.scheduling.base import (
    FREE,
    BatchOutcome,
    FollowsLoad,
    Grant,
    LiveRequest,
    Plan,
    Scheduler,
)
from core.scheduling.batch_times import BatchTimes
from core.speculation_length.cost_model import Costs

__all__ = [
    "FREE",
    "BatchOutcome",
    "FollowsLoad",
    "Grant",
    "LiveRequest",
    "Plan",
    "Scheduler",
    "make_scheduler",
]


def make_scheduler(name: str, costs: Costs) -> Scheduler | None:
    """A new scheduler for one engine; None for `each`. Raises ConfigError for an unknown name."""
    choice("schedule", name, tuple(SCHEDULES))
    if not (path := SCHEDULES[name].implementation):
        return None
    make: Callable[[BatchTimes], Scheduler] = implementation_of(path)
    return make(BatchTimes(costs))
