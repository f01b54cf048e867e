"""A round's measured milliseconds, in all and by stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.events import RoundCompleted, Span
from core.metrics import union_ms

__all__ = ["NOT_OF_THE_ROUND", "RoundTime", "add_spans", "stage_times", "time_of"]

# Any other lane is a drafter's.
STAGE_OF_LANE = {"combine": "combine", "llm": "llm", "verify": "verify", "commit": "commit"}
NOT_OF_THE_ROUND = ("prefill", "ahead")
"""Names of spans that are not the round's own: drafting ahead is for the next round."""


@dataclass(frozen=True, slots=True)
class RoundTime:
    """`ms`: the time of the round's own stages plus `RoundCompleted.between_ms`, minus `hidden_ms`,
    which `RoundCompleted.predicted_ms` predicts.
    `hidden_ms`: the round's drafting during the LLM's passes for other requests. `whole_ms`: from
    the start of the first own stage to the end of the last own stage."""

    ms: float = 0.0
    hidden_ms: float = 0.0
    whole_ms: float = 0.0


def time_of(event: RoundCompleted) -> RoundTime:
    """The time of a finished round; all zeros without stages."""
    own = [span for span in event.spans if span.name not in NOT_OF_THE_ROUND]
    if not own:
        return RoundTime()
    # A draft with `is_certain` ran for `saved_ms` during the LLM's passes for other requests, and
    # this round did not wait for that part of the draft.
    hidden = sum(entry.saved_ms for entry in event.ahead if entry.is_certain)
    return RoundTime(
        ms=max(0.0, sum(span.ms for span in own) - hidden + event.between_ms),
        hidden_ms=hidden,
        whole_ms=max(span.end_ms for span in own) - min(span.start_ms for span in own),
    )


def stage_times(spans: Iterable[Span], whole_ms: float) -> tuple[float, float, float]:
    """Milliseconds of a round's drafting, of its LLM pass, and of the rest of `whole_ms`."""
    sums = {"draft": 0.0, "llm": 0.0}
    for span in spans:
        stage = STAGE_OF_LANE.get(span.lane, "draft")
        if stage in sums and span.name not in NOT_OF_THE_ROUND:
            sums[stage] += span.ms
    return sums["draft"], sums["llm"], max(0.0, whole_ms - sums["draft"] - sums["llm"])


def add_spans(
    stage_sums: tuple[tuple[str, float], ...], event: RoundCompleted
) -> tuple[tuple[str, float], ...]:
    """`stage_sums` (milliseconds by stage) plus the times of the round's spans. The sum `busy` is
    the time during which any stage was running."""
    sums = dict(stage_sums)
    for span in event.spans:
        stage = STAGE_OF_LANE.get(span.lane, "draft")
        stage = span.name if span.name in NOT_OF_THE_ROUND else stage
        sums[stage] = sums.get(stage, 0.0) + span.ms
    busy = union_ms((span.start_ms, span.end_ms) for span in event.spans)
    sums["busy"] = sums.get("busy", 0.0) + busy
    return tuple(sums.items())
