"""Launch gaps: the share of a run's rounds in which no kernel runs on the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from bench.ours import DecodeCase, request
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import RoundCompleted
from core.metrics import union_ms

# Rounds before the trace, in which graphs are captured, and within it.
BEFORE, TRACED = 12, 24
NO_KERNELS = ("Memcpy", "Memset")


def gaps(
    engine: Engine, case: DecodeCase, speculation: SpeculationConfig
) -> dict[str, float] | None:
    """`rounds` that were traced, their `kernels` and the `idle` share; None where there was no
    kernel, as on a CPU, or the text ended before."""
    from torch.profiler import ProfilerActivity, profile

    events = engine.generate(request(case, speculation))
    rounds = (event for event in events if isinstance(event, RoundCompleted))
    if len(list(islice(rounds, BEFORE))) < BEFORE or not torch.cuda.is_available():
        events.close()  # type: ignore[attr-defined]
        return None
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        seen = len(list(islice(rounds, TRACED)))
        torch.cuda.synchronize()
    events.close()  # type: ignore[attr-defined]
    ran = list(_kernels(trace))
    return {"rounds": seen, "kernels": len(ran), "idle": idle_share(ran)} if ran else None


def _kernels(trace: Any) -> Iterator[tuple[float, float]]:
    """When each kernel ran, in microseconds."""
    for event in trace.events():
        on_gpu = str(event.device_type).endswith("CUDA")
        if on_gpu and not event.name.startswith(NO_KERNELS):
            yield event.time_range.start, event.time_range.end


def idle_share(ran: Sequence[tuple[float, float]]) -> float:
    """The share of the time from the first start to the last end in which nothing ran."""
    whole = max(end for _, end in ran) - min(start for start, _ in ran)
    return 1 - union_ms(ran) / whole if whole else 0.0
