"""The Models tab: the loaded models, the models that can be loaded, and a form to load a pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import gradio as gr
from gradio.components import Component

from ui.learn.layout import Learn
from ui.learn.tab import wire_lessons
from ui.live.layout import Live
from ui.models_tab.handlers import (
    Values,
    cancel_loading,
    load_offer,
    load_values,
    need_value,
    no_need,
    opened_values,
    pick_offer,
    quick_values,
    state_values,
    table,
)
from ui.models_tab.offers import auto_words
from ui.server.context import Context
from ui.shared.event_options import EACH, LATEST, QUICK, QUIET
from ui.shared.parts import notice, offer_table, stage_list
from ui.shared.swap_updates import wire_swap_updates

__all__ = ["Models", "build_models", "wire_models"]

Value = TypeVar("Value")
INTRO = (
    "An **LLM** writes the text; small models (**SSMs**) draft ahead of it. They must share one "
    "tokenizer. Runs go on while another pair is loaded: it takes over once loaded. "
    "**Fill in** puts a set into the form, **Load** loads it."
)


@dataclass(frozen=True, slots=True)
class Models:
    """The tab's components."""

    context: Context
    llm: gr.Textbox
    ssms: gr.Textbox
    dtype: gr.Dropdown
    device: gr.Dropdown
    need: gr.Button
    load: gr.Button
    cancel: gr.Button
    checked: gr.HTML
    notice: gr.HTML
    stages: gr.HTML
    free: gr.HTML
    offers: gr.HTML

    @property
    def form(self) -> list[Component]:
        return [self.llm, self.ssms, self.dtype, self.device]

    @property
    def state_outputs(self) -> list[Component]:
        return [self.notice, self.stages, self.load, self.cancel]


# -- layout --


def build_models(context: Context) -> Models:
    """The form at the left, the table at the right."""
    with gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=320, elem_classes="sp-controls"):
            gr.Markdown(INTRO)
            form = _form()
            with gr.Row():
                need = gr.Button("Check memory", elem_id="models-need", min_width=140)
                load = gr.Button("Load", variant="primary", elem_id="models-load", min_width=50)
                cancel = gr.Button(
                    "Cancel", interactive=False, elem_id="models-cancel", min_width=70
                )
            checked = notice("models-check-notice")
            message_box = notice("models-notice")
            stages = stage_list("models-stages")
        with gr.Column(scale=3, min_width=340):
            free = notice("models-free")
            offered = offer_table("models-offers")
    return Models(context, *form, need, load, cancel, checked, message_box, stages, free, offered)


def _form() -> tuple[gr.Textbox, gr.Textbox, gr.Dropdown, gr.Dropdown]:
    from core.models.loading.placing import DEVICES, DTYPES  # imports torch

    llm = gr.Textbox(
        value="bundled",
        max_lines=1,
        label="LLM",
        info="bundled, smollm2, a folder or a GGUF file of this server, or a Hugging Face id.",
        elem_id="models-llm",
    )
    ssms = gr.Textbox(
        value="bundled",
        lines=3,
        max_lines=8,
        label="SSMs",
        info="One a line; bundled: all that come with SpecScope. Empty: only lookups draft.",
        elem_id="models-ssms",
    )
    with gr.Row():
        dtype = gr.Dropdown(
            ["auto", *DTYPES],
            value="auto",
            label="Number format",
            info=auto_words(),
            elem_id="models-dtype",
            min_width=140,
        )
        device = gr.Dropdown(
            list(DEVICES),
            value="auto",
            label="Device",
            info="auto: CUDA where there is one.",
            elem_id="models-device",
            min_width=140,
        )
    return llm, ssms, dtype, device


# -- wiring --


def wire_models(
    models: Models,
    live: Live,
    learn: Learn,
    own: gr.BrowserState,
    tabs: dict[str, gr.Tab],
    page_tabs: gr.Tabs,
    blocks: gr.Blocks,
) -> None:
    """Connects the tab's components."""
    table_outputs = [models.offers, models.free]
    table_inputs = [models.dtype, models.device]
    state, state_outputs = _handler(models, state_values), models.state_outputs
    # This comes before the table's handler, because Gradio runs a tab's handlers in turn and the
    # table's first call takes long. A late state could overwrite the result of a click.
    opened = tabs["models"].select(_handler(models, opened_values), None, state_outputs, **LATEST)
    for trigger in (tabs["models"].select, models.dtype.change, models.device.change):
        trigger(_handler(models, table), table_inputs, table_outputs, **LATEST)
    ticked = models.notice.tick(state, None, state_outputs, **LATEST)
    models.need.click(_handler(models, need_value), models.form, models.checked, **LATEST)
    for trigger in (models.load.click, models.offers.select):
        trigger(no_need, None, models.checked, **LATEST)
    models.cancel.click(_handler(models, cancel_loading), None, state_outputs, **LATEST)
    streamed: dict[str, Any] = {**QUIET, "trigger_mode": "once", "concurrency_limit": None}
    load = _stream_handler(models, load_values)
    ended = models.load.click(load, models.form, state_outputs, **streamed)
    # `load_offer` does not fill the form: Gradio sends a stream's last values again at the end of
    # the stream, and would overwrite the visitor's edits.
    filled = [models.llm, models.ssms]
    models.offers.select(_fill_offer, filled, filled, **EACH)
    picked = models.offers.select(
        _load_offer_handler(models),
        models.form,
        state_outputs,
        **{**streamed, "trigger_mode": "multiple"},
    )
    offered = live.header.select(_open_models_tab, None, page_tabs, **QUICK).then(
        _stream_handler(models, quick_values),
        models.form,
        [*filled, *state_outputs],
        **streamed,
    )
    for one in (ended, picked, offered):
        one.then(_handler(models, table), table_inputs, table_outputs, **LATEST)
    events = (opened, ticked, ended, picked, offered)
    others = (tab.select for name, tab in tabs.items() if name != "models")
    wire_swap_updates(live, own, (blocks.load, *others, *(one.then for one in events)))
    wire_lessons(learn, (tabs["learn"].select, *(one.then for one in events)))


def _may_load(models: Models, request: gr.Request) -> bool:
    return models.context.access.may_change(request)


def _handler(models: Models, work: Callable[..., Value]) -> Callable[..., Value]:

    def handle(request: gr.Request, *values: Any) -> Value:
        return work(models.context, _may_load(models, request), *values)

    return handle


def _stream_handler(
    models: Models, work: Callable[..., Iterator[Values]]
) -> Callable[..., Iterator[Values]]:

    def handle(request: gr.Request, *values: Any) -> Iterator[Values]:
        yield from work(models.context, _may_load(models, request), *values)

    return handle


def _fill_offer(event: gr.EventData, llm: str, ssms: str) -> tuple[str, str]:
    return pick_offer(event._data, llm, ssms)


def _load_offer_handler(models: Models) -> Callable[..., Iterator[Values]]:
    def load(request: gr.Request, event: gr.EventData, *form: Any) -> Iterator[Values]:
        yield from load_offer(models.context, _may_load(models, request), event._data, form)

    return load


def _open_models_tab() -> gr.Tabs:
    return gr.Tabs(selected="models")
