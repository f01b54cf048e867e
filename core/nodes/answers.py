"""A node's reply as a Draft: its times on this machine's clock, and what makes it unusable."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from core.config.mechanisms import draft_kind
from core.drafters.base import DraftRequest
from core.drafters.growth import best_nodes, restrict, same_tree
from core.drafters.own import draft_fault
from core.events.parts import Timed
from core.nodes.messages import DraftReply, StageTimes
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

LARGEST_PROBABILITY = 1.001  # rounding


@dataclass(slots=True)
class DraftClock:
    """When a round was sent to a node and its answer came, in seconds of time.perf_counter;
    `busy_s`: what the node worked on it. `share`: of this time, where nodes worked side by side and
    their times are to add up to that of the round. Clocks of two machines are not compared: the
    way there is taken to be as long as the way back."""

    sent: float = field(default_factory=time.perf_counter)
    came: float = 0.0
    busy_s: float = 0.0
    share: float = 1.0

    def stop(self, busy_s: float, trip_s: float | None = None) -> None:
        """The answer has come: now, or `trip_s` after the round was sent, if drafting here kept it
        from being read before."""
        now = time.perf_counter()
        self.came = now if trip_s is None else min(now, self.sent + trip_s)
        self.busy_s = busy_s

    def here(self, ms: float) -> float:
        """A time of the node's, in milliseconds since it received the round, as one of here."""
        way = max(0.0, self.came - self.sent - self.busy_s) / 2
        return min(self.came, max(self.sent, self.sent + way + ms / 1000))


def draft_of(reply: DraftReply, name: str, clock: DraftClock, count: int) -> Draft:
    """The draft of the SSM that is called `name` here, one of `count` in the same answer."""
    stages = local_timings(name, reply.stages, clock)
    # Both ways belong to all drafts of the answer: the times of a round's drafts add up to it.
    first, last = (stages[0].start, stages[-1].end) if stages else (clock.came, clock.came)
    there = Timed(name, "wire", clock.sent, first, clock.share / count)
    back = Timed(name, "wire", last, clock.came, clock.share / count)
    return Draft(
        reply.token_ids,
        reply.parents,
        reply.scores,
        [1.0] * len(reply.token_ids),
        reply.ranks,
        timings=(there, *stages, back),
        passes=reply.passes,
        origins=tuple(reply.origins),
        top={row.node: (tuple(row.token_ids), tuple(row.probabilities)) for row in reply.top},
    )


def local_timings(name: str, stages: Sequence[StageTimes], clock: DraftClock) -> tuple[Timed, ...]:
    """A node's spans on the clock of this process; none ends before its start."""
    return tuple(
        Timed(
            name,
            stage.name,
            start := clock.here(stage.start_ms),
            max(start, clock.here(stage.end_ms)),
            stage.share * clock.share,
        )
        for stage in stages
    )


def fitted_draft(
    draft: Draft, made_for: DraftRequest, request: DraftRequest
) -> tuple[Draft, DraftRequest] | None:
    """A draft made ahead as one of the round that asks for `request`, cut to its depth and budget,
    and the request that it answers whole; None where it is another tree."""
    if not same_tree(made_for, request, len(made_for.shape)):
        return None
    depth = len(request.shape)
    depths = draft.depths
    kept = [node for node in range(len(draft)) if depths[node] <= depth]
    if draft_kind(request.kind).by_score:
        kept = best_nodes(kept, cumulative_scores(draft), request.budget)
    number = {node: i for i, node in enumerate(kept)} | {ROOT: ROOT}
    top = {number[node]: row for node, row in draft.top.items() if node in number}
    cut = replace(restrict(draft, kept), ahead=max(1, draft.passes), top=top)
    # Asked for deeper, the node would draft on before it drafts ahead.
    return cut, replace(request, shape=request.shape[: max((1, *cut.depths))])


def are_probabilities(likelihoods: Sequence[float]) -> bool:
    """Whether these can be probabilities of tokens; NaN is one that was not computed."""
    return all(math.isnan(one) or 0 <= one <= LARGEST_PROBABILITY for one in likelihoods)


def fault_of(
    request: DraftRequest, draft: Draft, likelihoods: Sequence[float], asked: Container[int],
    vocab_size: int,
) -> str:  # fmt: skip
    """Why the LLM's pass or the rules cannot take a draft; empty for a good one. `likelihoods`:
    reported with it; `asked`: indices of the drafters of which the node was asked."""
    kind = draft_kind(request.kind)
    if kind.fused or kind.by_score:
        # Their branches are no part of the shape, which bounds the depth alone.
        request = replace(request, shape=tuple(max(2, width) for width in request.shape))
    if draft.origins and len(draft.origins) != len(draft):
        return "origins are not of its length"
    if not all(origin in asked for origin in draft.origins):
        return "origins name drafters that were not asked"
    if not are_probabilities(likelihoods):
        return "its likelihoods are no probabilities"
    for ids, probabilities in draft.top.values():
        if len(ids) != len(probabilities) or any(token >= vocab_size for token in ids):
            return "its likeliest tokens are no tokens"
    return draft_fault(request, draft, vocab_size)
