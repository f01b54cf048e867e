"""How many clients an LLM serves if nodes (other machines) draft: a simulation with measured costs.

Let t_d be the time to draft for a client's round and t_v the time to verify the draft. With nodes,
the LLM's machine only verifies. It then serves at most 1 + t_d / t_v times as many clients as
without nodes, at the same rate. In arXiv 2606.25091 the bound is 1 + gamma t_d / t_v, where t_d is
the time to draft one of gamma tokens.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

__all__ = ["client_ratio", "rate_of", "upper_bound"]

ROUNDS, SEED = 60, 0  # ROUNDS: mean number of simulated rounds per client


def upper_bound(draft_ms: Sequence[float], verify_ms: Sequence[float]) -> float:
    """1 + t_d / t_v, of the mean times."""
    return 1 + (sum(draft_ms) / len(draft_ms)) / (sum(verify_ms) / len(verify_ms))


def rate_of(
    clients: int,
    nodes: int,
    draft_ms: Sequence[float],
    verify_ms: Sequence[float],
    network_ms: float,
) -> float:
    """The mean rounds per second of one client. Without nodes the LLM's machine drafts too.
    `network_ms`: the time from a node to the LLM."""
    # A fixed seed: the same arguments give the same rate.
    rng = random.Random(SEED)
    # The times in ms at which the LLM and each node become free; `node_free` is a heap.
    llm_free, node_free = 0.0, [0.0] * nodes
    # A heap of (ms at which the client's next round may begin, client).
    ready = [(0.0, client) for client in range(clients)]
    end = 0.0
    verifying: list[tuple[float, int]] = []
    for _ in range(clients * ROUNDS):
        # Drafts that may arrive before the next verification are simulated first.
        while ready and (not verifying or ready[0][0] <= max(llm_free, verifying[0][0])):
            at, client = heapq.heappop(ready)
            if not nodes:
                heapq.heappush(verifying, (at, client))
                continue
            draft = rng.choice(draft_ms)
            start = max(at, heapq.heappop(node_free))
            heapq.heappush(node_free, start + draft)
            heapq.heappush(verifying, (start + draft + network_ms, client))
        at, client = heapq.heappop(verifying)
        work = rng.choice(verify_ms) + (0.0 if nodes else rng.choice(draft_ms))
        llm_free = end = max(at, llm_free) + work
        heapq.heappush(ready, (end, client))
    return 1000 * ROUNDS / end


def client_ratio(
    nodes: int,
    draft_ms: Sequence[float],
    verify_ms: Sequence[float],
    network_ms: float,
    clients_alone: int,
) -> float:
    """The number of clients that can be served with `nodes` nodes, divided by `clients_alone`. Each
    client is at least as fast as one of `clients_alone` clients without nodes."""
    target = rate_of(clients_alone, 0, draft_ms, verify_ms, 0.0)
    count, previous_rate = 1, 0.0
    rate = rate_of(count, nodes, draft_ms, verify_ms, network_ms)
    while rate >= target:
        count, previous_rate = count + 1, rate
        rate = rate_of(count, nodes, draft_ms, verify_ms, network_ms)
    if count == 1:
        return 0.0
    # Interpolated between the last count that reaches the target and the first that does not.
    return (count - 1 + (previous_rate - target) / (previous_rate - rate)) / clients_alone
