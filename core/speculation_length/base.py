"""The LengthPolicy protocol: its decisions before and during a draft, and its observations.

A policy works on numbers: it gets no model, tree or token. One policy serves one run; the
measured times (`Costs`) belong to the engine and outlive the run.
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
    """A Stop's rule for one drafter as numbers, for the native kernel and for drafter nodes, which
    cannot call a Stop.

    A node may have children if its score is at least `least`; no child is deeper than `longest`;
    depth i + 1 is drafted if min(1, sum of the parents' cumulative scores) >= `scores[i]`, always
    where there is no such entry.
    """

    least: float = -math.inf
    longest: int | None = None
    scores: tuple[float, ...] | None = None


class Stop(Protocol):
    """Ends a draft early. Decisions depend only on tokens that are drafted already: decisions by
    tokens that a further step would draw would bias `mss` and `traversal`."""

    def grows(self, score: float) -> bool:
        """Whether a node with this score may have children."""
        ...

    def continues(self, drafter: str, depth: int, scores: Sequence[float]) -> bool:
        """Whether a draft is continued by a pass that adds children at `depth` (from 1) to nodes
        with cumulative `scores`; for depth 1 these are [1.0]."""
        ...

    def limits(self, drafter: str) -> StopLimits | None:
        """The rule of `grows` and `continues` as numbers; None if it has no such form."""
        ...

    def keeps(self, score: float) -> bool:
        """Whether a drafted node of this cumulative score is worth verifying; its parent must be
        kept too. Not called under `mss` and `traversal`, where no drawn node may be dropped."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The next round: at most `length` steps (0: plain decoding, no drafter runs).

    `drafters`: names of the drafters that draft, None for all. `estimates`: expected tokens and
    time of each candidate length; `predicted_ms`: predicted time of the round (0: no prediction).
    `stop`: ends drafts early; None: nothing does. `reason`: a sentence for the user.
    """

    length: int
    reason: str = ""
    drafters: frozenset[str] | None = None
    stop: Stop | None = None
    estimates: tuple[Estimate, ...] = ()
    predicted_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class DraftOutcome:
    """Cost and result of one drafter's draft.

    `ms`: of the whole draft, `start_ms` of it for the catch-up pass and for messages to and from a
    drafter node; `steps`: model passes after the catch-up. `depths`: of all drafted nodes, of which
    `num_verified` were verified. `path`: the draft's nodes along the committed text. `credit`:
    accepted tokens that no drafter before this one (in the run's order) proposed. `was_ahead`:
    begun during the last verification, so `ms` and `steps` are without the part that was made then.
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
        """How many levels of its own tree agree with the committed text."""
        # `path` has one node a level.
        return len(self.path)


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Cost and result of one round. `length`: as chosen, within the scheduler's grant; a length
    that the policy found is also cut to the node budget and the text's end.

    `num_tokens`: accepted tokens and the LLM's own, before EOS, a stop string or the limit cuts
    them. `num_nodes`: verified nodes; `widths`: their number at each depth from 1. `verify_ms`: of
    the LLM's pass, after `context` cached tokens. `hidden_ms`: drafting time during a pass over
    other requests. `round_ms`: all stages except drafting for the next round, plus the time between
    them for a lone request, minus `hidden_ms`. `num_in_pass`: requests that shared the LLM's pass.
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
        """`round_ms` with this request's share of the LLM's pass in place of all of it."""
        # In equal shares, not by nodes: most of a pass is reading the weights.
        return self.round_ms - self.verify_ms * (1 - 1 / max(1, self.num_in_pass))


class LengthPolicy(Protocol):
    """Chooses each round's length and learns from the results."""

    def choose(self) -> Choice:
        """The next round. Idempotent until the next `observe`."""
        ...

    def observe(self, outcome: RoundOutcome) -> None:
        """Adds the outcome of the last chosen round."""
        ...


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The load of an LLM pass that `requests` requests share. `plain_ms`: one request's share of a
    round without drafts; `node_ms`: what one more node adds to the pass; `overhead_ms`: what
    a draft adds outside the models; `price`: committed tokens per millisecond of all requests, at
    least that of plain rounds."""

    requests: int
    plain_ms: float
    node_ms: float
    overhead_ms: float
    price: float


@runtime_checkable
class SharesPass(Protocol):
    """A length policy that weighs the LLM's time, which differs if requests share its passes."""

    def share(self, load: BatchLoad | None) -> None:
        """Takes the load of the next rounds; None: this request has the passes for itself."""
        ...


@runtime_checkable
class RoutedPolicy(Protocol):
    """A length policy that weighs the time of the SSMs that draft; a router may change them before
    every round."""

    def use_drafters(self, names: Sequence[str]) -> None:
        """The SSMs that draft from now on."""
        ...


@runtime_checkable
class Auditions(Protocol):
    """A length policy that may choose the drafters: by one audition, as soon as the text is long
    enough."""

    @property
    def chooses(self) -> bool:
        """Whether there is more than one SSM to choose from."""
        ...

    def observe_audition(self, fits: Mapping[str, float]) -> None:
        """`fits`: each SSM's mean log-probability of the tokens that it scored, by name."""
        ...
