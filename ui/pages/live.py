"""The Live tab: a request, a run of it as it happens, and whether it told the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr

from ui.checks import measure_baseline, prove, speed_key
from ui.messages import Line
from ui.pages.board import Values, wire_board
from ui.pages.form import (
    EXAMPLES,
    FOLLOWED,
    OWN,
    followed,
    preset_values,
    request_of,
    validity,
)
from ui.pages.live_layout import Live, build_live
from ui.pages.parts import header_value, notice_value
from ui.pages.presets import at_temperature, preset_menu, saved
from ui.pages.rerun import before_of, wire_changes
from ui.player import Pace, Player
from ui.session import Desk, play

__all__ = ["Live", "build_live", "wire_live"]

STOP_WAIT_S = 2.0

# A press of Stop overtakes a press of Run that still queues. So the browser counts the presses of
# Stop, and each press carries the count as its last value: a Run that brings a smaller one than the
# desk has seen was pressed before that Stop.
WITH_STOPS = "(...given) => [...given.slice(0, -1), window.specscopeStops || 0]"
ONE_MORE_STOP = "() => [(window.specscopeStops = (window.specscopeStops || 0) + 1)]"


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
    live: Live,
    desk: Desk,
    owner: str,
    pace: tuple[str, float],
    values: Sequence[Any],
    compare: bool = False,
    stops: int | None = None,
) -> Iterator[Values]:
    """Run the form's request: check it, queue it, play it until it rests.

    `compare` keeps the run before as a pale line. `stops`: how often Stop had been pressed when Run
    was; where the desk knows of more, the run ends as soon as it has begun.
    """
    context = live.board.context

    def frames() -> Iterator[object]:
        request = request_of(values)
        before = before_of(desk) if compare else None
        desk.cancel()
        player = Player(context.hub.start(request, owner), Pace(*pace))
        desk.look_at(player)
        desk.asked, desk.before = request, before
        if desk.baseline and desk.baseline.request != speed_key(request):
            desk.baseline = None
        # Only now: a Stop that comes later finds the player on the desk.
        if stops is not None and stops < desk.stops:
            desk.cancel()
        yield from play(desk)

    for drawn in live.board.stream(desk, frames()):
        yield shown(live, desk, drawn)


def changed(
    live: Live,
    desk: Desk,
    owner: str,
    pace: tuple[str, float],
    values: Sequence[Any],
    stops: int | None = None,
) -> Iterator[Values]:
    """A control was moved and "Run on change" is on: run, if that is another request.

    Settings that cannot run change nothing; the reason stands beside Run.
    """
    if not validity(values) and not _same(desk, values):
        yield from started(live, desk, owner, pace, values, True, stops)
    else:
        yield [gr.skip() for _ in live.outputs]


def _same(desk: Desk, values: Sequence[Any]) -> bool:
    prompt = values[0] or ""
    return bool(prompt.strip()) and desk.asked == request_of(values)


def stopped(live: Live, desk: Desk, stops: int = 0) -> Values:
    """Stop the engine for this desk, and the pictures where they are; full speed shows the end.

    `stops` counts the presses of Stop in this tab, this one included.
    """

    def work() -> None:
        # Before all else: a Run that was pressed earlier may come at any moment.
        desk.stops = max(desk.stops, stops)
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
    work = question(live.board.context.hub, desk, owner)
    for drawn in live.board.stream(desk, work):
        yield shown(live, desk, drawn)


def mended(live: Live, desk: Desk) -> Any:
    """The board's notice once the form has changed: what was refused before is another matter."""
    if not desk.trouble:
        return gr.skip()
    desk.trouble = ""
    return live.board.said(desk)


