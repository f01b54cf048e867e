"""The pictures' values at one moment, in two halves. One half depends on the position in the run,
the other half on the selected round and node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ui.run.budget import depth_words
from ui.run.charts import choice_value, round_value, took_words
from ui.run.frame import Baseline, Frame
from ui.run.race import place_value
from ui.run.routing_values import selected_route
from ui.run.values import inspector_value, picture_values, selected_round_words, tree_value
from ui.run.votes import proposals_value

__all__ = ["round_values", "inspector_values", "position_values"]

Value = dict[str, Any]

# Fields of these pictures that the half of the selected round leaves out.
BY_POSITION = {
    "tree": ("run", "drafters", "rest", "node"),
    "proposals": ("run", "drafters", "chains", "history", "helped"),
    "inspector": ("run", "drafters", "meant", "node"),
}


def round_values(frame: Frame) -> Value:
    """The half that depends on the selected round and node, at the round's present stage."""
    whole = {
        "tree": tree_value(frame),
        "proposals": proposals_value(frame),
        "inspector": inspector_value(frame),
    }
    by_round = {
        name: {key: value[key] for key in value if key not in BY_POSITION[name]}
        for name, value in whole.items()
    }
    length = {key: value for key, value in choice_value(frame).items() if key != "policy"}
    length["deep"] = depth_words(frame.view, length.get("why", ""))
    return {
        "strip": selected_round_words(frame),
        "figures": place_value(frame),
        **by_round,
        "routing": selected_route(frame),
        "lengths": {"sel": frame.selected_round, **length},
        "timeline": {
            "sel": frame.selected_round,
            "round": round_value(frame),
            "took": took_words(frame),
        },
    }


def position_values(
    frame: Frame, baseline: Baseline | None, by_round: Value, cache: dict[int, Value] | None = None
) -> Value:
    """The half that depends on the position in the run, without fields of `by_round`, the other
    half. `cache`: as in `picture_values`."""
    values = picture_values(replace(frame, mode="slow"), baseline, cache=cache)
    return {
        name: {key: inner for key, inner in value.items() if key not in by_round.get(name, {})}
        for name, value in values.items()
    }


def inspector_values(frame: Frame) -> dict[str, Value]:
    """The inspector's values, by node, for each node of the combined tree and for the root (-1)."""
    tree = frame.detail.combined if frame.detail else None
    nodes = range(-1, len(tree.token_ids)) if tree else ()
    values = {str(node): inspector_value(replace(frame, node=node)) for node in nodes}
    return {
        node: {key: value[key] for key in value if key not in BY_POSITION["inspector"]}
        for node, value in values.items()
    }
