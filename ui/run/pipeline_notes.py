"""The engine's notes on pipelining, in words for visitors. Such a note reports the result of a
trial of `pipeline=auto`, or that `pipeline=across` had no other request to overlap with."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ALONE", "SwitchTrial", "in_words", "is_alone", "is_fault", "trial_of"]

# The result of a trial, as core/engine/overlap.py words it.
NOTE = re.compile(
    r"drafting (?P<kind>\w+) takes (?P<ms>[\d.]+) ms a round, (?P<without>[\d.]+) without: "
    r"(?P<result>on|off)"
)
ALONE = (
    "No overlap: only one request was running. Run in a second tab at the same "
    "time, or choose pipeline=ahead, which overlaps within one request."
)
"""Replaces the engine's note that no other request is being served."""


@dataclass(frozen=True, slots=True)
class SwitchTrial:
    """`kind`: `across` or `ahead`. `ms`, `without_ms`: milliseconds of a round with and without
    drafts of this kind. `on`: whether the run goes on making them."""

    kind: str
    ms: float
    without_ms: float
    on: bool


def trial_of(note: str) -> SwitchTrial | None:
    """The trial that a note reports, or None."""
    match = NOTE.fullmatch(note)
    if match is None:
        return None
    return SwitchTrial(
        match["kind"], float(match["ms"]), float(match["without"]), match["result"] == "on"
    )


def is_alone(note: str) -> bool:
    """Whether a note reports that `across` had no other request to overlap with."""
    # The first words of `NO_OTHER_REQUEST` in core/engine/overlap.py.
    return note.startswith("no other request is being served")


def is_fault(note: str) -> bool:
    """Whether a note reports a fault: any note that is not on pipelining."""
    return not is_alone(note) and trial_of(note) is None


def in_words(note: str) -> str:
    """A trial's result in words for visitors; any other note is returned unchanged."""
    trial = trial_of(note)
    if trial is None:
        return note
    how = "with it" if trial.on else "without it"
    return (
        f"a trial of drafting {trial.kind} ends: {trial.ms:.1f} ms a round with it, "
        f"{trial.without_ms:.1f} without; the run goes on {how}"
    )
