"""The Live tab: enter a request, watch its run, check that its text is the LLM's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gradio as gr

from ui.form.form import FOLLOWED, OWN, fill_prompt, preset_values
from ui.form.own_presets import wire_own_presets
from ui.form.presets import fields_at_temperature, menu_name, preset_menu
from ui.live.handlers import (
    Press,
    check_form,
    clear_trouble,
    header_for_form,
    header_now,
    play_opening,
    run_on_change,
    run_question,
    start_run,
    stop_run,
    temperature_hint,
)
from ui.live.layout import Live, build_live
from ui.live.rerun import (
    AWAITED,
    after_settled_script,
    here_script,
    preset_chosen_script,
    settled_script,
    wire_changes,
)
from ui.run.charts import adapting_presets
from ui.run.plain_run import BLOCKS, race_plain
from ui.run.values import SIMPLER
from ui.server.session import TabSession
from ui.shared.all_requests import wire_all_requests
from ui.shared.board import Values
from ui.shared.board_handlers import wire_board
from ui.shared.event_options import EACH, LATEST, QUICK, QUIET
from ui.shared.pending_fields import PendingFields

__all__ = ["Live", "build_live", "wire_live"]

RUN = "() => { document.querySelector('#live-run').click(); }"
STOPS = "() => [window.specscopeStops('live-stop')]"
"""A click on Stop overtakes a click on Run that is still queued. So every click sends the number of
clicks on Stop. A Run with a smaller number than the session has seen was clicked before the latest
Stop."""


# -- wiring --


def wire_live(
    live: Live, visitor: gr.BrowserState, own: gr.BrowserState, blocks: gr.Blocks
) -> None:
    """Connects the tab's components; `blocks` signals when the page is opened."""
    board, form = live.board, live.form
    wire_board(board)
    wire_all_requests(live.requests, visitor)
    stream: dict[str, Any] = {
        "preprocess": False,  # as in `_wire_form`
        "outputs": live.outputs,
        **QUIET,
        "concurrency_limit": None,
        "trigger_mode": "multiple",
    }
    run_inputs = [visitor, live.on_change, live.racing, *form.inputs, live.stops]
    started = (
        live.run.click(
            _press_handler(live, start_run), run_inputs, js=_with_stops("run"), **stream
        ),
        live.rerun.click(
            _press_handler(live, run_on_change), run_inputs, js=_with_stops("rerun"), **stream
        ),
    )
    for event in started:
        event.then(_hint_handler(live), None, form.sampling["temperature"], **QUIET)
    board.pictures["figures"].submit(
        _race_handler(live), [visitor, live.stops], js=_with_stops("race"), **stream
    )
    # No `cancels`: a frame of a cancelled generator could arrive after the last frame. The stream
    # of a stopped run ends within a round.
    live.stop.click(
        _stop_handler(live),
        [live.stops],
        outputs=live.outputs,
        js=STOPS,
        **EACH,
    )
    _wire_form(live, own)
    live.header.tick(_header_handler(live), None, live.header, **LATEST)
    blocks.load(_opening_handler(live), **stream)
    # The notice polls while the run that `play_opening` shows is still being recorded.
    board.notice.tick(_opening_handler(live), **stream)
    blocks.load(preset_menu, own, live.form.preset, **QUICK)


def _run_settled_script() -> str:
    return f"async () => {{ await ({after_settled_script()})(); ({RUN})(); }}"


def _with_stops(button: str) -> str:
    return f"(...given) => [...given.slice(0, -1), window.specscopeStops('live-{button}')]"


