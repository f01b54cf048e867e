"""The Router protocol: which SSMs draft in the next round."""

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
    """Predicted milliseconds of a round in which one SSM drafts. `draft_ms`: 0 if unknown."""

    llm_ms: float
    draft_ms: float


AUDITION_WINDOW = 48
"""How many of the text's last tokens an audition usually reads (see `Router.needs_audition`)."""

CHAIN_DEPTH = 4
"""Routers compare SSMs as if each drafted a chain of this depth."""

TimeOfRound = Callable[[str], RoundTime]
"""The name of the SSM that drafts -> the predicted time of the round."""


@dataclass(frozen=True, slots=True)
class Route:
    """The SSMs that draft, in the run's order. `explored`: SSMs that draft only to be measured.
    `reason`: for the user."""

    drafters: tuple[str, ...]
    explored: frozenset[str] = frozenset()
    reason: str = ""


def within_grant(route: Route, scores: Mapping[str, float], most: int) -> Route:
    """At most `most` SSMs of a route, the best by score. Half of the places (rounded up) are for
    explored SSMs, which otherwise might never draft."""
    if len(route.drafters) <= most:
        return route
    explored = [name for name in route.drafters if name in route.explored]
    others = [name for name in route.drafters if name not in route.explored]
    others.sort(key=lambda name: -scores[name])
    half = -(-most // 2)
    within = {*[*explored[:half], *others, *explored[half:]][:most]}
    drafters = tuple(name for name in route.drafters if name in within)
    reason = f"{route.reason}; the batch grants {len(within)}"
    return Route(drafters, route.explored & within, reason)


@dataclass(frozen=True, slots=True)
class DraftEvidence:
    """One SSM's draft, only the child of rank 0 at each depth.

    `scores`: each token's calibrated score. `similarities`: between drafted and committed token, at
    each position with both.
    """

    scores: tuple[float, ...]
    similarities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RoundEvidence:
    """The outcome of a round. `num_accepted`: accepted tokens; `num_tokens`: committed tokens,
    including the LLM's own; `share_ms`: this request's share of the round's time. `routed`: the
    granted SSMs of the route, even if they failed to draft; empty if no SSM got a draft request.
    `drafts`: by SSM; empty unless `Router.reads_drafts`. `log_probs`: by drafter, natural
    log-probabilities of the tokens committed since the drafter's last report; NaN if unknown."""

    num_accepted: int
    num_tokens: int
    share_ms: float
    routed: tuple[str, ...] = ()
    drafts: Mapping[str, DraftEvidence] = field(default_factory=dict)
    log_probs: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Router(Protocol):
    """Routes one run."""

    def route(self) -> Route:
        """The SSMs of the next round. Repeated calls return the same route until the next
        observation."""
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
        """How many of the text's last tokens the next audition reads; all but the first are
        scored."""
        ...

    def observe_audition(self, log_probs: Mapping[str, Sequence[float]], ms: float) -> None:
        """Adds an audition that took `ms` milliseconds. `log_probs`: by SSM, natural
        log-probabilities of the scored tokens, the newest last."""
        ...
