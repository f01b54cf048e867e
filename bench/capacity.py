"""How many clients an LLM serves with drafting elsewhere: a simulation with measured costs.

Alone, the machine of the LLM spends t_v + t_d on each client's round: verifying, and drafting by
its SSM. With nodes it spends t_v. So at the same rate for each client it can serve 1 + t_d / t_v
times as many (gamma t_d / t_v where t_d is of one of gamma draft tokens, arXiv 2606.25091), if
nodes and wire are never waited for. The simulation waits for them.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence

__all__ = ["upper_bound", "most_clients", "rate_of"]

ROUNDS, SEED = 60, 0


def upper_bound(draft_ms: Sequence[float], verify_ms: Sequence[float]) -> float:
    """1 + t_d / t_v, of the means."""
    return 1 + (sum(draft_ms) / len(draft_ms)) / (sum(verify_ms) / len(verify_ms))


def rate_of(
    clients: int,
    nodes: int,
    draft_ms: Sequence[float],
    verify_ms: Sequence[float],
    wire_ms: float,
) -> float:
    """Rounds a second of one of so many clients, each with one round under way: drafted by the
    first node that is free, then verified by the LLM, one at a time, first come first served. Costs
    are drawn from those measured. Without nodes the LLM's machine drafts too."""
    chance = random.Random(SEED)
    llm_free, node_free = 0.0, [0.0] * nodes
    heapq.heapify(node_free)
    # (when its next round may begin, client): heap order is order of arrival.
    ready = [(0.0, client) for client in range(clients)]
    end = 0.0
    verifying: list[tuple[float, int]] = []
    for _ in range(clients * ROUNDS):
        # The LLM takes the draft that is ready first; a draft that could come sooner is made first.
        while ready and (not verifying or ready[0][0] <= max(llm_free, verifying[0][0])):
            at, client = heapq.heappop(ready)
            draft = chance.choice(draft_ms)
            if not nodes:
                heapq.heappush(verifying, (at, client))
                continue
            start = max(at, heapq.heappop(node_free))
            heapq.heappush(node_free, start + draft)
            heapq.heappush(verifying, (start + draft + wire_ms, client))
        at, client = heapq.heappop(verifying)
        work = chance.choice(verify_ms) + (0.0 if nodes else chance.choice(draft_ms))
        llm_free = end = max(at, llm_free) + work
        heapq.heappush(ready, (end, client))
    return 1000 * ROUNDS / end


def most_clients(
    nodes: int,
    draft_ms: Sequence[float],
    verify_ms: Sequence[float],
    wire_ms: float,
    alone: int,
) -> float:
    """With nodes, the clients for each one without them, at the rate that `alone` clients have
    without; interpolated between two whole numbers of clients. 0: over this wire not even one
    client has that rate."""
    wanted = rate_of(alone, 0, draft_ms, verify_ms, 0.0)
    count, rate = 0, math.inf
    while rate >= wanted:
        count, before = count + 1, rate
        rate = rate_of(count, nodes, draft_ms, verify_ms, wire_ms)
    if count == 1:
        return 0.0
    share = 0.0 if math.isinf(before) else (before - wanted) / (before - rate)
    return (count - 1 + share) / alone