def _wire_form(live: Live, own: gr.BrowserState) -> None:
    form = live.form
    # No preprocessing, because Gradio would refuse the name of a model that is no longer loaded.
    # core.config checks all values.
    quick: dict[str, Any] = {"preprocess": False, **LATEST}
    fields = list(form.fields.values())
    menus = [live.validity, live.run, *(form.fields[name] for name in FOLLOWED)]
    # "multiple": the browser repeats a check whose answer is lost.
    check_event = live.settled.click(
        _settled_handler(live),
        [live.chosen, form.preset, own, *form.inputs],
        [form.preset, *menus, live.board.notice, live.header, live.arrived],
        **{**quick, "trigger_mode": "multiple"},
    )
    check_event.then(
        None, live.arrived, None, js="(arrived) => { window.specscopeSettled?.finish(arrived); }"
    )
    temperature: Any = form.sampling["temperature"]
    settled, arrived = settled_script(), here_script()
    wire_changes(form)
    for control in (*form.sampling.values(), live.presets.name, *fields):
        if control is not temperature:
            # Not `input`, which a text box does not fire for pasted text. Without a handler, Gradio
            # drops text that is typed while an accordion opens.
            # Controls other than text boxes get EACH, since their `change` also runs the script of
            # `wire_changes`. After an event that LATEST defers, Gradio would run that script again.
            mode = LATEST if isinstance(control, gr.Textbox) else EACH
            control.change(_no_op, None, None, js=settled, **mode)  # type: ignore[attr-defined]
    form.prompt.change(_no_op, None, None, js=settled, **LATEST)
    preset_inputs = [form.preset, temperature, own, *fields]
    preset_event = form.preset.input(
        _preset_handler(live), preset_inputs, [live.chosen, *fields], js=AWAITED, **quick
    )
    preset_event.then(None, None, None, js=arrived)
    preset_event.then(None, None, None, js=preset_chosen_script())
    for trigger in (live.board.pictures["lengths"].submit, live.board.pictures["figures"].apply):
        offer_event = trigger(
            _offer_handler(live),
            [temperature, own, *fields],
            [form.preset, live.chosen, *fields],
            js=AWAITED,
            preprocess=False,
            **EACH,  # the handler reads which preset was pressed
        )
        settled_offer = offer_event.then(None, None, None, js=arrived)
        settled_offer.then(None, None, None, js=_run_settled_script())
    for index, button in enumerate(form.examples):
        fill = fill_prompt(index, lambda: live.board.context.chats_by_default)
        fill_event = button.click(fill, None, form.prompt, **quick)
        fill_event.then(None, None, None, js=RUN)
    wire_own_presets(live.presets, form, live.chosen, live.validity, own, **quick)
    # A built-in preset may have other values at another temperature. The form's check waits for
    # these values.
    temperature_event = temperature.change(
        _temperature_handler(live),
        [live.chosen, temperature, *fields],
        fields,
        js=AWAITED,
        **quick,
    )
    temperature_event.then(None, None, None, js=arrived)


def _press_handler(
    live: Live, work: Callable[[Live, TabSession, Press], Iterator[Values]]
) -> Callable[..., Iterator[Values]]:
    def press(
        request: gr.Request, visitor: str, compare: bool, race: bool, *values: Any
    ) -> Iterator[Values]:
        owner = live.board.context.access.key(request, visitor or "")
        *form, stops = values
        click = Press(owner, form, bool(compare), bool(race), stops)
        yield from work(live, live.board.session(request), click)

    return press


def _header_handler(live: Live) -> Callable[..., dict[str, Any]]:
    def header(request: gr.Request) -> dict[str, Any]:
        return header_now(live, live.board.session(request))

    return header


def _race_handler(live: Live) -> Callable[..., Iterator[Values]]:
    question = partial(race_plain, blocks=BLOCKS, log=False)

    def race(visitor: str, stops: int, request: gr.Request) -> Iterator[Values]:
        owner = live.board.context.access.key(request, visitor or "")
        yield from run_question(
            live, live.board.session(request), Press(owner, stops=stops), question
        )

    return race


def _stop_handler(live: Live) -> Callable[..., Values]:
    def stop(request: gr.Request, stops: int) -> Values:
        return stop_run(live, live.board.session(request), stops)

    return stop


