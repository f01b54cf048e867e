"""`audition`: scores all SSMs once on the text's last tokens, then routes to the best SSM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from core.routing.base import AUDITION_WINDOW, RoundEvidence, Route, TimeOfRound

__all__ = ["AuditionRouter"]


class AuditionRouter:
    """See Router (core.routing.base). `names`: in the run's order. Without scores the first SSM
    drafts."""

    reads_drafts = False
    reads_times = False
    audition_window = AUDITION_WINDOW

    def __init__(self, names: Sequence[str], count: int, time_of_round: TimeOfRound) -> None:
        self._scores = dict.fromkeys(names, 0.0)
        self.needs_audition = True

    def observe_audition(self, log_probs: Mapping[str, Sequence[float]], ms: float) -> None:
        # The first audition decides for all rounds.
        self.needs_audition = False
        for name in self._scores:
            # NaN: the probability is not known.
            values = [value for value in log_probs.get(name, ()) if not math.isnan(value)]
            # The geometric mean of the tokens' probabilities.
            self._scores[name] = math.exp(sum(values) / len(values)) if values else 0.0

    def drafter_scores(self) -> dict[str, float]:
        return dict(self._scores)

    def route(self) -> Route:
        # `max` returns the first of equal scores: the run's order decides ties.
        best = max(self._scores, key=lambda name: self._scores[name], default=None)
        if best is None:
            return Route((), reason="every SSM failed")
        is_scored = self._scores[best] > 0
        reason = f"{best} predicted the text best" if is_scored else f"{best} is the first"
        return Route((best,), reason=reason)

    def observe(self, evidence: RoundEvidence) -> None:
        """Rounds change nothing."""

    def drop(self, name: str) -> None:
        self._scores.pop(name, None)
