"""`cosine`: CoSine's routing as published (section on adaptive request routing).

A score for each SSM, M <- 0.7 M + 0.3 S from 0.5, where S is the harmonic mean of the confidence of
its drafted tokens and their similarity to the committed ones. While few tokens are accepted, half
of the places go to the SSMs that were tried least. The paper states neither the rate of M nor the
threshold nor the share explored: 0.3, 2 tokens and one half are ours.

Confidence is that of the drafted tokens which the node budget kept: a draft has no others, here or
in a node's message. Of fused drafts under a small budget it leaves the unsure end out, and so is
higher than that of all drafted tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.routing.base import DraftEvidence, Milliseconds, RoundEvidence, Route

__all__ = ["CosineRouter", "harmonic_score"]

RATE = 0.3
START = 0.5
FEW_ACCEPTED = 2


def harmonic_score(draft: DraftEvidence) -> float | None:
    """S = 2CA / (C + A): C the mean score, A the mean similarity (at least 0) of a draft's tokens;
    0 if both are 0, None without a token to compare."""
    if not draft.scores or not draft.similarities:
        return None
    confidence = sum(draft.scores) / len(draft.scores)
    accuracy = max(0.0, sum(draft.similarities) / len(draft.similarities))
    total = confidence + accuracy
    return 2 * confidence * accuracy / total if total > 0 else 0.0


class CosineRouter:
    """See Router. `names`: the run's SSMs in order; `count`: how many draft in a round. The
    published rule does not weigh their times."""

    reads_drafts = True
    wants_audition = False

    def __init__(self, names: Sequence[str], count: int, round_ms: Milliseconds) -> None:
        self._scores = dict.fromkeys(names, START)
        self._tried = dict.fromkeys(names, 0)
        self._count = count
        self._accepted: int | None = None  # in the last round with routed SSMs
        self._route: Route | None = None

    def drafter_scores(self) -> dict[str, float]:
        return dict(self._scores)

    def drop(self, name: str) -> None:
        self._scores.pop(name, None)
        self._tried.pop(name, None)
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
        num_explored = -(-count // 2) if exploring else 0
        # Sorting is stable: ties go to the run's order.
        least_tried = sorted(names, key=lambda name: self._tried[name])[:num_explored]
        rest = [name for name in names if name not in least_tried]
        best = sorted(rest, key=lambda name: -self._scores[name])[: count - num_explored]
        picked = {*least_tried, *best}
        drafters = tuple(name for name in names if name in picked)
        if self._accepted is None:
            why = "nothing drafted yet: the first in order"
        elif exploring:
            why = (
                f"{accepted} accepted, fewer than {FEW_ACCEPTED}: {', '.join(least_tried)} "
                "tried for having drafted least"
            )
        else:
            why = f"{accepted} accepted: the best by score"
        return Route(drafters, frozenset(least_tried), why)

    def observe(self, evidence: RoundEvidence) -> None:
        # A round in which no SSM was asked says nothing of them: not even that few were accepted.
        if not evidence.routed:
            return
        self._accepted = evidence.num_accepted
        # Also those that drafted nothing (no share of the node budget, a full context, a node that
        # is late): not counted, they would be routed for ever, and no other SSM tried.
        for name in evidence.routed:
            if name in self._tried:
                self._tried[name] += 1
        for name, draft in evidence.drafts.items():
            if name not in self._scores:
                continue
            score = harmonic_score(draft)
            if score is not None:
                self._scores[name] += RATE * (score - self._scores[name])
        self._route = None
