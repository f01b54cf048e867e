"""What verifying n nodes costs on this machine: a table from warm-up, at two context lengths."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from core.models.machine import TorchAlone
from core.models.protocol import LanguageModel, chain

__all__ = ["NODE_COUNTS", "VerifyCosts", "measure_verify_costs"]

# 3 and 7 nodes and the root fill a product's rows: often no dearer than one node less.
NODE_COUNTS = (0, 1, 2, 3, 4, 7, 8, 12, 16, 24, 32, 48, 64)
AFFORDABLE = 1.5
REPEATS = 5
CONTEXTS = (64, 512)
# Of seconds a sweep over all sizes; and of t(0), more than a round ever commits by so many nodes.
PATIENCE_S = 2.0
HOPELESS = 6.0


@dataclass(frozen=True, slots=True)
class VerifyCosts:
    """`ms[n]`: milliseconds of a pass over the root and n nodes, `context` tokens cached, the
    fastest of several, since load only ever makes a pass longer; `far` is the same at a longer
    context, None where the model has none."""

    ms: Mapping[int, float]
    context: int
    far: VerifyCosts | None = None

    def affordable_nodes(self) -> int:
        """The largest measured n with t(n) <= 1.5 t(0), at least 1 (ALGORITHMS 1)."""
        limit = AFFORDABLE * self.ms[0]
        return max((n for n, cost in self.ms.items() if n and cost <= limit), default=1)

    def curve(self, largest: int) -> list[float]:
        """t(0) to t(`largest`): linear between what was measured, and never falling, since more
        nodes are never cheaper but for noise; on by the mean slope beyond."""
        counts = sorted(self.ms)
        costs = list(accumulate((_sane(self.ms[n]) for n in counts), max))
        curve = [_between(counts, costs, n) for n in range(min(largest, counts[-1]) + 1)]
        slope = (costs[-1] - costs[0]) / counts[-1] if counts[-1] else 0.0
        return curve + [
            costs[-1] + slope * (n - counts[-1]) for n in range(len(curve), largest + 1)
        ]


def _sane(ms: float) -> float:
    return ms if math.isfinite(ms) and ms > 0 else 0.0


def _between(counts: list[int], costs: list[float], n: int) -> float:
    above = next(i for i, count in enumerate(counts) if count >= n)
    if counts[above] == n:
        return costs[above]
    low, high = counts[above - 1], counts[above]
    return costs[above - 1] + (costs[above] - costs[above - 1]) * (n - low) / (high - low)


def measure_verify_costs(llm: LanguageModel) -> VerifyCosts:
    """Times passes of every node count at two contexts, each interleaved, so that a noisy moment
    hits all node counts alike; torch keeps to one thread, as it does while requests are live."""
    alone = TorchAlone((llm,))
    alone.take()
    try:
        return _both(llm)
    finally:
        alone.give_back()


def _both(llm: LanguageModel) -> VerifyCosts:
    near, far = (min(c, llm.context_length * (i + 1) // 4) for i, c in enumerate(CONTEXTS))
    further = VerifyCosts(_measured(llm, far), far) if far > near else None
    return VerifyCosts(_measured(llm, near), near, further)


def _measured(llm: LanguageModel, context: int) -> dict[int, float]:
    counts = [n for n in NODE_COUNTS if context + n + 1 <= llm.context_length]
    row = llm.open_row()
    try:
        llm.forward([chain(row, [0] * context, last_only=True)])
        llm.commit(row, range(context))
        start = time.perf_counter()
        warm = _sweep(llm, row, counts, PATIENCE_S)
        slow = time.perf_counter() - start > PATIENCE_S
        times = [_sweep(llm, row, list(warm), math.inf) for _ in range(1 if slow else REPEATS)]
    finally:
        llm.close_row(row)
    return {n: min(sweep[n] for sweep in times) for n in warm}


def _sweep(
    llm: LanguageModel, row: int, counts: Sequence[int], patience_s: float
) -> dict[int, float]:
    """A pass of each size, ms. Past one's patience sizes that never pay are left out."""
    found: dict[int, float] = {}
    began = time.perf_counter()
    for n in counts:
        start = time.perf_counter()
        # The copy to the host is part of every round and waits for the device.
        llm.forward([chain(row, [0] * (n + 1))])[0].argmax(dim=-1).tolist()
        end = time.perf_counter()
        found[n] = (end - start) * 1000
        llm.commit(row, [])
        if end - began > patience_s and found[n] > HOPELESS * found[0]:
            break
    return found