def checked(values: Sequence[Any]) -> list[Any]:
    """What the settings allow: the reason against Run, Run itself, the controls that follow."""
    reason = validity(values)
    lines = [Line("error", reason)] if reason else []
    return [notice_value(lines), gr.Button(interactive=not reason), *followed(values).values()]


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
    run_inputs = [visitor, live.on_change, board.speed, board.rate, *form.inputs, live.stops]
    live.run.click(_run_handler(live), run_inputs, js=WITH_STOPS, **stream)
    live.rerun.click(_rerun_handler(live), run_inputs, js=WITH_STOPS, **stream)
    live.measure.click(_ask_handler(live, measure_baseline), [visitor], **stream)
    live.prove.click(_ask_handler(live, prove), [visitor], **stream)
    # No `cancels`: a generator that is cut off may leave a frame on its way, which would then come
    # after the last one. Stopped, it ends by itself within a round and shows the end.
    live.stop.click(
        _stop_handler(live),
        [live.stops],
        outputs=live.outputs,
        js=ONE_MORE_STOP,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    _wire_form(live, own)
    blocks.load(
        preset_menu, own, live.form.preset, api_visibility="private", show_progress="hidden"
    )


def _wire_form(live: Live, own: gr.BrowserState) -> None:
    form = live.form
    quick: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "queue": False,
        "trigger_mode": "always_last",
    }
    menus = [live.validity, live.run, *(form.fields[name] for name in FOLLOWED)]
    answers = [*menus, live.board.notice]
    controls: tuple[Any, ...] = (*form.sampling.values(), *form.fields.values())
    temperature: Any = form.sampling["temperature"]
    for control in controls:
        if control is not temperature:
            control.change(_check_handler(live), form.inputs, answers, **quick)
    live.own_name.change(_check_handler(live), form.inputs, answers, **quick)
    form.prompt.change(_mend_handler(live), None, live.board.notice, **quick)
    for control in controls[len(form.sampling) :]:
        control.input(lambda: OWN, None, form.preset, **quick)
    fields = list(form.fields.values())
    preset_inputs = [form.preset, temperature, own]
    chosen = form.preset.input(_preset_handler(live), preset_inputs, fields, **quick)
    for button, (_, text) in zip(form.examples, EXAMPLES, strict=True):
        button.click(_constant(text), None, form.prompt, **quick)
    live.own_save.click(
        _save_handler,
        [live.own_name, own, *form.inputs],
        [own, form.preset, live.validity],
        **quick,
    )
    # A preset of ours may mean other fields at another temperature: those first, then the check.
    resolved = temperature.change(
        _temperature_handler(live), [form.preset, temperature, *fields], fields, **quick
    )
    resolved.then(_check_handler(live), form.inputs, answers, **quick)
    wire_changes(form, chosen)


def _run_handler(live: Live) -> Callable[..., Iterator[Values]]:
    def run(
        request: gr.Request, visitor: str, compare: bool, mode: str, rate: float, *values: Any
    ) -> Iterator[Values]:
        owner = live.board.context.access.key(request, visitor or "")
        desk, (*form, stops) = live.board.desk(request), values
        yield from started(live, desk, owner, (mode, rate), form, bool(compare), stops)

    return run


def _rerun_handler(live: Live) -> Callable[..., Iterator[Values]]:
    def rerun(
        request: gr.Request, visitor: str, on: bool, mode: str, rate: float, *values: Any
    ) -> Iterator[Values]:
        owner = live.board.context.access.key(request, visitor or "")
        desk, (*form, stops) = live.board.desk(request), values
        if on:
            yield from changed(live, desk, owner, (mode, rate), form, stops)

    return rerun


def _ask_handler(live: Live, question: Callable[..., Any]) -> Callable[..., Iterator[Values]]:
    def ask(visitor: str, request: gr.Request) -> Iterator[Values]:
        owner = live.board.context.access.key(request, visitor or "")
        yield from asked(live, live.board.desk(request), owner, question)

    return ask


def _stop_handler(live: Live) -> Callable[..., Values]:
    def stop(request: gr.Request, stops: int) -> Values:
        return stopped(live, live.board.desk(request), stops)

    return stop


def _check_handler(live: Live) -> Callable[..., list[Any]]:
    def check(request: gr.Request, *values: Any) -> list[Any]:
        return [*checked(values), mended(live, live.board.desk(request))]

    return check


def _mend_handler(live: Live) -> Callable[..., Any]:
    def mend(request: gr.Request) -> Any:
        return mended(live, live.board.desk(request))

    return mend


def _save_handler(name: str, own: dict[str, Any] | None, *values: Any) -> tuple[Any, ...]:
    return saved(name, own, values)


def _preset_handler(live: Live) -> Callable[..., list[Any]]:
    names = live.board.context.drafter_names

    def choose(name: str, temperature: float, own: dict[str, Any] | None) -> list[Any]:
        if name == OWN:
            return [gr.skip() for _ in live.form.fields]
        return preset_values(name, temperature or 0.0, names, own)

    return choose


def _temperature_handler(live: Live) -> Callable[..., list[Any]]:
    names = live.board.context.drafter_names

    def follow(name: str, temperature: float, *shown: Any) -> list[Any]:
        return at_temperature(name, temperature, names, shown) or [gr.skip() for _ in shown]

    return follow


def _constant(text: str) -> Callable[[], str]:
    return lambda: text
