"""The Live tab: a request, a run of it as it happens, and whether it told the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import PRESETS
from core.errors import ConfigError
from ui.checks import measure_baseline, prove, speed_key
from ui.context import Context
from ui.frame import Frame
from ui.messages import Line, standing
from ui.pages.board import Board, Values, build_board, wire_board
from ui.pages.form import (
    EXAMPLES,
    OWN,
    Form,
    build_form,
    build_prompt,
    choices_for,
    own_preset,
    preset_values,
    request_of,
    validity,
)
from ui.pages.parts import header_value, notice, notice_value
from ui.player import Pace, Player
from ui.session import Desk, play

__all__ = ["Live", "build_live", "wire_live"]

STOP_WAIT_S = 2.0
KEYS = (
    "Keys: <kbd>r</kbd> run, <kbd>s</kbd> stop, <kbd>.</kbd> step, <kbd>,</kbd> step back, "
    "<kbd>←</kbd> <kbd>→</kbd> rounds, <kbd>l</kbd> latest round"
)
MAX_OWN = 40


@dataclass(frozen=True, slots=True)
class Live:
    """The tab's components."""

    board: Board
    form: Form
    header: gr.HTML
    validity: gr.HTML
    run: gr.Button
    stop: gr.Button
    measure: gr.Button
    prove: gr.Button
    own_name: gr.Textbox
    own_save: gr.Button

    @property
    def outputs(self) -> list[Component]:
        return [self.header, *self.board.outputs]


# -- layout --


def build_live(context: Context, chips: gr.HTML) -> Live:
    """The form at the left, the board at the right; one below the other on a narrow screen.

    `chips` is the page's header, which shows the state of this tab's run.
    """
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320, elem_classes="sp-controls"):
            asked_for = build_prompt()
            with gr.Row():
                run = gr.Button("Run", variant="primary", elem_id="live-run", min_width=110)
                stop = gr.Button("Stop", variant="stop", elem_id="live-stop", min_width=110)
            with gr.Row():
                measure = gr.Button(
                    "Measure baseline", size="sm", elem_id="live-measure", min_width=110
                )
                proof = gr.Button("Prove it", size="sm", elem_id="live-prove", min_width=110)
            wrong = notice("live-validity")
            gr.Markdown(KEYS, elem_classes="sp-keys")
            form = build_form(asked_for, context.drafter_names, context.preset, context.chat)
            with gr.Accordion("A preset of your own", open=False):
                own_name = gr.Textbox(label="Name", max_lines=1, elem_id="own-name")
                own_save = gr.Button("Save these settings", size="sm", elem_id="own-save")
        with gr.Column(scale=4, min_width=360):
            board = build_board(context, "live", standing(Frame()))
    return Live(board, form, chips, wrong, run, stop, measure, proof, own_name, own_save)


# -- handlers --


def shown(live: Live, desk: Desk, values: Values) -> Values:
    """The board's values with the header's before them."""
    frame = desk.frame()
    state = "queued" if frame.place else "ready"
    if not frame.ended and frame.run_id and not frame.place:
        state = "running"
    elif desk.side is not None:
        state = "decoding plainly"
    return [header_value(live.board.context.models, state, frame.place), *values]


def started(
    live: Live, desk: Desk, owner: str, pace: tuple[str, float], values: Sequence[Any]
) -> Iterator[Values]:
    """Run the form's request: check it, queue it, play it until it rests."""
    context = live.board.context

    def frames() -> Iterator[object]:
        request = request_of(values)
        desk.cancel()
        player = Player(context.hub.start(request, owner), Pace(*pace))
        desk.look_at(player)
        if desk.baseline and desk.baseline.request != speed_key(request):
            desk.baseline = None
        yield from play(desk)

    for drawn in live.board.stream(desk, frames()):
        yield shown(live, desk, drawn)


def stopped(live: Live, desk: Desk) -> Values:
    """Stop the engine for this desk, and the pictures where they are; full speed shows the end."""

    def work() -> None:
        player = desk.player
        desk.cancel()
        if player is None:
            return
        player.source.wait_done(STOP_WAIT_S)
        if player.pace.mode == "full":
            player.to_end()
        else:
            player.set_pace(Pace("step", player.pace.rounds_per_second))

    return shown(live, desk, live.board.once(desk, work))


def asked(live: Live, desk: Desk, owner: str, question: Callable[..., Any]) -> Iterator[Values]:
    """`measure_baseline` or `prove` for the run that is looked at."""
    desk.trouble = ""
    work = question(live.board.context.hub, desk, owner)
    for drawn in live.board.stream(desk, work):
        yield shown(live, desk, drawn)


def checked(values: Sequence[Any]) -> list[Any]:
    """What the settings allow: the reason against Run, Run itself, the draft and verify menus."""
    reason = validity(values)
    lines = [Line("error", reason)] if reason else []
    return [notice_value(lines), gr.Button(interactive=not reason), *choices_for(values)]


