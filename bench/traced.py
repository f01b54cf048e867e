"""A timed run of our engine with what its length policy did in each round."""

from __future__ import annotations

import time
from typing import Any

from bench.ours import Case, request
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import Combined, RoundCompleted

__all__ = ["traced"]


def traced(engine: Engine, case: Case, speculation: SpeculationConfig) -> dict[str, Any]:
    """Runs a case to its end. `tokens` and `seconds` (prefill included); `accepted` drafted tokens;
    round by round the chosen `lengths`, and the `depths` and `nodes` of the trees verified."""
    tokens = accepted = 0
    lengths: list[int] = []
    depths: list[int] = []
    nodes: list[int] = []
    start = time.perf_counter()
    for event in engine.generate(request(case, speculation)):
        if isinstance(event, Combined):
            depths.append(max(event.depths, default=0))
            nodes.append(len(event.depths))
        elif isinstance(event, RoundCompleted):
            tokens += len(event.token_ids)
            accepted += event.num_accepted
            lengths.append(event.speculation_length)
    return {
        "tokens": tokens,
        "seconds": time.perf_counter() - start,
        "accepted": accepted,
        "lengths": lengths,
        "depths": depths,
        "nodes": nodes,
    }
