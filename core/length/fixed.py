"""`fixed`: always the configured length."""

from __future__ import annotations

from core.config import SpeculationConfig
from core.length.base import Choice, RoundOutcome
from core.length.cost_model import Costs

__all__ = ["Fixed"]


class Fixed:
    """See LengthPolicy; learns nothing."""

    def __init__(self, config: SpeculationConfig, costs: Costs | None = None) -> None:
        self._choice = Choice(config.speculation_length)

    def choose(self) -> Choice:
        return self._choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""
