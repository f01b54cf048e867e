"""`cosine`: CoSine's batch scheduler (arXiv 2503.10325) with its adaptive speculation control.

Each LLM pass gets the group of requests with the least value of the paper's objective. Draft
lengths are not chosen, only limited: by the control, by the nodes per pass, and by the free memory.
The paper's gamma, a request's verified tokens, is the draft's length times `LiveRequest.width`. The
paper gives no values for the constants below.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from core.plurals import number_of
from core.scheduling.base import BatchCosts, BatchOutcome, Grant, LiveRequest, Plan
from core.scheduling.batch_times import BatchTimes
from core.scheduling.control import SpeculationControl, SpeculationLimit

__all__ = ["Cosine", "PassGroup", "best_group", "trim_lengths", "trim_to_memory"]

# The most nodes of all drafts in one pass, unless drafts that are already made have more.
MAX_PASS_NODES = 64
# The longest time of a round of several requests. The unit is a pass over one token of every live
# request.
MOST_TIME = 8.0
# Weight of a verified node in the objective. The unit is a pass over one token of one request.
NODE_WEIGHT = 0.007


@dataclass(frozen=True, slots=True)
class PassGroup:
    """The requests of one LLM pass. `members`: their indices; `lengths`: the lengths of their
    drafts; `nodes`: of all drafts together; `cost`: the objective's value in ms per request."""

    members: tuple[int, ...]
    lengths: tuple[int, ...]
    nodes: int
    cost: float


def trim_lengths(
    group: Sequence[LiveRequest], lengths: Sequence[int], most: int
) -> tuple[int, ...]:
    """Shortens drafts until all together have at most `most` nodes; returns their lengths. The
    largest draft is shortened first, of equally large drafts the last one. Ready drafts are never
    shortened: the nodes may still exceed `most`."""
    nodes = sum(one.width * n for one, n in zip(group, lengths, strict=True))
    if round(nodes) <= most:
        return tuple(lengths)
    shorter = list(lengths)
    # (-nodes, -index) of each draft that may be shortened.
    heap = [(-group[i].width * n, -i) for i, n in enumerate(shorter) if n and not group[i].ready]
    heapq.heapify(heap)
    # `nodes` collects rounding errors: near the limit a newly computed sum decides.
    while heap and (nodes > most + 1 or _nodes(group, shorter) > most):
        i = -heap[0][1]
        shorter[i] -= 1
        nodes -= group[i].width
        if shorter[i]:
            heapq.heapreplace(heap, (-group[i].width * shorter[i], -i))
        else:
            heapq.heappop(heap)
    return tuple(shorter)


def _nodes(group: Sequence[LiveRequest], lengths: Sequence[int]) -> int:
    return round(sum(one.width * n for one, n in zip(group, lengths, strict=True)))


def _fits(group: Sequence[LiveRequest], lengths: Sequence[int], costs: BatchCosts) -> bool:
    # The root and the draft's nodes.
    widths = [1 + round(one.width * n) for one, n in zip(group, lengths, strict=True)]
    extent = max(one.context + width for one, width in zip(group, widths, strict=True))
    return costs.fits(len(group), max(widths), extent)


def trim_to_memory(
    group: Sequence[LiveRequest], lengths: tuple[int, ...], costs: BatchCosts
) -> tuple[int, ...] | None:
    """Lengths with which a pass fits into memory, shortened as in `trim_lengths`. None if the pass
    does not fit even without the drafts that may be shortened."""
    while not _fits(group, lengths, costs):
        shorter = trim_lengths(group, lengths, _nodes(group, lengths) - 1)
        if shorter == lengths:
            return None
        lengths = shorter
    return lengths


