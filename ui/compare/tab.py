"""The Compare tab: one prompt under one to five configurations, beside plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from lab.prompts import StudyPrompt
from lab.study import Study
from ui.compare.comparison import DEFAULT_PRESETS, comparison_values, configurations_of
from ui.components import COMPARE_PICTURES, pack
from ui.form.fields import config_of, whole_number
from ui.form.form import (
    EXAMPLES,
    SAMPLING_NAMES,
    empty_box_errors,
    examples,
    fill_prompt,
    preset_config,
    processor_controls,
)
from ui.live.layout import Live
from ui.server.context import Context
from ui.sessions.layout import Sessions
from ui.shared.event_options import QUICK
from ui.shared.into_live import into_live
from ui.shared.into_sessions import into_sessions
from ui.shared.studies import OpenedStudy, Studies, new_study
from ui.shared.study_board import (
    StudyBoard,
    StudyPictures,
    build_study_board,
    studies_of,
    wire_begin,
    wire_study_board,
)

__all__ = [
    "LIVE",
    "Compare",
    "build_compare",
    "choices_shown",
    "compare_choices",
    "study_of",
    "wire_compare",
]

LIVE = "the Live tab's settings"
"""The choice that stands for the settings of Live's form, in place of a preset."""
SAMPLING = SAMPLING_NAMES[:7]  # the last is the seed


@dataclass(frozen=True, slots=True)
class Compare:
    """The tab's components. `pictures` has the keys that `comparison_values` returns."""

    context: Context
    board: StudyBoard
    prompt: gr.Textbox
    examples: tuple[gr.Button, ...]
    configurations: gr.CheckboxGroup
    sampling: dict[str, Component]
    repeats: gr.Number
    begin: gr.Button
    pictures: dict[str, gr.HTML]

    @property
    def inputs(self) -> list[Component]:
        """The first inputs of `study_of`; the visitor's presets and Live's fields follow."""
        return [self.prompt, self.configurations, self.repeats, *self.sampling.values()]


# -- layout --


def build_compare(context: Context) -> Compare:
    """The settings at the left; progress, pictures and past comparisons at the right."""
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320, elem_classes="sp-controls"):
            compare_form = _build_form(context.chats_by_default)
        with gr.Column(scale=4, min_width=360, elem_classes="sp-results"):
            board = build_study_board(context, "compare", "compare")
            pictures = _build_pictures()
            gr.Markdown("## Past comparisons")
            board.studies.render()  # type: ignore[no-untyped-call]
    return Compare(context=context, board=board, pictures=pictures, **compare_form)


def _build_form(chats: bool) -> dict[str, Any]:
    first = examples(chats)[0][1]
    prompt = gr.Textbox(first, label="Prompt", lines=4, max_lines=12, elem_id="compare-prompt")
    with gr.Row(elem_classes="sp-examples"):
        buttons = tuple(
            gr.Button(name, size="sm", min_width=60, elem_id=f"compare-{name.lower()}")
            for name, _ in EXAMPLES
        )
    configurations = gr.CheckboxGroup(
        compare_choices(None),
        value=list(DEFAULT_PRESETS),
        label="Configurations",
        info="One to five, beside plain decoding, which is always measured.",
        elem_id="compare-configurations",
    )
    repeats = gr.Number(
        3,
        step=1,
        label="Repeats",
        info="How often each is measured. In turn: 1 2 3 1 2 3.",
        elem_id="compare-repeats",
    )
    begin = gr.Button("Compare", variant="primary", elem_id="compare-begin")
    with gr.Accordion("Sampling", open=False):
        sampling = _build_sampling()
    return {
        "prompt": prompt,
        "examples": buttons,
        "configurations": configurations,
        "repeats": repeats,
        "begin": begin,
        "sampling": sampling,
    }


def _build_sampling() -> dict[str, Component]:
    components: dict[str, Component] = {
        "max_new_tokens": gr.Number(
            64, step=1, label="Max new tokens", info="Tokens to write at most."
        ),
        "temperature": gr.Number(
            0, step=0.1, label="Temperature", info="0 always takes the best token."
        ),
        **processor_controls(),
        "seed": gr.Number(
            1000,
            step=1,
            label="Seed",
            info="Of the first repeat; each later repeat adds 1. Empty: one is drawn.",
        ),
    }
    for name, control in components.items():
        control.elem_id = f"compare-{name}"
    return components


def _build_pictures() -> dict[str, gr.HTML]:
    html = {}
    table, ratios, stages, rounds, rates, texts = COMPARE_PICTURES
    html[table.name] = table(elem_id="compare-compared")
    for pair in ((ratios, stages), (rounds, rates)):
        with gr.Row(equal_height=False, elem_classes="sp-pair"):
            for picture in pair:
                with gr.Column(scale=1, min_width=360):
                    html[picture.name] = picture(elem_id=f"compare-{picture.name}")
    html[texts.name] = texts(elem_id="compare-texts")
    return html


