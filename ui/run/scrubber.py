"""The scrubber's value: a column for each round, the visitor's place, and how the run plays."""

from __future__ import annotations

from typing import Any

from ui.run.budget import with_budget_bounds
from ui.run.frame import Frame
from ui.run.opening import OPENING
from ui.run.player import Pace

__all__ = ["scrubber_value"]


def scrubber_value(frame: Frame, pace: Pace, moving: bool) -> dict[str, Any]:
    """`rounds`: accepted tokens `a` of each and the depth `s` that its drafts were allowed; `sel`
    and `stage`: the visitor's place. `known`: rounds that the engine has completed. `pace`: of the
    next run."""
    lines = frame.view.rounds
    rounds = {str(x.number): {"a": x.accepted, "d": x.depth, "s": x.length} for x in lines}
    bounded = with_budget_bounds({"rounds": rounds}, frame.view)["rounds"]
    return {
        # No link leads to the run that the page opens with: it is in no log.
        "run": "" if frame.view.run_id == OPENING else frame.view.run_id,
        "rounds": {
            number: {"a": one["a"], "s": one.get("m", one["s"])} for number, one in bounded.items()
        },
        "sel": frame.selected_round,
        "stage": frame.detail.stage if frame.detail else "",
        "node": frame.node,
        "pinned": frame.pinned,
        "known": frame.known_rounds,
        "mode": pace.mode,
        "rate": pace.rounds_per_second,
        "moving": moving,
    }
