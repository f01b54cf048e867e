"""Speculation length policies, found by name. They choose how many steps the next draft takes; 0
steps are plain decoding."""

from __future__ import annotations

from collections.abc import Callable

from core.config import SpeculationConfig
from core.config.mechanisms import implementation_of, length_policy
from core.speculation_length.base import (
    Auditions,
    BatchLoad,
    Choice,
    DraftOutcome,
    LengthPolicy,
    RoundOutcome,
    RoutedPolicy,
    SharesPass,
    Stop,
)
from core.speculation_length.cost_model import Costs

__all__ = [
    "Auditions",
    "BatchLoad",
    "Choice",
    "DraftOutcome",
    "LengthPolicy",
    "RoundOutcome",
    "RoutedPolicy",
    "SharesPass",
    "Stop",
    "make_policy",
]

Maker = Callable[[SpeculationConfig, Costs], LengthPolicy]


def make_policy(config: SpeculationConfig, costs: Costs) -> LengthPolicy:
    """A new policy for one run; `costs` belongs to the engine and outlives the run."""
    make: Maker = implementation_of(length_policy(config.length).implementation)
    return make(config, costs)
