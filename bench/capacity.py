"""How many clients an LLM serves if drafts come from nodes: a simulation with measured costs.

Without nodes, the machine of the LLM spends t_v + t_d on each client's round: it verifies, and it
drafts with its SSM. With nodes it spends t_v. So it can serve 1 + t_d / t_v times as many clients
at the same rate, if it never waits for nodes or the network; the simulation includes these waits.
The bound is that of arXiv 2606.25091, 1 + gamma t_d / t_v, whose t_d is the time of one of gamma
draft tokens; here t_d is the time of the whole draft.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

__all__ = ["client_ratio", "rate_of", "upper_bound"]

ROUNDS, SEED = 60, 0  # simulated rounds of each client


def upper_bound(draft_ms: Sequence[float], verify_ms: Sequence[float]) -> float:
    """1 + t_d / t_v, where t_d and t_v are the means."""
    return 1 + (sum(draft_ms) / len(draft_ms)) / (sum(verify_ms) / len(verify_ms))


def rate_of(
    clients: int,
    nodes: int,
    draft_ms: Sequence[float],
    verify_ms: Sequence[float],
    network_ms: float,
) -> float:
    """Rounds per second of each of `clients` clients. Each has one round at a time, drafted by the
    first free node and then verified; the LLM verifies one round at a time, in order of arrival.
    Costs are drawn at random from `draft_ms` and `verify_ms`. Without nodes the LLM's machine
    drafts too."""
    # A fixed seed: simulations that are compared use the same random sequence.
    rng = random.Random(SEED)
    # Times in ms at which the LLM and each node are free; the latter is a heap.
    llm_free, node_free = 0.0, [0.0] * nodes
    # (when the client's next round may begin, client): heap order is order of arrival.
    ready = [(0.0, client) for client in range(clients)]
    end = 0.0
    verifying: list[tuple[float, int]] = []
    for _ in range(clients * ROUNDS):
        # The LLM verifies in order of arrival: every draft that may arrive before it starts its
        # next verification is simulated first.
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
    """The number of clients that can be served with `nodes` nodes, divided by `clients_alone`, at
    the rate that `clients_alone` clients have without nodes. The number is interpolated between two
    whole numbers of clients, and is 0 if over this network not even one client has that rate."""
    target = rate_of(clients_alone, 0, draft_ms, verify_ms, 0.0)
    count, previous_rate = 1, 0.0
    rate = rate_of(count, nodes, draft_ms, verify_ms, network_ms)
    while rate >= target:
        count, previous_rate = count + 1, rate
        rate = rate_of(count, nodes, draft_ms, verify_ms, network_ms)
    if count == 1:
        return 0.0
    return (count - 1 + (previous_rate - target) / (previous_rate - rate)) / clients_alone
