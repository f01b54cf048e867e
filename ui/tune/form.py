"""Tune's form: a base configuration, prompts, sampling, repeats, and up to three axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import (
    PRESETS,
    SamplingParams,
    SpeculationConfig,
)
from core.config.mechanisms import choices_of
from core.errors import ConfigError
from lab.grid import FIELDS, TEMPERATURE, Axis, Refused, axis_from_text, axis_of, baselines, grid
from lab.prompts import StudyPrompt
from lab.study import Configuration, Study
from ui.form.fields import MEANINGS, config_of, whole_number
from ui.form.form import SAMPLING_NAMES, preset_config, sampling_controls, sampling_of
from ui.form.menus import idle_fields
from ui.server.context import Context
from ui.shared.prompt_source import PromptSource, build_prompt_source, prompts_of
from ui.shared.studies import new_study
from ui.tune.values import AXES
from ui.tune.words import grid_title
from ui.words.settings import field_label

__all__ = [
    "LIVE",
    "GridRequest",
    "TuneForm",
    "study_request",
    "axis_shown",
    "base_menu",
    "build_tune_form",
]

LIVE = "Live's settings"
NO_FIELD = ""
MENU_FIELDS = ("draft", "combine", "routing", "weights", "length", "verify", "pipeline")
"""Fields whose values are picked from a menu; values of other fields are typed."""
INITIAL_VALUES = MappingProxyType(
    {
        "drafters": "first | all | all,ngram",
        "expansion": "1 | 1,1,3 | 1,2,2",
        "max_tree_nodes": "8, 16, auto",
        "vote_nodes": "4, 8, 16",
        "routed_drafters": "1, 2, 3",
        "eta": "0.05, 0.1, 0.3",
        "weight_bounds": "0.1,10 | 0.5,2",
        "speculation_length": "1, 2, 4, 8",
        TEMPERATURE: "0, 0.5, 1",
        "max_speculation_length": "4, 8, 16",
        "confidence_threshold": "0.2, 0.4, 0.6",
    }
)
"""Initial values of an axis, by field. Each field with typed values needs an entry: without one
its text box is invisible."""
INITIAL_AXES = (
    ("speculation_length", "1, 2, 4, 8"),
    (TEMPERATURE, "0, 0.8"),
    ("max_tree_nodes", "64"),
)
"""A budget of 64 nodes cuts few drafts, so that different lengths give different trees."""
INITIAL_TOKENS, INITIAL_REPEATS = 64, 1
SEED_INFO = "Of the first repeat; each later repeat adds 1. Empty: one is drawn and recorded."


@dataclass(frozen=True, slots=True)
class AxisControls:
    """One axis: its field, and the two controls in which its values are typed or picked."""

    field: gr.Dropdown
    typed: gr.Textbox
    picked: gr.Dropdown

    @property
    def inputs(self) -> list[Component]:
        return [self.field, self.typed, self.picked]


@dataclass(frozen=True, slots=True)
class TuneForm:
    """The controls. `inputs`: the controls whose values `study_request` takes, in this order."""

    base: gr.Dropdown
    axes: tuple[AxisControls, ...]
    prompts: PromptSource
    sampling: dict[str, Component]
    repeats: gr.Number

    @property
    def inputs(self) -> list[Component]:
        axes = [control for axis in self.axes for control in axis.inputs]
        return [self.base, *axes, *self.prompts.inputs, *self.sampling.values(), self.repeats]


@dataclass(frozen=True, slots=True)
class GridRequest:
    """The study that the form describes, and the points that cannot be in it."""

    study: Study
    refused: tuple[Refused, ...]


# -- layout --


def build_tune_form(context: Context) -> TuneForm:
    """Lays out the form in one column."""
    base = gr.Dropdown(
        _bases(None),
        value="specinfer",
        label="Base",
        info="The other fields have this preset's values, or those of the Live tab.",
        elem_id="tune-base",
    )
    axes = tuple(_build_axis(i, *first, context) for i, first in enumerate(INITIAL_AXES[:AXES]))
    prompts = build_prompt_source("tune")
    repeats = gr.Number(
        value=INITIAL_REPEATS,
        step=1,
        label="Repeats",
        info="Of every point on every prompt, each with a seed of its own.",
        elem_id="tune-repeats",
    )
    with gr.Accordion("Sampling", open=False, elem_id="tune-sampling"):
        sampling = sampling_controls(context.chat, "tune")
        sampling["max_new_tokens"].value = INITIAL_TOKENS
        sampling["seed"].info = SEED_INFO
    return TuneForm(base, axes, prompts, sampling, repeats)


def _build_axis(number: int, field: str, values: str, context: Context) -> AxisControls:
    with gr.Group(elem_classes="sp-axis"):
        menu = gr.Dropdown(
            [("none", NO_FIELD), *((field_label(name), name) for name in FIELDS)],
            value=field,
            label=f"Axis {number + 1}",
            info=MEANINGS.get(field, ""),
            elem_id=f"tune-axis-{number + 1}",
        )
        typed, picked = axis_shown(field, context.drafter_names)
        typed.value = values
        typed.elem_id = f"tune-values-{number + 1}"
        picked.elem_id = f"tune-choices-{number + 1}"
    return AxisControls(menu, typed, picked)


def axis_shown(field: str, drafter_names: Sequence[str]) -> tuple[gr.Textbox, gr.Dropdown]:
    """The two controls for an axis's values: a text box, and a menu for MENU_FIELDS. At most one
    control is visible."""
    choices = list(choices_of(field)) if field in MENU_FIELDS else []
    values = INITIAL_VALUES.get(field, "")
    hint = "Separated by |." if "|" in values else "Separated by commas."
    if field == "drafters":
        hint = f"Sets with | between them, of all, first, ngram, {', '.join(drafter_names)}."
    typed = gr.Textbox(
        value=values,
        label="Values",
        info=hint,
        max_lines=1,
        visible=field in INITIAL_VALUES,
    )
    picked = gr.Dropdown(
        choices=choices,
        value=choices,
        multiselect=True,
        label="Values",
        visible=bool(choices),
    )
    return typed, picked


def base_menu(own: dict[str, Any] | None) -> gr.Dropdown:
    """The possible bases: built-in presets that draft, the visitor's presets, Live's form."""
    return gr.Dropdown(choices=_bases(own))


def _bases(own: dict[str, Any] | None) -> list[str]:
    built_in = [name for name in PRESETS if not SpeculationConfig.preset(name).never_drafts]
    return [*built_in, *(own or {}), LIVE]


# -- values --


def study_request(
    context: Context,
    own: dict[str, Any] | None,
    live: Sequence[Any],
    values: Sequence[Any],
) -> GridRequest:
    """The study from the `values` of `TuneForm.inputs`. `own`: the visitor's own presets; `live`:
    the values of Live's form. Raises ConfigError."""
    # In the order of `TuneForm.inputs`: the base, 3 values of each axis, 5 of the prompts, the
    # sampling, the repeats.
    base, rest = values[0], list(values[1:])
    axes = axes_of_entries([rest[3 * i : 3 * i + 3] for i in range(AXES)])
    rest = rest[3 * AXES :]
    prompts = prompts_of(*rest[:5])
    sampling, chat = sampling_of(rest[5 : 5 + len(SAMPLING_NAMES)])
    if base == LIVE:
        # In Live's form the prompt and the sampling come first.
        speculation = config_of(live[1 + len(SAMPLING_NAMES) :])
    elif base in _bases(own):
        speculation = preset_config(base, sampling.temperature, own)
    else:
        raise ConfigError.must_be("base", base, f"one of {', '.join(_bases(own))}")
    return grid_study(context, speculation, axes, prompts, sampling, whole_number(rest[-1]), chat)