def compare_choices(own: dict[str, Any] | None) -> list[str]:
    """The choices: built-in presets that draft, Live's settings, the visitor's presets `own`."""
    built_in = [name for name in PRESETS if not SpeculationConfig.preset(name).never_drafts]
    return [*built_in, LIVE, *(own or {})]


# -- handlers --


def study_of(context: Context, values: Sequence[Any]) -> Study:
    """The study that Compare measures. `values`: the values of `Compare.inputs`, then the visitor's
    presets and the fields of Live's form. Raises ConfigError."""
    prompt, chosen, repeats = values[:3]
    sampling_values = values[3 : 3 + len(SAMPLING)]
    own, live = values[3 + len(SAMPLING)], values[4 + len(SAMPLING) :]
    numbers = {
        name: whole_number(value) for name, value in zip(SAMPLING, sampling_values, strict=True)
    }
    with empty_box_errors():
        sampling = SamplingParams(**numbers)

    def speculation_of(name: str) -> SpeculationConfig:
        if name == LIVE:
            return config_of(live)
        if name not in (*PRESETS, *(own or {})):
            raise ConfigError.must_be("preset", name, "one that this browser still has")
        return preset_config(name, sampling.temperature, own)

    configurations = configurations_of([(name, speculation_of(name)) for name in chosen or ()])
    prompts = (StudyPrompt("1", prompt or ""),)
    with empty_box_errors():
        return new_study(
            context, "compare", sampling, configurations, prompts, repeats=whole_number(repeats)
        )


def picture_values(context: Context, opened: OpenedStudy | None) -> list[Any]:
    """The values of COMPARE_PICTURES, in order; empty dicts without a study."""
    if opened is None:
        return [{} for _ in COMPARE_PICTURES]
    values = comparison_values(opened.study, opened.results, context.store.events)
    return [pack(values[picture.name]) for picture in COMPARE_PICTURES]


def request_of(studies: Studies, study_id: str, name: str) -> Request:
    """The request of a configuration's first repeat. Raises ConfigError if the comparison has no
    configuration of this name."""
    study = studies.open(study_id).study
    cell = next((cell for cell in study.cells() if cell.contestant == name), None)
    if cell is None:
        allowed = ", ".join(one.name for one in study.configurations)
        raise ConfigError.must_be("configuration", name, f"one of {allowed}")
    return study.request(cell)


# -- wiring --


def wire_compare(
    compare: Compare,
    visitor: gr.BrowserState,
    own: gr.BrowserState,
    tab: gr.Tab,
    live: Live,
    tabs: gr.Tabs,
    sessions: Sessions,
) -> None:
    """Connects the tab's components."""
    context, board = compare.context, compare.board
    pictures = tuple(compare.pictures[picture.name] for picture in COMPARE_PICTURES)
    study_pictures = StudyPictures(pictures, lambda opened: picture_values(context, opened))
    wire_study_board(board, visitor, tab, study_pictures)
    inputs = [*compare.inputs, own, *live.form.fields.values()]
    wire_begin(
        board, visitor, compare.begin.click, lambda *v: study_of(context, v), inputs, study_pictures
    )
    tab.select(choices_shown, [own, compare.configurations], compare.configurations, **QUICK)
    for index, button in enumerate(compare.examples):
        # `chats_by_default` is read at the click, because another LLM may be loaded by then.
        fill = fill_prompt(index, lambda: context.chats_by_default)
        button.click(fill, None, compare.prompt, **QUICK)
    table = compare.pictures["compared"]
    into_live(live, tabs, table.edit, _request_handler(compare), [visitor])
    into_sessions(sessions, tabs, table.select, visitor)


def choices_shown(own: dict[str, Any] | None, chosen: list[str] | None) -> gr.CheckboxGroup:
    """The current choices. The selection is sent only if one of its presets was deleted: the
    visitor may have changed the selection meanwhile."""
    choices = compare_choices(own)
    remaining = [name for name in chosen or () if name in choices]
    if remaining == list(chosen or ()):
        return gr.CheckboxGroup(choices=choices)
    return gr.CheckboxGroup(choices=choices, value=remaining)


def _request_handler(compare: Compare) -> Callable[..., Request]:
    def configuration_request(request: gr.Request, event: gr.EventData, visitor: str) -> Request:
        event_data = event._data or {}
        studies = studies_of(compare.context, request, visitor)
        return request_of(
            studies, str(event_data.get("study", "")), str(event_data.get("name", ""))
        )

    return configuration_request
