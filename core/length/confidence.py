"""`confidence`: a draft stops after the first token the drafter is unsure of (as transformers'
assisted generation does, with its threshold of 0.4).

`speculation_length` bounds the draft, so that against `fixed` only the stopping differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.config import SpeculationConfig
from core.length.base import Choice, RoundOutcome, StopLimits
from core.length.cost_model import Costs

__all__ = ["Confidence"]


class _ThresholdStop:
    """See Stop: a node with a score under the threshold is kept but has no children."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def grows(self, score: float) -> bool:
        # On a tree: by node, so that branches end independently.
        return score >= self._threshold

    def continues(self, drafter: str, depth: int, chances: Sequence[float]) -> bool:
        return True

    def limits(self, drafter: str) -> StopLimits | None:
        return StopLimits(least=self._threshold)

    def keeps(self, drafter: str, depth: int, chance: float) -> bool:
        return True


class Confidence:
    """See LengthPolicy; learns nothing."""

    def __init__(self, config: SpeculationConfig, costs: Costs | None = None) -> None:
        length, threshold = config.speculation_length, config.confidence_threshold
        reason = f"up to {length}, and none behind a token whose score is under {threshold:g}"
        self._choice = Choice(length, reason, stop=_ThresholdStop(threshold))

    def choose(self) -> Choice:
        return self._choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing is learnt."""
