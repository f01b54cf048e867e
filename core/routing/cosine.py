"""`cosine`: CoSine's routing as published (section on adaptive request routing).

Each SSM has a score M, updated by M <- 0.7 M + 0.3 S. S is the harmonic mean of the drafted tokens'
confidence and their similarity to the committed tokens. While few tokens are accepted, half of the
places go to the SSMs that were routed least. The paper states neither the rate of M nor the
threshold nor the share explored: 0.3, 2 tokens and one half are assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.routing.base import AUDITION_WINDOW, DraftEvidence, RoundEvidence, Route, TimeOfRound

__all__ = ["START", "CosineRouter", "harmonic_score"]

# Weight of a round's S in M.
RATE = 0.3
# M before the first draft.
START = 0.5
# SSMs are explored before the first draft, and after a round that accepted fewer tokens than this.
FEW_ACCEPTED = 2


def harmonic_score(draft: DraftEvidence) -> float | None:
    """S = 2CA / (C + A). C is the mean score and A the mean similarity of a draft's tokens; a
    negative A counts as 0. S is 0 if C and A are 0. None without a token to compare."""
    if not draft.scores or not draft.similarities:
        return None
    confidence = sum(draft.scores) / len(draft.scores)
    accuracy = max(0.0, sum(draft.similarities) / len(draft.similarities))
    total = confidence + accuracy
    return 2 * confidence * accuracy / total if total > 0 else 0.0


class CosineRouter:
    """See Router. `names`: in the run's order; `count`: how many draft in a round."""

    reads_drafts = True
    reads_times = False
    audition_window = AUDITION_WINDOW
    needs_audition = False

    def __init__(self, names: Sequence[str], count: int, time_of_round: TimeOfRound) -> None:
        self._scores = dict.fromkeys(names, START)
        self._num_routed = dict.fromkeys(names, 0)
        self._count = count
        self._accepted: int | None = None  # tokens, in the last round with routed SSMs
        self._route: Route | None = None

    def drafter_scores(self) -> dict[str, float]:
        return dict(self._scores)

    def drop(self, name: str) -> None:
        self._scores.pop(name, None)
        self._num_routed.pop(name, None)
        self._route = None

    def observe_audition(self, log_probs: Mapping[str, Sequence[float]], ms: float) -> None:
        """The published rule has no audition."""

    def route(self) -> Route:
        if self._route is None:
            self._route = self._choose()
        return self._route

    def _choose(self) -> Route:
        names = list(self._scores)
        count = min(self._count, len(names))
        accepted = self._accepted or 0
        exploring = accepted < FEW_ACCEPTED
        # ceil(count / 2).
        num_explored = -(-count // 2) if exploring else 0
        # Sorting is stable: the run's order decides ties.
        least_routed = sorted(names, key=lambda name: self._num_routed[name])[:num_explored]
        rest = [name for name in names if name not in least_routed]
        best = sorted(rest, key=lambda name: -self._scores[name])[: count - num_explored]
        members = {*least_routed, *best}
        drafters = tuple(name for name in names if name in members)
        if self._accepted is None:
            why = "nothing drafted yet: the first in order"
        elif exploring:
            why = (
                f"{accepted} accepted, fewer than {FEW_ACCEPTED}: {', '.join(least_routed)} "
                "tried for having drafted least"
            )
        else:
            why = f"{accepted} accepted: the best by score"
        return Route(drafters, frozenset(least_routed), why)

    def observe(self, evidence: RoundEvidence) -> None:
        # Few accepted tokens are evidence about the SSMs only if an SSM got a draft request.
        if not evidence.routed:
            return
        self._accepted = evidence.num_accepted
        # SSMs that drafted nothing count too: else they would be explored for ever.
        for name in evidence.routed:
            if name in self._num_routed:
                self._num_routed[name] += 1
        for name, draft in evidence.drafts.items():
            if name not in self._scores:
                continue
            score = harmonic_score(draft)
            if score is not None:
                self._scores[name] += RATE * (score - self._scores[name])
        self._route = None
