"""The Prompts tab: acceptance prompt by prompt, of a study or of past runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import PRESETS, SamplingParams
from lab.study import Configuration, Study, plain_configuration
from ui.components import PromptTable, pack
from ui.form.fields import whole_number
from ui.form.form import preset_config
from ui.prompts.export import wire_file
from ui.prompts.past_handlers import (
    PastRunsControls,
    build_past,
    build_past_message,
    hide_past_message,
    wire_past,
)
from ui.prompts.rows import of_study, prompts_table_value
from ui.prompts.run_figures import RunFigures
from ui.server.context import Context
from ui.sessions.layout import Sessions
from ui.shared.into_sessions import into_sessions
from ui.shared.parts import download
from ui.shared.prompt_source import (
    PromptSource,
    build_prompt_source,
    prompts_of,
    wire_prompt_source,
)
from ui.shared.studies import OpenedStudy, new_study
from ui.shared.study_board import (
    StudyBoard,
    StudyPictures,
    build_study_board,
    wire_begin,
    wire_study_board,
)
from ui.shared.study_words import limit_words, machine_words

__all__ = ["Prompts", "build_prompts", "wire_prompts"]

EMPTY = "Nothing measured yet: give prompts and press Measure, or look at past runs."
SPEED_UP_NOTE = "Speed-up: beside plain decoding of the same prompt, measured in the same study."


@dataclass(frozen=True, slots=True)
class Prompts:
    """The tab's components."""

    context: Context
    board: StudyBoard
    source: PromptSource
    preset: gr.Dropdown
    max_new_tokens: gr.Number
    temperature: gr.Number
    repeats: gr.Number
    measure: gr.Button
    past: PastRunsControls
    table: gr.HTML
    save: gr.Button
    file: gr.HTML

    @property
    def inputs(self) -> list[Component]:
        """The components whose values `study_of` takes, in this order."""
        return [
            self.preset,
            self.max_new_tokens,
            self.temperature,
            self.repeats,
            *self.source.inputs,
        ]

    @property
    def pictures(self) -> StudyPictures:
        """The outputs that show a study."""
        outputs = (self.table, self.past.status, self.past.more_button)
        return StudyPictures(outputs, partial(study_updates, self.context))


# -- layout --


def build_prompts(context: Context) -> Prompts:
    """The controls at the left, the table at the right; past studies below."""
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320, elem_classes="sp-controls"):
            source = build_prompt_source("prompts")
            settings = _settings(context)
            with gr.Accordion("Or of past runs", open=False, elem_id="prompts-past"):
                past_controls = build_past(_drafters(context))
        with gr.Column(scale=4, min_width=360, elem_classes="sp-results"):
            board = build_study_board(context, "prompts", "prompts")
            past_message = build_past_message()
            table = PromptTable({"empty": EMPTY}, elem_id="prompts-table")
            save = gr.Button("CSV of all rows", size="sm", elem_id="prompts-csv")
            file = download("prompts-saved")
            gr.Markdown("## Past studies of prompts")
            board.studies.render()  # type: ignore[no-untyped-call]
    return Prompts(
        context=context,
        board=board,
        source=source,
        **settings,
        past=PastRunsControls(**past_controls, **past_message),
        table=table,
        save=save,
        file=file,
    )


def _settings(context: Context) -> dict[str, Any]:
    return {
        "preset": gr.Dropdown(
            [name for name in PRESETS if name != "autoregressive"],
            value=context.preset if context.preset != "autoregressive" else "specinfer",
            label="Preset",
            info="Plain decoding is measured beside it.",
            elem_id="prompts-preset",
        ),
        "max_new_tokens": gr.Number(
            64,
            step=1,
            label="Max new tokens",
            info="Tokens to write at most.",
            min_width=120,
        ),
        "temperature": gr.Number(0, step=0.1, label="Temperature", min_width=120),
        "repeats": gr.Number(
            3,  # as in Live and Compare
            step=1,
            label="Repeats",
            info="Each with a seed of its own.",
            min_width=120,
            elem_id="prompts-repeats",
        ),
        "measure": gr.Button("Measure", variant="primary", elem_id="prompts-measure"),
    }


# -- handlers --


def study_of(context: Context, values: Sequence[Any]) -> Study:
    """The study that the button Measure begins: plain decoding and the preset on every prompt.
    `values`: the values of `Prompts.inputs`. Raises ConfigError, which names the field."""
    preset, tokens, shown_temperature, repeats, *source_values = values
    temperature = 0.0 if shown_temperature is None else shown_temperature
    sampling = SamplingParams(max_new_tokens=whole_number(tokens), temperature=temperature)
    speculation = replace(preset_config(preset, temperature), record_top_k=0)
    return new_study(
        context,
        "prompts",
        sampling,
        (plain_configuration(), Configuration(preset, speculation)),
        prompts_of(*source_values),
        repeats=whole_number(repeats),
    )


def study_updates(context: Context, opened: OpenedStudy | None) -> list[Any]:
    """The table of a study, or EMPTY without one; clears the notice about past runs."""
    if opened is None:
        return [{"of": "", "empty": EMPTY}, *hide_past_message()]
    study, results, _ = opened
    chosen = next((one.name for one in study.configurations if not one.plain), "")
    lines = of_study(study, results)
    words = " ".join(filter(None, (SPEED_UP_NOTE, limit_words(study), machine_words(results))))
    table = prompts_table_value(study.study_id, lines, _drafters(context), chosen, words)
    return [pack({**table, "empty": "The first runs are being measured."}), *hide_past_message()]


def _drafters(context: Context) -> tuple[str, ...]:
    """The drafters' names in the order of the drafters' colours."""
    return (*context.drafter_names, *context.model_free)


# -- wiring --


def wire_prompts(
    prompts: Prompts, visitor: gr.BrowserState, tab: gr.Tab, tabs: gr.Tabs, sessions: Sessions
) -> None:
    """Connects the tab's components."""
    context, board, pictures = prompts.context, prompts.board, prompts.pictures
    wire_prompt_source(prompts.source)
    wire_study_board(board, visitor, tab, pictures)

    def study_to_begin(*values: Any) -> Study:
        return study_of(context, values)

    wire_begin(board, visitor, prompts.measure.click, study_to_begin, prompts.inputs, pictures)
    into_sessions(sessions, tabs, prompts.table.select, visitor)
    figures, past = RunFigures(context.store), prompts.past
    wire_past(past, board, figures, prompts.table, visitor, tab, partial(_drafters, context))
    wire_file(board, figures, visitor, prompts.save, (prompts.file, past.status))
