"""Routing (CoSine): rules choose which of a run's SSMs draft in a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.config import SpeculationConfig
from core.config.mechanisms import implementation_of, routing_rule
from core.routing.base import (
    CHAIN_DEPTH,
    DraftEvidence,
    RoundEvidence,
    RoundTime,
    Route,
    Router,
    TimeOfRound,
    within_grant,
)

__all__ = [
    "CHAIN_DEPTH",
    "DraftEvidence",
    "RoundEvidence",
    "RoundTime",
    "Route",
    "Router",
    "TimeOfRound",
    "make_router",
    "within_grant",
]

Maker = Callable[[Sequence[str], int, TimeOfRound], Router]


def make_router(
    config: SpeculationConfig, names: Sequence[str], time_of_round: TimeOfRound
) -> Router | None:
    """A new router for one run with these SSMs; None if the rule has no router or
    there are fewer than two SSMs."""
    rule = routing_rule(config.routing)
    if not rule.implementation or len(names) <= 1:
        return None
    make: Maker = implementation_of(rule.implementation)
    return make(names, config.routed_drafters, time_of_round)
