"""The value of the page's scrubber, which moves through a run's rounds."""

from __future__ import annotations

from typing import Any

from ui.run.budget import with_budget_bounds
from ui.run.frame import Frame
from ui.run.opening import OPENING
from ui.run.player import Pace
from ui.run.view import View

__all__ = ["columns_value", "scrubber_value"]


def scrubber_value(frame: Frame, pace: Pace, moving: bool) -> dict[str, Any]:
    """`sel`, `stage`, `node`: the displayed round, stage and tree node. `pinned`: whether the
    visitor has selected the round. `known`: the number of complete rounds so far. `rate`: rounds
    per second. `moving`: whether the run plays. `untouched`: whether this is the opening run, not
    in step mode and with no selected round."""
    opening = frame.run_id == OPENING
    return {
        "run": frame.run_id,
        "untouched": opening and not frame.pinned and frame.mode != "step",
        "rounds": columns_value(frame.view),
        "sel": frame.selected_round,
        "stage": frame.detail.stage if frame.detail else "",
        "node": frame.node,
        "pinned": frame.pinned,
        "known": frame.known_rounds,
        "mode": pace.mode,
        "rate": pace.rounds_per_second,
        "moving": moving,
    }


def columns_value(view: View) -> dict[str, Any]:
    """For each round, the number of accepted tokens (`a`) and the greatest depth allowed for its
    drafts (`s`)."""
    rounds = {
        str(one.number): {"a": one.accepted, "d": one.depth, "s": one.length} for one in view.rounds
    }
    bounded = with_budget_bounds({"rounds": rounds}, view)["rounds"]
    return {number: {"a": one["a"], "s": one.get("m", one["s"])} for number, one in bounded.items()}
