"""Where a round's milliseconds went: what a length rule predicts, the stages' share.

Pure: knows spans and events, nothing of a View.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.events import RoundCompleted
from core.metrics import union_ms

__all__ = ["RoundTime", "add_spans", "time_of"]

STAGE_OF_LANE = {"combine": "combine", "llm": "llm", "verify": "verify", "commit": "commit"}
BESIDE = ("prefill", "ahead")
"""No stages of the round itself: the prompt is read once, drafting ahead is for the next round."""


@dataclass(frozen=True, slots=True)
class RoundTime:
    """`ms`: the round's own stages and its part of what lies between, added up, less the drafting
    `hidden_ms` that passed beside the LLM's work for other requests. That is what `predicted_ms` is
    about and what the length rules learn from. `whole_ms`: from the first of these stages to the
    end of the last."""

    ms: float = 0.0
    hidden_ms: float = 0.0
    whole_ms: float = 0.0


def time_of(event: RoundCompleted) -> RoundTime:
    """The time of a finished round; all zeros where it has no stages."""
    own = [span for span in event.spans if span.name not in BESIDE]
    if not own:
        return RoundTime()
    hidden = sum(entry.saved_ms for entry in event.ahead if entry.known)
    return RoundTime(
        ms=max(0.0, sum(span.ms for span in own) - hidden + event.between_ms),
        hidden_ms=hidden,
        whole_ms=max(span.end_ms for span in own) - min(span.start_ms for span in own),
    )


def add_spans(
    share: tuple[tuple[str, float], ...], event: RoundCompleted
) -> tuple[tuple[str, float], ...]:
    """`share` with the round's spans; `busy` is the time in which anything at all was at work."""
    sums = dict(share)
    for span in event.spans:
        stage = STAGE_OF_LANE.get(span.lane, "draft")
        stage = span.name if span.name in BESIDE else stage
        sums[stage] = sums.get(stage, 0.0) + span.ms
    busy = union_ms((span.start_ms, span.end_ms) for span in event.spans)
    sums["busy"] = sums.get("busy", 0.0) + busy
    return tuple(sums.items())
