"""Speculation length policies: they choose how many steps the next draft may take."""

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
    """A new policy for one run."""
    make: Maker = implementation_of(length_policy(config.length).implementation)
    return make(config, costs)