def _opening_handler(live: Live) -> Callable[..., Iterator[Values]]:
    def play_or_skip(request: gr.Request) -> Iterator[Values]:
        has_begun = False
        # A link to a run shows that run instead.
        if "run" not in dict(request.query_params):
            for values in play_opening(live, live.board.session(request)):
                has_begun = True
                yield values
        if not has_begun:  # a stream without a value would empty the pictures
            yield _notice_while_recording(live, live.board.session(request))

    return play_or_skip


def _notice_while_recording(live: Live, session: TabSession) -> Values:
    values: Values = [gr.skip() for _ in live.outputs]
    if live.board.awaits_opening(session):
        # The notice makes the page poll while the opening run is recorded.
        values[live.outputs.index(live.board.notice)] = live.board.current_notice(session)
    return values


def _hint_handler(live: Live) -> Callable[..., Any]:
    def hint(request: gr.Request) -> Any:
        return temperature_hint(live, live.board.session(request))

    return hint


def _settled_handler(live: Live) -> Callable[..., list[Any]]:
    context, count = live.board.context, len(live.form.fields)

    def settle(
        request: gr.Request, chosen: str, shown: str, own: dict[str, Any] | None, *values: Any
    ) -> list[Any]:
        session = live.board.session(request)
        sent, name = session.sent, shown
        arrived = sent is None or sent.has_arrived(values[-count:], time.monotonic())
        if arrived:  # else some fields still have the values of the previous preset
            name = menu_name(chosen, shown, own, context.drafter_names, values[-count:])
            session.sent = None
        header = header_for_form(live, session, values) if arrived else gr.skip()
        updates = [*check_form(values), clear_trouble(live, session, values), header, int(arrived)]
        return [gr.skip() if name == shown else name, *updates]

    return settle


def _preset_handler(live: Live) -> Callable[..., list[Any]]:
    context = live.board.context

    def choose(
        request: gr.Request, name: str, temperature: float, own: dict[str, Any] | None, *shown: Any
    ) -> list[Any]:
        if name == OWN:
            return [name, *(gr.skip() for _ in shown)]
        values = preset_values(name, temperature or 0.0, context.drafter_names, own)
        return [name, *_send(live.board.session(request), name, shown, values)]

    return choose


def _offer_handler(live: Live) -> Callable[..., list[Any]]:
    choose = _preset_handler(live)

    def take(
        request: gr.Request,
        event: gr.EventData,
        temperature: float,
        own: dict[str, Any] | None,
        *shown: Any,
    ) -> list[Any]:
        name = (event._data or {}).get("preset")
        if name not in (*adapting_presets(), SIMPLER):
            return [gr.skip() for _ in (live.form.preset, live.chosen, *shown)]
        return [name, *choose(request, name, temperature, own, *shown)]

    return take


def _temperature_handler(live: Live) -> Callable[..., list[Any]]:
    context = live.board.context

    def follow(request: gr.Request, name: str, temperature: float, *shown: Any) -> list[Any]:
        values = send_at_temperature(
            live.board.session(request), context.drafter_names, name, temperature, shown
        )
        return [gr.skip() for _ in shown] if values is None else values

    return follow


def send_at_temperature(
    session: TabSession,
    names: Sequence[str],
    preset: str,
    temperature: float | None,
    shown: Sequence[Any],
) -> list[Any] | None:
    """Records and returns the values of `preset`'s fields at `temperature`; None if
    `fields_at_temperature` returns None.

    `preset`: the preset chosen last; `shown`: the fields' values in the browser. If the values sent
    last have not arrived yet, the preset of these values replaces `preset`, since these values will
    overwrite `shown`.
    """
    sent, fields = session.sent, shown
    if sent is not None and not sent.has_arrived(shown, time.monotonic()):
        preset, fields = sent.preset, sent.on_arrival(shown)
    values = fields_at_temperature(preset, temperature, names, fields)
    return None if values is None else _send(session, preset, shown, values)


def _send(
    session: TabSession, preset: str, values_now: Sequence[Any], values: list[Any]
) -> list[Any]:
    session.sent = PendingFields.of(preset, values_now, values, time.monotonic())
    return values


def _no_op() -> None:
    return None
