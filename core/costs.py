"""What verifying n nodes costs on this machine, measured once per engine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

from core.models.language_model import LanguageModel, chain

__all__ = ["NODE_COUNTS", "Costs", "VerifyCosts", "measure_verify_costs"]

NODE_COUNTS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
AFFORDABLE = 1.5
REPEATS = 5
CONTEXT = 64


@dataclass(frozen=True, slots=True)
class VerifyCosts:
    """`ms[n]`: median milliseconds of a pass over the root and n nodes, `context` tokens cached."""

    ms: Mapping[int, float]
    context: int

    def affordable_nodes(self) -> int:
        """The largest measured n with t(n) <= 1.5 t(0), at least 1 (ALGORITHMS 1)."""
        limit = AFFORDABLE * self.ms[0]
        return max((n for n, cost in self.ms.items() if n and cost <= limit), default=1)


class Costs:
    """What the engine's machine has been measured to need; outlives runs.

    The verification table is measured when first asked for.
    """

    def __init__(self, llm: LanguageModel) -> None:
        self._llm = llm
        self._verify: VerifyCosts | None = None

    @property
    def verify(self) -> VerifyCosts:
        if self._verify is None:
            self._verify = measure_verify_costs(self._llm)
        return self._verify


def measure_verify_costs(llm: LanguageModel) -> VerifyCosts:
    """Times passes of every node count, interleaved, so that a noisy moment hits all alike."""
    context = min(CONTEXT, llm.context_length // 4)
    counts = [n for n in NODE_COUNTS if context + n + 1 <= llm.context_length]
    times: dict[int, list[float]] = {n: [] for n in counts}
    row = llm.open_row()
    try:
        llm.forward([chain(row, [0] * context, last_only=True)])
        llm.commit(row, range(context))
        for repeat in range(REPEATS + 1):
            for n in counts:
                start = time.perf_counter()
                # The copy to the host is part of every round and waits for the device.
                llm.forward([chain(row, [0] * (n + 1))])[0].argmax(dim=-1).tolist()
                if repeat:  # the first pass of each size warms up
                    times[n].append((time.perf_counter() - start) * 1000)
                llm.commit(row, [])
    finally:
        llm.close_row(row)
    return VerifyCosts({n: statistics.median(values) for n, values in times.items()}, context)
