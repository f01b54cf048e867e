"""The scrubber's value: a column for each round, the visitor's place, and how the run plays."""

from __future__ import annotations

from typing import Any

from ui.run.frame import Frame
from ui.run.player import Pace

__all__ = ["scrubber_value"]


def scrubber_value(frame: Frame, pace: Pace, moving: bool) -> dict[str, Any]:
    """`rounds`: accepted tokens `a` and length `s` of each; `sel` and `stage`: the visitor's place.
    `known`: rounds that the engine has completed. `pace`: of the next run."""
    return {
        "run": frame.view.run_id,
        "rounds": {str(x.number): {"a": x.accepted, "s": x.length} for x in frame.view.rounds},
        "sel": frame.selected_round,
        "stage": frame.detail.stage if frame.detail else "",
        "node": frame.node,
        "pinned": frame.pinned,
        "known": frame.known_rounds,
        "mode": pace.mode,
        "rate": pace.rounds_per_second,
        "moving": moving,
    }
