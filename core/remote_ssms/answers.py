"""Converts, cuts and checks the drafts in nodes' replies."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from core.config.mechanisms import draft_kind
from core.drafters.base import DraftRequest
from core.drafters.growth import best_nodes, restrict, same_tree
from core.drafters.user_drafters import draft_fault
from core.events.parts import Timed
from core.remote_ssms.messages import DraftReply, StageTimes
from core.trees.draft import Draft, cumulative_scores
from core.trees.tree import ROOT

__all__ = [
    "DraftClock",
    "are_probabilities",
    "draft_of",
    "fault_of",
    "fitted_draft",
    "local_timings",
]

LARGEST_PROBABILITY = 1.001  # 1 and a margin for rounding


@dataclass(slots=True)
class DraftClock:
    """When a message was sent to a node and its answer received, in seconds of time.perf_counter.
    `busy_s`: seconds from the message's arrival on the node to the answer. `share`: the part of the
    time that counts; less than 1 if nodes worked in parallel. Both directions are assumed to take
    equally long: clocks of two machines are not compared."""

    sent: float = field(default_factory=time.perf_counter)
    received: float = 0.0
    busy_s: float = 0.0
    share: float = 1.0

    def stop(self, busy_s: float, trip_s: float | None = None) -> None:
        """Records that the answer arrived: now, or `trip_s` after the message was sent, if this was
        earlier."""
        now = time.perf_counter()
        self.received = now if trip_s is None else min(now, self.sent + trip_s)
        self.busy_s = busy_s

    def local_time(self, ms: float) -> float:
        """Converts milliseconds since the node received the message to time.perf_counter."""
        # Half of the time in which the node was not busy.
        one_way_s = max(0.0, self.received - self.sent - self.busy_s) / 2
        # Bounded by the trip: the node's clock may run faster than this machine's.
        return min(self.received, max(self.sent, self.sent + one_way_s + ms / 1000))


def draft_of(reply: DraftReply, name: str, clock: DraftClock, count: int) -> Draft:
    """The draft of a reply. `name`: the engine's name of the SSM; `count`: the number of drafts
    among which the time in transit is divided."""
    stages = local_timings(name, reply.stages, clock)
    # Without stages the entire trip counts as the way to the node.
    first, last = (stages[0].start, stages[-1].end) if stages else (clock.received, clock.received)
    outward = Timed(name, "wire", clock.sent, first, clock.share / count)
    return_ = Timed(name, "wire", last, clock.received, clock.share / count)
    return Draft(
        reply.token_ids,
        reply.parents,
        reply.scores,
        # q is 1: nodes refuse the kinds of drafts whose tokens are drawn.
        [1.0] * len(reply.token_ids),
        reply.ranks,
        timings=(outward, *stages, return_),
        passes=reply.passes,
        origins=tuple(reply.origins),
        top={row.node: (tuple(row.token_ids), tuple(row.probabilities)) for row in reply.top},
    )


def local_timings(name: str, stages: Sequence[StageTimes], clock: DraftClock) -> tuple[Timed, ...]:
    """A node's spans on the clock of this process; no span ends before its start."""
    return tuple(
        Timed(
            name,
            stage.name,
            start := clock.local_time(stage.start_ms),
            max(start, clock.local_time(stage.end_ms)),
            stage.share * clock.share,
        )
        for stage in stages
    )


def fitted_draft(
    draft: Draft, original: DraftRequest, request: DraftRequest
) -> tuple[Draft, DraftRequest] | None:
    """A draft made ahead for the `original` request, cut to the round's `request`, and the request
    that the cut draft serves. None if the two requests ask for different trees."""
    if not same_tree(original, request, len(original.shape)):
        return None
    depth = len(request.shape)
    depths = draft.depths
    tree_nodes = [node for node in range(len(draft)) if depths[node] <= depth]
    if draft_kind(request.kind).by_score:
        tree_nodes = best_nodes(tree_nodes, cumulative_scores(draft), request.budget)
    number = {node: i for i, node in enumerate(tree_nodes)} | {ROOT: ROOT}
    top = {number[node]: row for node, row in draft.top.items() if node in number}
    cut_draft = replace(restrict(draft, tree_nodes), passes_ahead=max(1, draft.passes), top=top)
    # The request gets the draft's depth: for a deeper request the node would first continue the
    # draft, then draft ahead.
    return cut_draft, replace(request, shape=request.shape[: max((1, *cut_draft.depths))])


def are_probabilities(likelihoods: Sequence[float]) -> bool:
    """Whether these can be probabilities of tokens. NaN: not computed."""
    return all(math.isnan(one) or 0 <= one <= LARGEST_PROBABILITY for one in likelihoods)


def fault_of(
    request: DraftRequest,
    draft: Draft,
    likelihoods: Sequence[float],
    requested: Container[int],
    vocab_size: int,
) -> str:
    """Why a draft cannot be used; empty for a valid draft. `likelihoods`: reported with the draft;
    `requested`: the indices of the drafters whose drafts were requested from the node."""
    kind = draft_kind(request.kind)
    if kind.fused or kind.by_score:
        # The shape of these drafts bounds the depth, not the branches.
        request = replace(request, shape=tuple(max(2, width) for width in request.shape))
    if draft.origins and len(draft.origins) != len(draft):
        return "origins are not of its length"
    if not all(origin in requested for origin in draft.origins):
        return "origins name drafters of which no draft was requested"
    if not are_probabilities(likelihoods):
        return "its likelihoods are no probabilities"
    for ids, probabilities in draft.top.values():
        if len(ids) != len(probabilities) or any(token >= vocab_size for token in ids):
            return "its likeliest tokens are no tokens"
    return draft_fault(request, draft, vocab_size)
