"""Verification cost of n nodes on this machine: a table measured at one or two contexts."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from core.models.layer_stream import stream_of
from core.models.machine import TorchAlone
from core.models.protocol import LanguageModel, chain

__all__ = ["NODE_COUNTS", "VerifyCosts", "measure_verify_costs"]

# With the root, 3 and 7 nodes are 4 and 8 rows: a matrix product often takes no longer with 4 and 8
# rows than with 3 and 7 rows.
NODE_COUNTS = (0, 1, 2, 3, 4, 7, 8, 12, 16, 24, 32, 48, 64)
# `max_tree_nodes=auto` lets a verification take this many times t(0), the time of a pass over the
# root alone.
AFFORDABLE = 1.5
REPEATS = 5
# Cached tokens in the two measurements; at most 1/4 and 1/2 of the LLM's context length.
CONTEXTS = (64, 512)
# After SWEEP_LIMIT_S seconds, the first sweep over the sizes ends at the first size that takes more
# than MAX_SLOWDOWN x t(0). One to REPEATS further sweeps follow, about as many as take
# SWEEP_LIMIT_S seconds.
SWEEP_LIMIT_S = 2.0
MAX_SLOWDOWN = 6.0
# If layers are streamed and reading the context takes more than SLOW_S seconds, STREAMED_COUNTS are
# timed once each: the time of a pass hardly depends on its nodes.
STREAMED_COUNTS, SLOW_S = (0, 16, 64), 0.5


@dataclass(frozen=True, slots=True)
class VerifyCosts:
    """`ms[n]`: milliseconds of a pass over the root and n nodes after `context` cached tokens.
    `far`: the same at a longer context, None if the model's context is too short."""

    ms: Mapping[int, float]
    context: int
    far: VerifyCosts | None = None

    def affordable_nodes(self) -> int:
        """The largest measured n with t(n) <= AFFORDABLE x t(0), at least 1."""
        costs = self._isotonic()
        limit = AFFORDABLE * costs[0]
        return max((n for n, cost in costs.items() if n and cost <= limit), default=1)

    def largest_measured(self) -> int:
        """Nodes of the largest tree whose pass was timed."""
        return max(self.ms)

    def curve(self, largest: int) -> list[float]:
        """t(0) to t(`largest`): non-decreasing, interpolated linearly, extrapolated with the mean
        slope."""
        isotonic = self._isotonic()
        counts, costs = list(isotonic), list(isotonic.values())
        curve = [_between(counts, costs, n) for n in range(min(largest, counts[-1]) + 1)]
        # ms per node over the whole table: the last segment alone would be too noisy.
        slope = (costs[-1] - costs[0]) / counts[-1] if counts[-1] else 0.0
        return curve + [
            costs[-1] + slope * (n - counts[-1]) for n in range(len(curve), largest + 1)
        ]

    def _isotonic(self) -> dict[int, float]:
        """Milliseconds by measured size, ascending. A size that was slower than a larger size gets
        the larger size's time: load can only lengthen a pass."""
        counts = sorted(self.ms, reverse=True)
        valid = [
            ms if math.isfinite(ms) and ms > 0 else math.inf for ms in (self.ms[n] for n in counts)
        ]
        costs = list(accumulate(valid, min))
        slowest = max((cost for cost in costs if cost < math.inf), default=0.0)
        return {n: min(cost, slowest) for n, cost in zip(counts[::-1], costs[::-1], strict=True)}


def _between(counts: list[int], costs: list[float], n: int) -> float:
    above = next(i for i, count in enumerate(counts) if count >= n)
    if counts[above] == n:
        return costs[above]
    low, high = counts[above - 1], counts[above]
    return costs[above - 1] + (costs[above] - costs[above - 1]) * (n - low) / (high - low)


def measure_verify_costs(llm: LanguageModel) -> VerifyCosts:
    """Times passes at one or two contexts, in sweeps over the node counts: a noisy moment then
    affects all counts alike."""
    # Limits torch's threads here as in decoding, since a policy may need the table before any run
    # is admitted.
    alone = TorchAlone((llm,))
    alone.take()
    try:
        near, far = (min(c, llm.context_length * (i + 1) // 4) for i, c in enumerate(CONTEXTS))
        far_costs = VerifyCosts(_measure_context(llm, far), far) if far > near else None
        return VerifyCosts(_measure_context(llm, near), near, far_costs)
    finally:
        alone.release()


def _measure_context(llm: LanguageModel, context: int) -> dict[int, float]:
    counts = [n for n in NODE_COUNTS if context + n + 1 <= llm.context_length]
    row = llm.open_row()
    try:
        start = time.perf_counter()
        # The time of a pass does not depend on its tokens.
        llm.forward([chain(row, [0] * context, last_only=True)])
        llm.commit(row, range(context))
        if stream_of(llm) is not None and time.perf_counter() - start > SLOW_S:
            few = [n for n in counts if n in STREAMED_COUNTS]
            return _sweep(llm, row, few, math.inf)
        start = time.perf_counter()
        # The first sweep warms up caches and the allocator. Only its sizes are kept.
        warm_up = _sweep(llm, row, counts, SWEEP_LIMIT_S)
        repeats = min(REPEATS, max(1, int(SWEEP_LIMIT_S / (time.perf_counter() - start))))
        times = [_sweep(llm, row, list(warm_up), math.inf) for _ in range(repeats)]
    finally:
        llm.close_row(row)
    return {n: min(sweep[n] for sweep in times) for n in warm_up}


def _sweep(llm: LanguageModel, row: int, counts: Sequence[int], limit_s: float) -> dict[int, float]:
    """Milliseconds of one pass of each size. After `limit_s` seconds the sweep ends at the first
    size that takes more than MAX_SLOWDOWN x t(0)."""
    pass_ms: dict[int, float] = {}
    sweep_start = time.perf_counter()
    for n in counts:
        start = time.perf_counter()
        # The copy to the host is part of every round and waits for the device.
        llm.forward([chain(row, [0] * (n + 1))])[0].argmax(dim=-1).tolist()
        end = time.perf_counter()
        pass_ms[n] = (end - start) * 1000
        # Forgets the nodes: every pass of a sweep has the same context.
        llm.commit(row, [])
        if end - sweep_start > limit_s and pass_ms[n] > MAX_SLOWDOWN * pass_ms[0]:
            break
    return pass_ms
