"""StopRule: ends drafts by limits on their scores and depth; `step_limits`: the limits of
the length policy `goodput`.

`goodput` follows SmartSpec (arXiv 2406.14066), but decides within the draft, from the draft's
scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.speculation_length.base import StopLimits

__all__ = ["StopRule", "step_limits"]

OFF = StopLimits(longest=0)
"""Limits that allow no draft."""


def step_limits(rate: float, costs: Sequence[float], longest: int) -> StopLimits:
    """Limits under which a step to depth d, with 2 <= d <= `longest`, is run if

        rate x min(1, sum of the frontier's cumulative scores) >= costs[d - 2]

    `rate`: P(a token is accepted | its parent is). `costs`: the time of drafting
    and verifying each further step, in committed tokens. A step to depth 1 needs no score.
    """
    # The condition, solved for the score. At a rate of 0 no further step is run.
    scores = (0.0, *(cost / rate if rate > 0 else float("inf") for cost in costs))
    return StopLimits(longest=longest, scores=scores[:longest])


class StopRule:
    """A `Stop` (see base.py). `limits`: by drafter; `default`: the limits of all other drafters.
    `min_score`: the time of verifying one more node, in committed tokens."""

    def __init__(
        self,
        limits: Mapping[str, StopLimits],
        min_score: float = 0.0,
        default: StopLimits = OFF,
    ) -> None:
        self._limits = limits
        self._min_score = min_score
        self._default = default

    def grows(self, score: float) -> bool:
        """Whether a node of this score may have children, by the default limits."""
        return score >= self._default.least

    def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
        """See StopLimits."""
        limits = self.limits(drafter)
        if limits.longest is not None and depth > limits.longest:
            return False
        if limits.scores is None or depth > len(limits.scores):
            return True
        # One pass serves the whole frontier, of which at most one node is accepted.
        return min(1.0, sum(scores)) >= limits.scores[depth - 1]

    def limits(self, drafter: str) -> StopLimits:
        """The drafter's limits."""
        return self._limits.get(drafter, self._default)

    def keeps(self, score: float) -> bool:
        """Whether a node's cumulative score, P(it is accepted), is at least `min_score`."""
        return score >= self._min_score
