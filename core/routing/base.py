"""The Router protocol: which SSMs draft in the next round.

One router serves one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

__all__ = [
    "AUDITION_WINDOW",
    "CHAIN_DEPTH",
    "DraftEvidence",
    "RoundEvidence",
    "RoundTime",
    "Route",
    "Router",
    "TimeOfRound",
    "within_grant",
]


@dataclass(frozen=True, slots=True)
class RoundTime:
    """Predicted milliseconds of a round in which one SSM drafts: the LLM's pass, and the drafting
    (0: unknown)."""

    llm_ms: float
    draft_ms: float


AUDITION_WINDOW = 48
"""How many of the text's last tokens an audition (see `Router.needs_audition`) usually reads."""

CHAIN_DEPTH = 4
"""SSMs are compared as if each drafted a chain of this depth, whatever the length policy."""

TimeOfRound = Callable[[str], RoundTime]
"""The name of the SSM that drafts -> the predicted time of the round."""


@dataclass(frozen=True, slots=True)
class Route:
    """The SSMs that draft, in the run's order. `explored`: the SSMs that draft only to be measured.
    `reason`: a sentence for the user."""

    drafters: tuple[str, ...]
    explored: frozenset[str] = frozenset()
    reason: str = ""


def within_grant(route: Route, scores: Mapping[str, float], most: int) -> Route:
    """At most `most` SSMs of a route, the best by score. Half of the places (rounded up) are kept
    for explored SSMs, which otherwise might never draft."""
    if len(route.drafters) <= most:
        return route
    explored = [name for name in route.drafters if name in route.explored]
    # The sort is stable: the run's order decides ties.
    others = [name for name in route.drafters if name not in route.explored]
    others.sort(key=lambda name: -scores[name])
    half = -(-most // 2)
    within = {*[*explored[:half], *others, *explored[half:]][:most]}
    drafters = tuple(name for name in route.drafters if name in within)
    reason = f"{route.reason}; the batch grants {len(within)}"
    return Route(drafters, route.explored & within, reason)


@dataclass(frozen=True, slots=True)
class DraftEvidence:
    """One SSM's draft, along the child of rank 0 at every depth.

    `scores`: each token's calibrated score. `similarities`: of the drafted and the committed
    token, for each position that has both.
    """

    scores: tuple[float, ...]
    similarities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RoundEvidence:
    """The outcome of a round. `num_accepted`: accepted tokens; `num_tokens`: committed tokens,
    including the LLM's own; `share_ms`: this request's share of the round's time. `routed`: the
    SSMs of the route within the scheduler's grant, even if they failed to draft; empty if none of
    them got a draft request. `drafts`: by SSM; empty unless `Router.reads_drafts`. `log_probs`: by
    drafter, natural log-probabilities of the tokens committed since its last report; NaN if
    unknown."""

    num_accepted: int
    num_tokens: int
    share_ms: float
    routed: tuple[str, ...] = ()
    drafts: Mapping[str, DraftEvidence] = field(default_factory=dict)
    log_probs: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Router(Protocol):
    """Routes one run."""

    def route(self) -> Route:
        """The SSMs of the next round. Repeated calls return the same route until the router
        observes something new."""
        ...

    def drafter_scores(self) -> dict[str, float]:
        """Each SSM's current score, on the router's own scale."""
        ...

    def observe(self, evidence: RoundEvidence) -> None:
        """Adds the outcome of the last round."""
        ...

    def drop(self, name: str) -> None:
        """Excludes an SSM that has failed."""
        ...

    @property
    def reads_drafts(self) -> bool:
        """Whether `observe` reads `RoundEvidence.drafts`."""
        ...

    @property
    def reads_times(self) -> bool:
        """Whether `route` depends on measured times."""
        ...

    @property
    def needs_audition(self) -> bool:
        """Whether the SSMs are to be scored on the text's last tokens before the next round."""
        ...

    @property
    def audition_window(self) -> int:
        """How many of the text's last tokens the next audition reads; it scores all but the
        first."""
        ...

    def observe_audition(self, log_probs: Mapping[str, Sequence[float]], ms: float) -> None:
        """Adds an audition that took `ms` milliseconds. `log_probs`: by SSM, natural
        log-probabilities of the text's last tokens, the newest last."""
        ...
