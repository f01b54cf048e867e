"""The stop rule of `goodput`: a draft goes on while its score is worth the time of one more step.

In the spirit of SmartSpec's goodput (arXiv 2406.14066), with the stop inside the draft. Pure
numbers: knows no drafter and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.length.base import StopLimits

__all__ = ["StopRule", "step_limits"]


def step_limits(rate: float, costs: Sequence[float], longest: int) -> StopLimits:
    """A step to depth d >= 2 is run where

        rate x min(1, sum of the frontier's cumulative scores) >= costs[d - 2]

    `rate`: P(a token is accepted | its parent is). `costs`: committed tokens that the time of each
    further step is worth. Depth 1 is not judged here: whether to draft at all is the back-off's
    decision.
    """
    # Solved for the score, so that a step costs one comparison. scores[0] = 0: depth 1 always runs.
    scores = (0.0, *(cost / rate if rate > 0 else float("inf") for cost in costs))
    return StopLimits(longest=longest, scores=scores[:longest])


class StopRule:
    """See Stop. `limits` by drafter; `least`: the tokens that verifying one more node must bring.

    Lossless under `mss` and `traversal`: whether a step is run depends on the scores of tokens that
    are drawn already and on earlier rounds, never on what the step would draw.
    `keeps`, which looks at the drawn token itself, is not called there.
    """

    def __init__(self, limits: Mapping[str, StopLimits], least: float) -> None:
        self._limits = limits
        self._least = least

    def grows(self, score: float) -> bool:
        """Always true: the rule decides on whole levels, not on single nodes."""
        return True

    def steps(self, drafter: str, depth: int, chances: Sequence[float]) -> bool:
        """`step_limits` for a frontier whose cumulative scores are `chances`."""
        limits = self._limits.get(drafter)
        if limits is None or depth > (limits.longest or 0):
            return False
        # The sum: one pass serves the whole frontier. At most 1, as at most one of its nodes is
        # accepted.
        return limits.scores is None or min(1.0, sum(chances)) >= limits.scores[depth - 1]

    def limits(self, drafter: str) -> StopLimits | None:
        """For the native drafting kernel, which cannot call back."""
        return self._limits.get(drafter, StopLimits(longest=0))

    def keeps(self, drafter: str, depth: int, chance: float) -> bool:
        """A node's cumulative score, P(it is accepted), against the time that verifying it adds."""
        return chance >= self._least
