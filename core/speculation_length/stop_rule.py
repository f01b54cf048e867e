"""StopRule: ends drafts by limits on their scores and depth; `step_limits`: the limits of
`goodput`, under which a draft goes on while its score is worth the time of one more step.

After SmartSpec's goodput (arXiv 2406.14066), but decided within the draft, from the draft's scores.
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

    `rate`: P(a token is accepted | its parent is). `costs`: the time of each further step, in
    committed tokens. Depth 1 always runs: the back-off decides whether to draft at all.
    """
    # The condition, solved for the score, costs one comparison a step. At a rate of 0 no step is
    # run.
    scores = (0.0, *(cost / rate if rate > 0 else float("inf") for cost in costs))
    return StopLimits(longest=longest, scores=scores[:longest])


class StopRule:
    """See Stop. `limits`: by drafter; `default`: the limits of all other drafters. `min_score`: the
    time of verifying one more node, in committed tokens; a node whose cumulative score is at least
    `min_score` is verified.

    The rule is lossless under `mss` and `traversal`: whether a step is run never depends on what
    the step would draw. It depends only on earlier rounds and on the scores of tokens that are
    already drawn. `keeps` reads the score of the drawn token itself, and is not called under these
    two rules.
    """

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
        # Only `confidence` has such a limit, the same for all drafters.
        return score >= self._default.least

    def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
        """See StopLimits."""
        limits = self.limits(drafter)
        if limits.longest is not None and depth > limits.longest:
            return False
        if limits.scores is None or depth > len(limits.scores):
            return True
        # The scores are added, since one pass serves the whole frontier. The sum counts as at most
        # 1, since at most one node of the frontier is accepted.
        return min(1.0, sum(scores)) >= limits.scores[depth - 1]

    def limits(self, drafter: str) -> StopLimits:
        """See Stop."""
        return self._limits.get(drafter, self._default)

    def keeps(self, score: float) -> bool:
        """Whether a node's cumulative score, P(it is accepted), is at least `min_score`."""
        return score >= self._min_score
