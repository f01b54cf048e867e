"""The LengthPolicy protocol: what a policy decides before and during a draft, and what it observes.

A policy serves one run. It works on numbers: it gets no tree or token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from core.events import Estimate

__all__ = [
    "Auditions",
    "BatchLoad",
    "Choice",
    "DraftOutcome",
    "LengthPolicy",
    "StopLimits",
    "RoundOutcome",
    "RoutedPolicy",
    "SharesPass",
    "Stop",
]


@dataclass(frozen=True, slots=True)
class StopLimits:
    """A Stop's rule for one drafter as numbers.

    A node may have children if its score is at least `least`. No child is deeper than `longest`.
    Depth i + 1 is drafted if min(1, sum of the parents' cumulative scores) >= `scores[i]`, or if
    `scores` has no entry i.
    """

    least: float = -math.inf
    longest: int | None = None
    scores: tuple[float, ...] | None = None


class Stop(Protocol):
    """Ends a draft early. `grows` and `continues` may depend on drafted tokens. If they depended on
    tokens of the next step, the verify rules `mss` and `traversal` would be biased."""

    def grows(self, score: float) -> bool:
        """Whether a node with this score may have children."""
        ...

    def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
        """Whether the draft goes on with a pass that adds children at `depth`, from 1. `scores`:
        the cumulative scores of the nodes that would get children; [1.0] for depth 1."""
        ...

    def limits(self, drafter: str) -> StopLimits | None:
        """The rule of `grows` and `continues` as numbers; None if numbers cannot express the
        rule."""
        ...

    def keeps(self, score: float) -> bool:
        """Whether a drafted node of this cumulative score is worth verifying. Not called under
        `mss` and `traversal`: to drop a drawn node would bias them."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan of the next round. `length`: the most steps of a draft; 0: no drafter runs.
    `reason`: a sentence for the user. `drafters`: names of the drafters that draft, None for all.
    `stop`: ends drafts early. `estimates`: expected tokens and time of each candidate length.
    `predicted_ms`: predicted time of the round; 0 without a prediction."""

    length: int
    reason: str = ""
    drafters: frozenset[str] | None = None
    stop: Stop | None = None
    estimates: tuple[Estimate, ...] = ()
    predicted_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class DraftOutcome:
    """Cost and result of one drafter's draft.

    `ms`: time of the whole draft; `start_ms`: the part in `catch_up` and `wire` spans; `steps`:
    model passes after the catch-up. `depths`: of each drafted node, from 1; `num_verified`: how
    many drafted nodes were verified. `path`: the draft's nodes along the committed text. `credit`:
    accepted tokens that this drafter, and no drafter before it, proposed. `was_ahead`: whether the
    draft was begun during the last verification; `ms` and `steps` exclude the work of that time.
    """

    ms: float
    steps: int
    depths: tuple[int, ...]
    path: tuple[int, ...]
    credit: int
    start_ms: float = 0.0
    was_ahead: bool = False
    num_verified: int = 0

    @property
    def accepted_depth(self) -> int:
        """How many levels of the draft's tree agree with the committed text."""
        # `path` has one node a level.
        return len(self.path)


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Cost and result of one round.

    `length`: the chosen length. `num_tokens`: accepted tokens and the LLM's own, before EOS, a stop
    string or the limit cuts them. `num_nodes`: verified nodes; `widths`: the number of verified
    nodes at each depth, from 1. `verify_ms`: time of the LLM's pass; `context`: cached tokens
    before the pass. `hidden_ms`: drafting time during a pass over other requests. `round_ms`: time
    of the stages; for a lone request, also the time between the stages. Neither `hidden_ms` nor
    drafting for the next round is part of `round_ms`. `num_in_pass`: requests that shared the LLM's
    pass.
    """

    length: int
    num_tokens: int
    num_nodes: int
    verify_ms: float
    round_ms: float
    drafts: Mapping[str, DraftOutcome] = field(default_factory=dict)
    context: int = 0
    hidden_ms: float = 0.0
    widths: tuple[int, ...] = ()
    num_in_pass: int = 1

    @property
    def share_ms(self) -> float:
        """`round_ms`, but with only this request's share of the LLM's pass."""
        # The shares are equal, not by nodes: most of a pass is spent on reading the weights.
        return self.round_ms - self.verify_ms * (1 - 1 / max(1, self.num_in_pass))


class LengthPolicy(Protocol):
    """Chooses each round's length and learns from the results."""

    def choose(self) -> Choice:
        """The choice for the next round. Idempotent until the next `observe`."""
        ...

    def observe(self, outcome: RoundOutcome) -> None:
        """Adds the outcome of the last chosen round."""
        ...


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The load of an LLM pass that `requests` requests share. `plain_ms`: one request's share of a
    round without drafts; `node_ms`: the time that one more node adds to the pass; `overhead_ms`:
    the time outside the models that a draft adds; `price`: the number of tokens that all requests
    together commit per millisecond, at least the number in plain rounds."""

    requests: int
    plain_ms: float
    node_ms: float
    overhead_ms: float
    price: float


@runtime_checkable
class SharesPass(Protocol):
    """A length policy that depends on the load of the LLM's pass."""

    def share(self, load: BatchLoad | None) -> None:
        """Takes the load of the next rounds; None: only the request's own costs count."""
        ...


@runtime_checkable
class RoutedPolicy(Protocol):
    """A length policy that depends on which SSMs a router chooses."""

    def use_drafters(self, names: Sequence[str]) -> None:
        """The SSMs that draft from now on."""
        ...


@runtime_checkable
class Auditions(Protocol):
    """A length policy that may choose the drafters by an audition, in which SSMs score the text's
    last tokens."""

    @property
    def chooses(self) -> bool:
        """Whether the policy chooses among several SSMs."""
        ...

    def observe_audition(self, fits: Mapping[str, float]) -> None:
        """`fits`: each SSM's mean log-probability of the tokens that it scored, by name."""
        ...