def saved(
    name: str, own: dict[str, Any] | None, values: Sequence[Any]
) -> tuple[dict[str, Any], gr.Dropdown, dict[str, Any]]:
    """Keep the fields under a name in the visitor's browser."""
    kept = dict(own or {})
    name = (name or "").strip()[:60]
    try:
        if not name or name in (*PRESETS, OWN):
            raise ConfigError.of("preset name", name, "a name that is not taken and not empty")
        if len(kept) >= MAX_OWN and name not in kept:
            raise ConfigError.of("presets", len(kept), f"at most {MAX_OWN} of your own")
        kept[name] = own_preset(values)
    except ConfigError as error:
        return kept, gr.Dropdown(), notice_value([Line("error", str(error))])
    return (
        kept,
        preset_menu(kept, name),
        notice_value([Line("good", f"Saved in this browser as {name}.")]),
    )


# -- wiring --


def wire_live(
    live: Live, visitor: gr.BrowserState, own: gr.BrowserState, blocks: gr.Blocks
) -> None:
    """Connect everything of the tab; `blocks` tells when it is opened."""
    board, form = live.board, live.form
    wire_board(board)
    stream: dict[str, Any] = {
        "outputs": live.outputs,
        "show_progress": "hidden",
        "api_visibility": "private",
        "concurrency_limit": None,
        "trigger_mode": "multiple",
    }
    run_inputs = [visitor, board.speed, board.rate, *form.inputs]
    live.run.click(_run_handler(live), run_inputs, **stream)
    live.measure.click(_ask_handler(live, measure_baseline), [visitor], **stream)
    live.prove.click(_ask_handler(live, prove), [visitor], **stream)
    # No `cancels`: a generator that is cut off may leave a frame on its way, which would then come
    # after the last one. Stopped, it ends by itself within a round and shows the end.
    live.stop.click(
        _stop_handler(live),
        outputs=live.outputs,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    _wire_form(live, own)
    blocks.load(
        preset_menu, own, live.form.preset, api_visibility="private", show_progress="hidden"
    )


def preset_menu(own: dict[str, Any] | None, value: str | None = None) -> gr.Dropdown:
    """The presets there are: ours, the visitor's own, and whatever the fields say now."""
    choices = [*PRESETS, *(own or {}), OWN]
    return gr.Dropdown(choices=choices, value=value) if value else gr.Dropdown(choices=choices)


def _wire_form(live: Live, own: gr.BrowserState) -> None:
    form = live.form
    quick: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "queue": False,
        "trigger_mode": "always_last",
    }
    menus = [live.validity, live.run, form.fields["draft"], form.fields["verify"]]
    controls: tuple[Any, ...] = (*form.sampling.values(), *form.fields.values())
    for control in controls:
        control.change(_check_handler, form.inputs, menus, **quick)
    for control in controls[len(form.sampling) :]:
        control.input(lambda: OWN, None, form.preset, **quick)
    fields = list(form.fields.values())
    preset_inputs = [form.preset, form.sampling["temperature"], own]
    form.preset.input(_preset_handler(live), preset_inputs, fields, **quick)
    for button, (_, text) in zip(form.examples, EXAMPLES, strict=True):
        button.click(_constant(text), None, form.prompt, **quick)
    live.own_save.click(
        _save_handler,
        [live.own_name, own, *form.inputs],
        [own, form.preset, live.validity],
        **quick,
    )


def _run_handler(live: Live) -> Callable[..., Iterator[Values]]:
    def run(
        request: gr.Request, visitor: str, mode: str, rate: float, *values: Any
    ) -> Iterator[Values]:
        owner = live.board.context.access.key(request, visitor or "")
        yield from started(live, live.board.desk(request), owner, (mode, rate), values)

    return run


def _ask_handler(live: Live, question: Callable[..., Any]) -> Callable[..., Iterator[Values]]:
    def ask(visitor: str, request: gr.Request) -> Iterator[Values]:
        owner = live.board.context.access.key(request, visitor or "")
        yield from asked(live, live.board.desk(request), owner, question)

    return ask


def _stop_handler(live: Live) -> Callable[..., Values]:
    def stop(request: gr.Request) -> Values:
        return stopped(live, live.board.desk(request))

    return stop


def _check_handler(*values: Any) -> list[Any]:
    return checked(values)


def _save_handler(name: str, own: dict[str, Any] | None, *values: Any) -> tuple[Any, ...]:
    return saved(name, own, values)


def _preset_handler(live: Live) -> Callable[..., list[Any]]:
    names = live.board.context.drafter_names

    def choose(name: str, temperature: float, own: dict[str, Any] | None) -> list[Any]:
        if name == OWN:
            return [gr.skip() for _ in live.form.fields]
        return preset_values(name, temperature or 0.0, names, own)

    return choose


def _constant(text: str) -> Callable[[], str]:
    return lambda: text
