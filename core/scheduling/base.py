"""The Scheduler protocol: which live requests one LLM pass verifies, and how far each may draft.

One scheduler serves all requests of one engine.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from core.speculation_length.base import BatchLoad

__all__ = [
    "FREE",
    "BatchCosts",
    "BatchOutcome",
    "FollowsLoad",
    "Grant",
    "LiveRequest",
    "Plan",
    "Scheduler",
]


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """One live request. `context`: cached tokens; `length`: the most steps of its draft;
    `drafters`: the number of SSMs that would draft, at least 1; `rounds_waited`: rounds since it
    was last verified; `overlapped`: whether other requests' passes may hide its drafting
    (`pipeline=across`); `tokens`: the number of tokens that it may generate; `ready`: whether a
    draft of `length` waits to be verified; `width`: nodes per level of its trees. `kind`:
    equal for requests that draft alike; None for plain decoding, and if the length policy itself
    stops drafts that do not pay."""

    context: int
    length: int
    drafters: int = 1
    rounds_waited: int = 0
    overlapped: bool = False
    tokens: int = 128
    ready: bool = False
    width: float = 1.0
    kind: Hashable = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Limits of a request's draft: at most `length` tokens deep, made by at most `drafters` SSMs.
    None means no limit."""

    length: int | None = None
    drafters: int | None = None


FREE = Grant()


@dataclass(frozen=True, slots=True)
class Plan:
    """The next round. `group`: indices of the requests that the LLM verifies. `next_group`: indices
    of the requests for which SSMs draft during this pass; None: requests with `pipeline=across`
    take turns in halves. `grants`: one per request. `load`: the load of the group's pass; None if
    each request counts its own costs. `reason`: a sentence for the user. `decision`: `more` or
    `fewer` (limits changed), `plain` or `drafts` (drafting stopped or resumed); empty if nothing
    has changed."""

    group: tuple[int, ...]
    grants: tuple[Grant, ...]
    load: BatchLoad | None = None
    reason: str = ""
    decision: str = ""
    next_group: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """Cost and result of one round. `wall_ms`: from the round's start to its last event;
    `between_ms`: time outside the models; `open_ms`: the SSMs' prefills and auditions (see
    `core.events.parts.Span`) for `num_opened` requests. `nodes`: verified nodes of all requests;
    `tokens`: committed tokens; `steps`: steps of the deepest draft, 0 without drafts; `context`:
    the mean number of cached tokens per request."""

    requests: int
    context: int
    nodes: int
    tokens: int
    llm_ms: float
    draft_ms: float
    wall_ms: float
    between_ms: float = 0.0
    open_ms: float = 0.0
    num_opened: int = 0
    steps: int = 0
    num_queued: int = 0


class BatchCosts(Protocol):
    """Predicts the times of a batch from this engine's measurements, and whether the batch fits in
    memory."""

    def verify_ms(self, requests: int, nodes: int, context: int) -> float:
        """Milliseconds of one LLM pass over the roots of `requests` requests and `nodes` nodes
        below them, after `context` cached tokens each."""
        ...

    def draft_ms(self, requests: int, length: int) -> float:
        """Milliseconds to draft `length` tokens for each of `requests` requests."""
        ...

    def fits(self, requests: int, width: int, extent: int) -> bool:
        """Whether free memory allows a pass over `width` tokens of each of `requests` requests.
        `extent`: slots of the KV cache that the longest request takes. If a pass fits, a pass with
        smaller numbers fits too."""
        ...


class Scheduler(Protocol):
    """Schedules the rounds of one engine."""

    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        """The next round of the live requests; `num_queued` more are in the queue."""
        ...

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        """How many of the nodes in `chances` are verified, the likeliest first; None: all.
        `chances`: by request, each node's probability of being accepted; `context`: the
        mean number of cached tokens."""
        ...

    def observe(self, outcome: BatchOutcome) -> None:
        """Takes the outcome of the last planned round."""
        ...


@runtime_checkable
class FollowsLoad(Protocol):
    """A scheduler that limits drafts by the queue and by how busy the LLM is."""

    def forget_load(self) -> None:
        """Removes the limits; measured times stay."""
        ...
