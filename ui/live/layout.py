"""The Live tab's layout: the command row, the board, the settings in a drawer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.form.form import Command, Form, build_command, build_settings
from ui.form.own_presets import OwnPresets, build_own_presets
from ui.live.rerun import build_rerun
from ui.run.frame import Frame
from ui.server.context import Context
from ui.shared.all_requests import AllRequests, build_all_requests
from ui.shared.board import Board, build_board
from ui.shared.parts import notice
from ui.words.messages import position_sentence

__all__ = ["Live", "build_live"]

DRAWER = "() => { document.documentElement.toggleAttribute('data-settings'); }"


@dataclass(frozen=True, slots=True)
class Live:
    """Components of the tab. `racing`: whether plain decoding follows each run."""

    board: Board
    form: Form
    header: gr.HTML
    validity: gr.HTML
    run: gr.Button
    stop: gr.Button
    stops: gr.Number
    on_change: gr.Checkbox
    racing: gr.Checkbox
    rerun: gr.Button
    chosen: gr.State
    settled: gr.Button
    arrived: gr.Number
    presets: OwnPresets
    requests: AllRequests

    @property
    def outputs(self) -> list[Component]:
        return [self.header, *self.board.outputs]


def build_live(context: Context, chips: gr.HTML) -> Live:
    """One screen: the command row above the board. `chips`: the page's header."""
    requests: list[AllRequests] = []
    with gr.Column(elem_id="live-screen", elem_classes="sp-screen"):
        with gr.Row(elem_id="live-command", equal_height=True):
            command = build_command(context.preset, context.chats_by_default)
            run = gr.Button("▶ Run", variant="primary", elem_id="live-run", min_width=96)
            stop = gr.Button("■ Stop", variant="stop", elem_id="live-stop", min_width=96)
            drawer = gr.Button("⚙ Settings", elem_id="live-drawer", min_width=96)
            copy = gr.Button("Copy link", elem_id="live-copy", min_width=84)
        wrong = notice("live-validity")
        board = build_board(
            context,
            "live",
            position_sentence(Frame()),
            lambda: requests.append(build_all_requests(context)),
        )
    close, settings = _build_drawer(context, command)
    for button in (drawer, close):
        button.click(None, None, None, js=DRAWER)
    copy.click(None, None, None, js="() => { window.specscopeLink?.copy('live-copy'); }")
    hidden: dict[str, Any] = {
        # The number of clicks on Stop, which the browser counts.
        "stops": gr.Number(0, precision=0, visible=False),
        # The preset chosen last; once a field is edited, the menu shows "own settings" instead.
        "chosen": gr.State(context.preset),
        # The browser clicks this hidden button when no field changes any more.
        "settled": gr.Button("Check", elem_id="live-settled", elem_classes="sp-unseen"),
        # Whether the form shows all values that were sent to it: set by the handler of `settled`,
        # read by the browser.
        "arrived": gr.Number(1, precision=0, visible=False),
    }
    return Live(
        board=board,
        header=chips,
        validity=wrong,
        run=run,
        stop=stop,
        requests=requests[0],
        **settings,
        **hidden,
    )


def _build_drawer(context: Context, command: Command) -> tuple[gr.Button, dict[str, Any]]:
    with gr.Column(elem_id="live-settings", elem_classes="sp-drawer"):
        close = gr.Button("Close ✕", size="sm", elem_id="live-drawer-close")
        on_change, rerun = build_rerun()
        racing = gr.Checkbox(
            context.race,
            label="Race plain decoding after each run",
            info="The same request without drafts: answers how much faster, and whether the text "
            "is the same.",
            elem_id="live-racing",
        )
        models = (context.drafter_names, context.preset, context.chat, context.chats_by_default)
        form = build_settings(command, *models, own=context.user_drafters)
        presets = build_own_presets()
        keys = gr.Button("Keys (press ?)", size="sm", elem_id="live-keys")
        keys.click(None, None, None, js="() => { window.specscopeKeys(); }")
    return close, {
        "form": form,
        "on_change": on_change,
        "racing": racing,
        "rerun": rerun,
        "presets": presets,
    }
