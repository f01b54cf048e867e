"""A control for every field of SpeculationConfig, a text box unless `_control` says otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import SpeculationConfig
from core.config.field_text import parse_field
from core.config.mechanisms import MODEL_FREE, own_among
from ui.form.menus import (
    FOLLOWERS,
    combine_choices,
    draft_choices,
    idle_fields,
    length_choices,
    pipeline_choices,
    routing_choices,
    verify_choices,
    weights_choices,
    why_pipeline_is_idle,
)
from ui.words.settings import field_label

__all__ = [
    "FIELD_NAMES",
    "MEANINGS",
    "config_of",
    "field_controls",
    "values_of",
    "whole_number",
]

FIELD_NAMES = tuple(field.name for field in dataclasses.fields(SpeculationConfig))
TREE_SIZES = ["auto", "uncut", "8", "16", "32", "64"]

MEANINGS = {
    "drafters": "Which drafters run: SSMs (small models); ngram, suffix (repeats); table (counts).",
    "draft": "How tokens are picked: most probable, sampled, or (fused) the most confident SSM's.",
    "expansion": "Children per node at each depth: 1,1,3 is a chain that splits in three.",
    "max_tree_nodes": "Tokens verified in one LLM pass: a number, auto (by cost) or uncut.",
    "combine": "How the drafts of several SSMs become the one tree that the LLM verifies.",
    "routing": "Which SSMs draft in a round: all, or a few, chosen anew as the text goes on.",
    "routed_drafters": "How many SSMs draft in a round; routing chooses which.",
    "weights": "How drafters are weighted: by how well they predicted the text, or by votes won.",
    "vote_nodes": "Best nodes that are kept: few is close to a vote, all is the union.",
    "eta": "A won vote multiplies or divides a weight by 1 + eta; then all are rescaled to mean 1.",
    "weight_bounds": "Lowest and highest weight of an SSM; their mean is 1.",
    "length": "How the speculation length is set: fixed, or by a rule.",
    "speculation_length": "Tokens drafted in a round (at first, if it adapts); 0: plain decoding.",
    "max_speculation_length": "Upper bound for policies that choose the length.",
    "confidence_threshold": "A draft stops after a token that its SSM scores under this.",
    "verify": "When the LLM accepts a drafted token; no choice changes what it is likely to write.",
    "pipeline": "What the drafters do while the LLM verifies: wait, or work for what comes.",
    "carry_over": "Hand on each drafter's weight and calibration from run to run.",
    "record_top_k": "Alternatives kept for every node, for the inspector; 0 keeps none.",
}


def field_controls(
    config: SpeculationConfig, drafter_names: Sequence[str], own: Sequence[str] = ()
) -> dict[str, Component]:
    """A control for each field, in the order of the dataclass. `own`: user-defined drafters."""
    shown = dict(zip(FIELD_NAMES, values_of(config, drafter_names), strict=True))
    idle = idle_fields(shown)
    idle["pipeline"] = why_pipeline_is_idle(config.pipeline, config.combine, config.draft)
    drafters = (*drafter_names, *MODEL_FREE, *own)
    return {name: _control(name, shown, drafters, idle.get(name, "")) for name in shown}


def _control(name: str, values: Mapping[str, Any], drafters: Sequence[str], idle: str) -> Component:
    """`values`: of all fields. `idle`: why the field has no effect with them; empty if it has."""
    value, combine, draft = values[name], str(values["combine"]), str(values["draft"])
    integer_box = (gr.Number, {"step": 1})
    kinds: dict[str, tuple[type[Component], dict[str, Any]]] = {
        "drafters": (gr.CheckboxGroup, {"choices": list(drafters)}),
        "draft": (gr.Dropdown, {"choices": draft_choices(0.0)}),
        "verify": (gr.Dropdown, {"choices": verify_choices("auto", 0.0)}),
        "combine": (gr.Dropdown, {"choices": combine_choices("auto", "auto", 0.0)}),
        "routing": (gr.Dropdown, {"choices": routing_choices()}),
        "routed_drafters": integer_box,
        "weights": (gr.Dropdown, {"choices": weights_choices(combine, draft)}),
        "vote_nodes": integer_box,
        "eta": (gr.Number, {"step": 0.01}),
        "length": (gr.Dropdown, {"choices": length_choices()}),
        "max_tree_nodes": (gr.Dropdown, {"choices": TREE_SIZES, "allow_custom_value": True}),
        "speculation_length": integer_box,
        "max_speculation_length": integer_box,
        "confidence_threshold": (gr.Number, {"step": 0.05}),
        "pipeline": (gr.Dropdown, {"choices": pipeline_choices(combine, draft)}),
        "carry_over": (gr.Checkbox, {}),
        "record_top_k": integer_box,
    }
    kind, options = kinds.get(name, (gr.Textbox, {}))
    shown = value if name in kinds else str(value)
    if name in FOLLOWERS:
        options["interactive"] = not idle
    info = idle or MEANINGS.get(name, "")
    return kind(value=shown, label=field_label(name), info=info, elem_id=f"field-{name}", **options)


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(_number(part) for part in value)
    return str(value)


def _number(value: float) -> str:
    """A text that parses to exactly the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def config_of(values: Sequence[Any]) -> SpeculationConfig:
    """The controls' values, in the order of FIELD_NAMES, as a config. Raises ConfigError."""
    config = SpeculationConfig()
    plain: dict[str, Any] = {}
    for name, value in zip(FIELD_NAMES, values, strict=True):
        if isinstance(value, str):
            plain[name] = getattr(parse_field(config, name, value), name)
        else:
            plain[name] = tuple(value) if isinstance(value, list) else whole_number(value)
    return SpeculationConfig(**plain)


def whole_number(value: Any) -> Any:
    """A whole float, such as a number box's 8.0, as an int; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def values_of(config: SpeculationConfig, drafter_names: Sequence[str]) -> list[Any]:
    """The controls' values for a configuration, without SSMs that are not in `drafter_names`."""
    values: list[Any] = []
    for name in FIELD_NAMES:
        value = getattr(config, name)
        if name == "drafters":
            value = _drafters_shown(value, drafter_names)
        elif name in ("expansion", "max_tree_nodes", "weight_bounds"):
            value = _text(value)
        values.append(value)
    return values


def _drafters_shown(drafters: tuple[str, ...], names: Sequence[str]) -> list[str]:
    wanted: list[str] = []
    for drafter in drafters:
        expansions = {"all": list(names), "first": list(names[:1])}
        wanted += expansions.get(drafter, [drafter])
    return [name for name in (*names, *MODEL_FREE, *own_among(drafters)) if name in wanted]