def axes_of_entries(entries: Sequence[Sequence[Any]]) -> list[Axis]:
    """Axes of entries (field, typed, picked). Raises ConfigError for wrong values or no field."""
    axes = []
    for field, typed, picked in entries:
        if field in MENU_FIELDS:
            axes.append(axis_of(field, list(picked or [])))
        elif field:
            axes.append(axis_from_text(field, typed or ""))
    if not axes:
        raise ConfigError.must_be("axes", "none", "at least one field to vary")
    return axes


def grid_study(
    context: Context,
    base: SpeculationConfig,
    axes: Sequence[Axis],
    prompts: Sequence[StudyPrompt],
    sampling: SamplingParams,
    repeats: int,
    chat: bool,
) -> GridRequest:
    """The study of a grid, plain decoding first. No run uses `carry_over` or `record_top_k`.
    Raises ConfigError."""
    if len(axes) > AXES:
        raise ConfigError.must_be("fields", [axis.field for axis in axes], f"at most {AXES} fields")
    # With `carry_over` a run would depend on the runs before it.
    base = replace(base, carry_over=False, record_top_k=0)
    measured_grid = grid(base, axes, sampling, (*context.drafter_names, *context.user_drafters))
    study = new_study(
        context,
        "tune",
        sampling,
        (*baselines(axes), *measured_grid.configurations),
        prompts,
        repeats=repeats,
        chat=chat,
        title=grid_title(measured_grid, len(prompts)),
        axes=measured_grid.axes,
    )
    for axis in axes:
        _check_used(axis, measured_grid.configurations, sampling.temperature)
    return GridRequest(study, measured_grid.refused)


def _check_used(axis: Axis, configurations: Sequence[Configuration], temperature: float) -> None:
    """Raises ConfigError for a field that no configuration of the grid uses."""
    idle = [idle_fields(one.speculation.to_plain()).get(axis.field, "") for one in configurations]
    if not all(idle):
        return
    configs = {name: SpeculationConfig.preset(name, temperature) for name in PRESETS}
    presets = [
        name
        for name, preset in configs.items()
        if not preset.never_drafts and axis.field not in idle_fields(preset.to_plain())
    ]
    why = idle[0].removeprefix("Not used: ").removesuffix(".")
    instead = f"; a preset that uses it is one of {', '.join(presets)}" if presets else ""
    raise ConfigError.of(
        axis.field, list(axis.values), f"it cannot be varied here, since {why}{instead}"
    )