def best_group(
    live: Sequence[LiveRequest],
    lengths: Sequence[int],
    largest: int,
    costs: BatchCosts,
    candidates: Sequence[int] | None = None,
) -> PassGroup:
    """The group of at most `largest` requests that minimises

    (t_draft + t_verify) / |B| + weight x Gamma

    B is the group, Gamma the nodes of its drafts. The weight is NODE_WEIGHT times the time of a
    pass over one token. If all drafts are made during other requests' passes, the larger of the two
    times replaces their sum. A group consists of requests adjacent in context length: a batch is as
    slow as its longest text. The group includes the request that has waited longest. A group of
    several requests takes at most MOST_TIME and fits into memory. Drafts are shortened to
    MAX_PASS_NODES and to the memory. `candidates`: the indices to choose from, None for all.
    """
    candidates = range(len(live)) if candidates is None else candidates
    by_context = sorted(candidates, key=lambda i: (live[i].context, i))
    longest_waiting = max(candidates, key=lambda i: (live[i].rounds_waited, -i))
    place = by_context.index(longest_waiting)
    plain_ms = costs.verify_ms(1, 0, live[longest_waiting].context)
    most_ms = MOST_TIME * costs.verify_ms(len(live), 0, max(one.context for one in live))
    best: PassGroup | None = None
    # Groups are the ranges [start, end) of `by_context` that include `place`.
    for start in range(place + 1):
        shorter = tuple(lengths[i] for i in by_context[start:place])
        for end in range(place + 1, min(start + largest, len(by_context)) + 1):
            members = by_context[start:end]
            size = len(members)
            group = [live[i] for i in members]
            # In a larger group no draft is longer than in the smaller group.
            shorter = trim_lengths(group, (*shorter, lengths[members[-1]]), MAX_PASS_NODES)
            fitting = trim_to_memory(group, shorter, costs)
            # A request that does not fit alone is tried, and may fail with its own error.
            if fitting is None and size > 1:
                break  # a larger group does not fit either
            shorter = shorter if fitting is None else fitting
            nodes = _nodes(group, shorter)
            draft_ms = costs.draft_ms(size, max(shorter))
            verify_ms = costs.verify_ms(size, nodes, group[-1].context)
            all_overlapped = all(one.overlapped for one in group)
            ms = max(draft_ms, verify_ms) if all_overlapped else draft_ms + verify_ms
            if ms > most_ms and size > 1:
                continue
            cost = ms / size + NODE_WEIGHT * plain_ms * nodes
            # Ties: the smallest group, then the group with the shortest texts.
            if best is None or (cost, size) < (best.cost, len(best.members)):
                best = PassGroup(tuple(members), shorter, nodes, cost)
    assert best is not None, "a group of the longest waiting request alone is always allowed"
    return best


class Cosine:
    """See Scheduler."""

    def __init__(self, times: BatchTimes) -> None:
        self._times = times
        # The longest draft and the most drafters among the live requests.
        self._requested = SpeculationLimit(0, 1)
        self.forget_load()

    def forget_load(self) -> None:
        """See FollowsLoad."""
        self._control = SpeculationControl()
        self._decision = ""

    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        """See Scheduler."""
        length, drafters = max(one.length for one in live), max(one.drafters for one in live)
        self._requested = SpeculationLimit(length, drafters)
        limit = self._control.limit_within(length, drafters)
        lengths = [one.length if one.ready else min(one.length, limit.length) for one in live]
        # Pipelined requests take turns in halves: SSMs draft for one half while the LLM verifies
        # the other half. Requests without drafts take no turns.
        overlapped = {i for i, one in enumerate(live) if one.overlapped and one.length}
        largest = len(live) - len(overlapped) // 2 if limit.length else len(live)
        indices, ready = range(len(live)), {i for i, one in enumerate(live) if one.ready}
        # While drafts are ready, pipelined requests that have none wait.
        candidates: Sequence[int] = indices
        if ready:
            candidates = [i for i in indices if i in ready or i not in overlapped]
        group = best_group(live, lengths, largest, self._times, candidates)
        by_index = dict(zip(group.members, group.lengths, strict=True))
        to_draft = sorted(overlapped - ready - {*group.members})
        # At most half (rounded up) of the pipelined requests may have waiting drafts.
        room = (len(overlapped) + 1) // 2 - len(ready - {*group.members})
        next_members: tuple[int, ...] = ()
        if limit.length and len(overlapped) > 1 and to_draft and room > 0:
            next_group = best_group(live, lengths, room, self._times, to_draft)
            next_members = next_group.members
            by_index |= dict(zip(next_group.members, next_group.lengths, strict=True))
        decision, self._decision = self._decision, ""
        return Plan(
            group.members,
            tuple(Grant(by_index.get(i, lengths[i]), limit.drafters) for i in indices),
            reason=self._control.reason if decision else _reason(live, group, len(candidates)),
            decision=decision,
            next_group=next_members,
        )

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        """See Scheduler. No limit: lengths are limited before drafting."""
        return None

    def observe(self, outcome: BatchOutcome) -> None:
        """See Scheduler."""
        self._times.observe(outcome)
        busy = outcome.llm_ms / outcome.wall_ms if outcome.wall_ms > 0 else 1.0
        self._decision = self._control.observe(busy, outcome.num_queued, self._requested)


def _reason(live: Sequence[LiveRequest], group: PassGroup, num_candidates: int) -> str:
    size, tokens = len(group.members), number_of(group.lengths[0], "token")
    if len(live) == 1:
        return f"one request is decoded: every pass is its own, and it may draft {tokens}"
    if size == 1:
        why = (
            "no other has its draft ready"
            if num_candidates == 1
            else "to share it was expected to take more time a request"
        )
        return f"1 of {len(live)} requests has this pass for itself, and may draft {tokens}: {why}"
    contexts = [live[i].context for i in group.members]
    return (
        f"{size} of {len(live)} requests share this pass, with texts of like length "
        f"({min(contexts)} to {max(contexts)} tokens); of all their drafts at most about "
        f"{number_of(group.nodes, 'token')} are verified"
    )
