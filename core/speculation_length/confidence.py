"""`confidence`: a branch of a draft ends after the first token whose score is below a threshold, as
in transformers' assisted generation.
"""

from __future__ import annotations

from core.config import SpeculationConfig
from core.speculation_length.base import Choice, RoundOutcome, StopLimits
from core.speculation_length.cost_model import Costs
from core.speculation_length.history import LengthHistory, deepest_draft
from core.speculation_length.stop_rule import StopRule

__all__ = ["Confidence", "explain"]


class Confidence:
    """See LengthPolicy (base.py). `costs` is unused: all policies are made with the same
    arguments."""

    def __init__(self, config: SpeculationConfig, costs: Costs | None = None) -> None:
        length, threshold = config.speculation_length, config.confidence_threshold
        reason = f"up to {length}, and none behind a token whose score is under {threshold:g}"
        # A node below the threshold is kept without children.
        stop = StopRule({}, default=StopLimits(least=threshold))
        self._choice = Choice(length, reason, stop=stop)

    def choose(self) -> Choice:
        return self._choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""


def explain(history: LengthHistory) -> str:
    """Why the round's deepest draft ended where it did."""
    most = f"at most {history.now.length} in every round"
    draft = deepest_draft(history.drafts)
    if draft is None:
        return f"No SSM drafted; {most}."
    depth = max(draft.depths)
    deepest = [s for s, d in zip(draft.scores, draft.depths, strict=True) if d == depth]
    threshold = float(history.speculation["confidence_threshold"])
    words = f"{history.draft_words(draft)}: "
    if max(deepest) < threshold:
        words += f"the score of token {depth} is {max(deepest):.2f}, under "
        return f"{words}confidence_threshold={threshold:g}; {most}."
    bound = f": {history.bound}" if history.bound else ""
    return f"{words}no score was under confidence_threshold={threshold:g}; {most}{bound}."
