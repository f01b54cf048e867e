"""The events that a run emits, and folds over them."""

from __future__ import annotations

from core.events.events import (
    Ahead,
    Combined,
    Drafted,
    DraftRecord,
    Estimate,
    Event,
    ModelInfo,
    ProposalRecord,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
    Span,
    TopK,
    Trial,
    Verified,
    event_from_plain,
    event_to_plain,
)

__all__ = [
    "Ahead",
    "Combined",
    "DraftRecord",
    "Drafted",
    "Estimate",
    "Event",
    "ModelInfo",
    "ProposalRecord",
    "RoundCompleted",
    "RunCancelled",
    "RunCompleted",
    "RunFailed",
    "RunStarted",
    "RunStats",
    "Span",
    "TopK",
    "Trial",
    "Verified",
    "event_from_plain",
    "event_to_plain",
]
