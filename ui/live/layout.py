"""The Live tab's layout: the form at the left, the board at the right. No handler, no wiring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.form.form import Form, build_form, build_prompt
from ui.form.own_presets import OwnPresets, build_own_presets
from ui.live.rerun import build_rerun
from ui.run.frame import Frame
from ui.server.context import Context
from ui.shared.all_requests import AllRequests, build_all_requests
from ui.shared.board import Board, build_board
from ui.shared.parts import notice
from ui.words.messages import position_sentence

__all__ = ["Live", "build_live"]

KEYS = (
    "Keys: <kbd>r</kbd> run, <kbd>s</kbd> stop, <kbd>.</kbd> step, <kbd>,</kbd> step back, "
    "<kbd>←</kbd> <kbd>→</kbd> rounds, <kbd>l</kbd> latest round, "
    "<kbd>t</kbd> large type"
)


@dataclass(frozen=True, slots=True)
class Live:
    """The tab's components."""

    board: Board
    form: Form
    header: gr.HTML
    validity: gr.HTML
    run: gr.Button
    stop: gr.Button
    stops: gr.Number
    on_change: gr.Checkbox
    rerun: gr.Button
    chosen: gr.State
    settled: gr.Button
    arrived: gr.Number
    measure: gr.Button
    prove: gr.Button
    presets: OwnPresets
    requests: AllRequests

    @property
    def outputs(self) -> list[Component]:
        return [self.header, *self.board.outputs]


def build_live(context: Context, chips: gr.HTML) -> Live:
    """The form at the left, the board at the right; one below the other on a narrow screen.

    `chips` is the page's header; it shows the state of this tab's run.
    """
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320, elem_classes="sp-controls"):
            asked_for = build_prompt()
            buttons = _run_bar()
            models = (context.drafter_names, context.preset, context.chat, context.answers)
            form = build_form(asked_for, *models, own=context.own_drafters)
            presets = build_own_presets()
            # `chosen`: the preset chosen last; once a field is edited, the menu shows own settings.
            # `settled`: a hidden button that the browser clicks when no field changes any more.
            chosen = gr.State(context.preset)
            settled = gr.Button("Check", elem_id="live-settled", elem_classes="sp-unseen")
            # Whether the form shows all values that were sent to it: set by the check, read by
            # the browser.
            arrived = gr.Number(1, precision=0, visible=False)
        with gr.Column(scale=4, min_width=360):
            requests = build_all_requests(context)
            board = build_board(context, "live", position_sentence(Frame()))
    buttons |= {"presets": presets, "chosen": chosen, "settled": settled}
    return Live(board, form, chips, **buttons, arrived=arrived, requests=requests)


def _run_bar() -> dict[str, Any]:
    """Run, Stop and the reason if Run is disabled; stays visible while the form scrolls."""
    with gr.Column(elem_classes="sp-runbar"):
        with gr.Row(equal_height=True):
            run = gr.Button("Run", variant="primary", elem_id="live-run", min_width=70)
            stop = gr.Button("Stop", variant="stop", elem_id="live-stop", min_width=70)
            on_change, rerun = build_rerun()
        with gr.Row():
            measure = gr.Button(
                "Measure baseline", size="sm", elem_id="live-measure", min_width=110
            )
            proof = gr.Button("Prove it", size="sm", elem_id="live-prove", min_width=110)
        # A hidden field with the number of clicks on Stop, which the browser counts.
        stops = gr.Number(0, precision=0, visible=False)
        wrong = notice("live-validity")
        gr.Markdown(KEYS, elem_classes="sp-keys")
    return {
        "run": run,
        "stop": stop,
        "stops": stops,
        "on_change": on_change,
        "rerun": rerun,
        "measure": measure,
        "prove": proof,
        "validity": wrong,
    }
