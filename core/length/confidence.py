"""`confidence`: a draft ends after the first token whose score is below a threshold (as in
transformers' assisted generation, with its threshold of 0.4).

`speculation_length` bounds the draft, so that against `fixed` only the stopping differs.
"""

from __future__ import annotations

from core.config import SpeculationConfig
from core.length.base import Choice, RoundOutcome, StopLimits
from core.length.cost_model import Costs
from core.length.stop_rule import StopRule

__all__ = ["Confidence"]


class Confidence:
    """See LengthPolicy; learns nothing."""

    def __init__(self, config: SpeculationConfig, costs: Costs | None = None) -> None:
        length, threshold = config.speculation_length, config.confidence_threshold
        reason = f"up to {length}, and none behind a token whose score is under {threshold:g}"
        # A node with a lower score is kept but has no children, so that branches end independently.
        stop = StopRule({}, default=StopLimits(least=threshold))
        self._choice = Choice(length, reason, stop=stop)

    def choose(self) -> Choice:
        return self._choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""
