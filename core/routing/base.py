"""The Router protocol: which SSMs draft in the next round.

A router works on numbers and names: it gets no model, tree or token. One router serves one
run. Model-free drafters cost next to nothing and are never routed: they draft in every round.
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
"""An audition for a router usually reads this many of the text's last tokens. These are more than
for a length policy, since a router may compare SSMs repeatedly: a longer window errs less often, at
little cost (see `SsmDrafter.audition`)."""

CHAIN_DEPTH = 4
"""SSMs are compared by a chain of this depth, whatever the length policy. `credit` predicts how
many of the chain's tokens are accepted, the engine predicts the chain's time."""

TimeOfRound = Callable[[str], RoundTime]
"""The name of the SSM that drafts -> the predicted time of the round."""


@dataclass(frozen=True, slots=True)
class Route:
    """The SSMs that draft, in the run's order. `explored`: the SSMs among them that draft only to
    be measured. `reason`: a sentence for the user."""

    drafters: tuple[str, ...]
    explored: frozenset[str] = frozenset()
    reason: str = ""


def within_grant(route: Route, scores: Mapping[str, float], most: int) -> Route:
    """At most `most` SSMs of a route, the best by score. Half of the places (rounded up) are kept
    for explored SSMs, which otherwise might never draft."""
    if len(route.drafters) <= most:
        return route
    explored = [name for name in route.drafters if name in route.explored]
    # The sort below is stable: the run's order decides ties.
    others = [name for name in route.drafters if name not in route.explored]
    others.sort(key=lambda name: -scores[name])
    # Rounded up: a single place goes to an explored SSM. Explored SSMs beyond this half come last.
    half = -(-most // 2)
    within = {*[*explored[:half], *others, *explored[half:]][:most]}
    drafters = tuple(name for name in route.drafters if name in within)
    reason = f"{route.reason}; the batch grants {len(within)}"
    return Route(drafters, route.explored & within, reason)


@dataclass(frozen=True, slots=True)
class DraftEvidence:
    """The most probable path of one SSM's draft, as far as it is within the node budget.

    `scores`: each token's calibrated score. `similarities`: the cosine similarity between the LLM's
    embeddings of the drafted and of the committed token, for each position that has both.
    """

    scores: tuple[float, ...]
    similarities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RoundEvidence:
    """The outcome of a round. `num_accepted`: accepted tokens; `num_tokens`: committed tokens,
    including the LLM's own; `share_ms`: this request's share of the round's time. `routed`: the
    SSMs of the route within the scheduler's grant, even if they failed to draft; empty if no draft
    was requested. `drafts`: by SSM; empty in a round without drafts, and unless
    `Router.reads_drafts`. `log_probs`: by SSM, natural log-probabilities of the tokens committed
    since the SSM's last report. They come from the SSM's catch-up pass; NaN if the pass did not
    compute a token's probability."""

    num_accepted: int
    num_tokens: int
    share_ms: float
    routed: tuple[str, ...] = ()
    drafts: Mapping[str, DraftEvidence] = field(default_factory=dict)
    log_probs: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Router(Protocol):
    """Routes one run."""

    def route(self) -> Route:
        """The SSMs of the next round. Repeated calls return the same route until the router is told
        something new."""
        ...

    def drafter_scores(self) -> dict[str, float]:
        """Every SSM's current score, on the router's own scale."""
        ...

    def observe(self, evidence: RoundEvidence) -> None:
        """Adds the outcome of the last routed round."""
        ...

    def drop(self, name: str) -> None:
        """Excludes an SSM that has failed."""
        ...

    @property
    def reads_drafts(self) -> bool:
        """Whether `observe` needs `RoundEvidence.drafts`, for which the engine looks up
        embeddings."""
        ...

    @property
    def reads_times(self) -> bool:
        """Whether `route` depends on measured times, which the engine then records."""
        ...

    @property
    def wants_audition(self) -> bool:
        """Whether all SSMs are to be scored on the text's last tokens before the next round."""
        ...

    @property
    def audition_window(self) -> int:
        """How many of the text's last tokens the next audition reads; it scores all but the
        first."""
        ...

    def observe_audition(self, log_probs: Mapping[str, Sequence[float]], ms: float) -> None:
        """Adds an audition that took `ms` milliseconds. `log_probs`: each SSM's log-probabilities
        of the text's last tokens, the newest last."""
        ...
