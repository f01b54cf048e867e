"""Every field of SpeculationConfig as a control with its meaning in one line.

A field that this file has not heard of still gets a text box, so a new mechanism appears on the
page with its field. Controls hold plain values; `config_of` makes the SpeculationConfig out of
them, and its own checks speak (core.config).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import (
    COMBINES,
    DRAFTS,
    LENGTHS,
    VERIFIES,
    SpeculationConfig,
    lossless_rules,
    parse_field,
)
from core.errors import ConfigError

__all__ = [
    "FIELD_NAMES",
    "MEANINGS",
    "config_of",
    "draft_choices",
    "field_controls",
    "values_of",
    "verify_choices",
    "whole",
]

FIELD_NAMES = tuple(field.name for field in dataclasses.fields(SpeculationConfig))
NGRAM = "ngram"
TREE_SIZES = ["auto", "uncut", "8", "16", "32", "64"]

MEANINGS = {
    "drafters": "Who drafts: the small models (SSMs), and ngram, which looks the prompt up.",
    "draft": "How an SSM picks: its top k, with the LLM's own noise (coupled), or drawn.",
    "expansion": "Children per node at each depth: 1,1,3 is a chain that splits in three.",
    "max_tree_nodes": "Tokens verified in one LLM pass: a number, auto (by cost) or uncut.",
    "combine": "How several drafts become one tree.",
    "length": "Who decides how many tokens are drafted ahead.",
    "speculation_length": "Tokens drafted ahead in a round; 0 is plain decoding.",
    "max_speculation_length": "Upper bound for whoever decides the length.",
    "verify": "How the LLM accepts: by its best token, by its seeded draw, or by coins (mss).",
    "carry_over": "Keep what was learned about the drafters for the next run.",
    "record_top_k": "Alternatives kept for every node, for the inspector; 0 keeps none.",
}


def field_controls(config: SpeculationConfig, drafter_names: Sequence[str]) -> dict[str, Component]:
    """A control for each field, in the order of the dataclass; build inside a layout."""
    shown = values_of(config, drafter_names)
    return {
        name: _control(name, value, drafter_names)
        for name, value in zip(FIELD_NAMES, shown, strict=True)
    }


def _control(name: str, value: Any, drafter_names: Sequence[str]) -> Component:
    whole_number = (gr.Number, {"step": 1})
    kinds: dict[str, tuple[type[Component], dict[str, Any]]] = {
        "drafters": (gr.CheckboxGroup, {"choices": [*drafter_names, NGRAM]}),
        "draft": (gr.Dropdown, {"choices": draft_choices(0.0)}),
        "verify": (gr.Dropdown, {"choices": verify_choices("auto", 0.0)}),
        "combine": (gr.Dropdown, {"choices": list(COMBINES)}),
        "length": (gr.Dropdown, {"choices": list(LENGTHS)}),
        "max_tree_nodes": (gr.Dropdown, {"choices": TREE_SIZES, "allow_custom_value": True}),
        "speculation_length": whole_number,
        "max_speculation_length": whole_number,
        "carry_over": (gr.Checkbox, {}),
        "record_top_k": whole_number,
    }
    kind, options = kinds.get(name, (gr.Textbox, {}))
    shown = value if name in kinds else str(value)
    label, info = name, MEANINGS.get(name, "")
    return kind(value=shown, label=label, info=info, elem_id=f"field-{name}", **options)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def config_of(values: Sequence[Any]) -> SpeculationConfig:
    """Controls' values, in field order -> SpeculationConfig. ConfigError names the field."""
    config = SpeculationConfig()
    plain: dict[str, Any] = {}
    for name, value in zip(FIELD_NAMES, values, strict=True):
        if isinstance(value, str):
            plain[name] = getattr(parse_field(config, name, value), name)
        else:
            plain[name] = tuple(value) if isinstance(value, list) else whole(value)
    return SpeculationConfig(**plain)


def whole(value: Any) -> Any:
    """8 for the 8.0 of a number box; what is no whole number stays for core.config."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def values_of(config: SpeculationConfig, drafter_names: Sequence[str]) -> list[Any]:
    """The inverse: what the controls show for a configuration; names that are not loaded go."""
    values: list[Any] = []
    for name in FIELD_NAMES:
        value = getattr(config, name)
        if name == "drafters":
            value = _drafters_shown(value, drafter_names)
        elif name in ("expansion", "max_tree_nodes"):
            value = _text(value)
        values.append(value)
    return values


def _drafters_shown(drafters: tuple[str, ...], names: Sequence[str]) -> list[str]:
    wanted: list[str] = []
    for drafter in drafters:
        whole = {"all": list(names), "first": list(names[:1])}
        wanted += whole.get(drafter, [drafter])
    return [name for name in (*names, NGRAM) if name in wanted]


def draft_choices(temperature: float, verify: str = "auto") -> list[tuple[str, str]]:
    """Draft kinds with a label; one that is refused at this temperature, or would not be lossless
    with this rule, says so."""
    return [(_draft_label(draft, verify, temperature), draft) for draft in DRAFTS]


def _draft_label(draft: str, verify: str, temperature: float) -> str:
    if draft != "auto" and not lossless_rules(draft, temperature):
        return f"{draft} (refused at temperature {temperature:g}: every draw is the best token)"
    if not _lossless(draft, verify, temperature):
        return f"{draft} (not lossless with verify {verify} at temperature {temperature:g})"
    return draft


def verify_choices(draft: str, temperature: float) -> list[tuple[str, str]]:
    """Rules with a label; one that would not be lossless with this draft kind says so."""
    return [(_verify_label(rule, draft, temperature), rule) for rule in VERIFIES]


def _verify_label(rule: str, draft: str, temperature: float) -> str:
    if not _lossless(draft, rule, temperature):
        return f"{rule} (not lossless with draft {draft} at temperature {temperature:g})"
    return rule


def _lossless(draft: str, verify: str, temperature: float) -> bool:
    try:
        SpeculationConfig(draft=draft, verify=verify).resolved(temperature)
    except ConfigError:
        return False
    return True
