"""`fixed`: always the configured length."""

from __future__ import annotations

from core.config import SpeculationConfig
from core.speculation_length.base import Choice, RoundOutcome
from core.speculation_length.cost_model import Costs
from core.speculation_length.history import LengthHistory

__all__ = ["Fixed", "explain"]


class Fixed:
    """See LengthPolicy. `costs` is unused: all policies are made with the same arguments."""

    def __init__(self, config: SpeculationConfig, costs: Costs | None = None) -> None:
        self._choice = Choice(config.speculation_length)

    def choose(self) -> Choice:
        return self._choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""


def explain(history: LengthHistory) -> str:
    """Explains the limit on the length of the round's drafts."""
    bound = f"; {history.bound}" if history.bound else ""
    return f"speculation_length is {history.now.length} in every round{bound}."
