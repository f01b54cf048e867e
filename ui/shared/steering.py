"""Moves through the run that a board shows: stepping, playing, selecting.

Handlers as plain functions of (board, session, ...), then wiring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from ui.run.hindsight import measure_regret
from ui.run.player import Pace
from ui.server.session import TabSession, play
from ui.shared.board import Board, Values
from ui.shared.event_options import EACH
from ui.shared.playback import play_mode

__all__ = ["move", "set_pace", "play_on", "select_node", "told_again", "wire_board"]


def move(board: Board, session: TabSession, name: str) -> Values:
    """One click on a button of the playback bar."""

    def work() -> None:
        player = session.player
        if player is None:
            return
        moves: dict[str, Callable[[], None]] = {
            "step-back": lambda: player.step(-1),
            "step": lambda: player.step(1),
            "round-previous": lambda: player.select_next(-1),
            "round-next": lambda: player.select_next(1),
            "follow": player.follow,
            "pause": lambda: player.set_pace(Pace("step", player.pace.rounds_per_second)),
        }
        moves[name]()

    return board.once(session, work)


def select_node(board: Board, session: TabSession, data: Any) -> Values:
    """A round, and perhaps a node, was clicked in a picture; `data` comes from the browser."""

    def work() -> None:
        number, node = data.get("round"), data.get("node")
        if session.player is not None and isinstance(number, int):
            session.player.select(number, node if isinstance(node, int) else None)

    return board.once(session, work)


def play_on(
    board: Board, session: TabSession, mode: str, rate: float, rewind: bool
) -> Iterator[Values]:
    """Play on (from `step`, in slow motion), or go to the start, where `step` waits for the first
    step."""

    def frames() -> Iterator[object]:
        pace = Pace(play_mode(mode, rewind), rate)
        if session.player is None:
            yield None
            return
        session.player.set_pace(pace)
        if rewind:
            session.player.rewind()
        yield from play(session)

    return board.stream(session, frames())


def told_again(board: Board, session: TabSession) -> Any:
    """The notice again while the log is paused; a playing run updates it with its next frame."""
    player = session.player
    if player is not None and not player.resting and player.pace.mode != "step":
        return gr.skip()
    return board.current_notice(session)


def set_pace(board: Board, session: TabSession, mode: str, rate: float) -> Iterator[Values]:
    """The speed was changed: a run that stands still plays on, unless the mode is `step`."""

    def frames() -> Iterator[object]:
        pace, player = Pace(mode, rate), session.player
        resting = player is None or player.resting
        if player is not None:
            player.set_pace(pace)
        if player is not None and resting and not player.resting:
            yield from play(session)
        elif resting:
            yield None

    drawn = False
    for values in board.stream(session, frames()):
        drawn = True
        yield values
    if not drawn:
        # The playing generator shows it too: our frame might arrive after its last one.
        yield [gr.skip() for _ in board.outputs]


# -- wiring --


def wire_board(board: Board) -> None:
    """Connect the playback bar and every picture's selection."""
    quick: dict[str, Any] = {
        "outputs": [*board.outputs, *board.places],
        **EACH,
    }
    for name in ("step-back", "step", "round-previous", "round-next", "follow", "pause"):
        board.buttons[name].click(_button_handler(board, name), **quick)
    board.notice.tick(_tick_handler(board), **{**quick, "outputs": board.notice})
    for picture in board.pictures.values():
        picture.select(_select_handler(board), **{**quick, "outputs": board.outputs})
    stream = {**quick, "queue": True, "concurrency_limit": None}
    routing = board.pictures["routing"]
    routing.submit(_regret_handler(board), **{**stream, "outputs": board.outputs})
    pace_inputs = [board.speed, board.rate]
    and_speed = {**stream, "outputs": [*board.outputs, *board.places, board.speed]}
    board.buttons["play"].click(_play_handler(board, False), pace_inputs, **and_speed)
    board.buttons["rewind"].click(_play_handler(board, True), pace_inputs, **and_speed)
    board.speed.input(_pace_handler(board), pace_inputs, **stream)
    board.rate.release(_rate_handler(board), pace_inputs, **stream)


def _button_handler(board: Board, name: str) -> Callable[..., list[Any]]:
    def press(request: gr.Request) -> list[Any]:
        session = board.session(request)
        return [*move(board, session, name), *board.place(session)]

    return press


def _tick_handler(board: Board) -> Callable[..., Any]:
    def tick(request: gr.Request) -> Any:
        return told_again(board, board.session(request))

    return tick


def _select_handler(board: Board) -> Callable[..., Values]:
    def select(request: gr.Request, event: gr.EventData) -> Values:
        return select_node(board, board.session(request), event._data or {})

    return select


def _regret_handler(board: Board) -> Callable[..., Iterator[Values]]:
    def count(request: gr.Request) -> Iterator[Values]:
        session = board.session(request)
        yield from board.stream(session, measure_regret(board.context.hub, session, ""))

    return count


def _play_handler(board: Board, rewind: bool) -> Callable[..., Iterator[list[Any]]]:
    def press(mode: str, rate: float, request: gr.Request) -> Iterator[list[Any]]:
        session = board.session(request)
        # Told once, with the first frame: from then on the choice is the visitor's again.
        speed: Any = play_mode(mode, rewind) if session.player is not None else gr.skip()
        for values in play_on(board, session, mode, rate, rewind):
            yield [*values, *board.place(session), speed]
            speed = gr.skip()

    return press


def _pace_handler(board: Board) -> Callable[..., Iterator[list[Any]]]:
    def change(mode: str, rate: float, request: gr.Request) -> Iterator[list[Any]]:
        session = board.session(request)
        for values in set_pace(board, session, mode, rate):
            yield [*values, *board.place(session)]

    return change


def _rate_handler(board: Board) -> Callable[..., Iterator[list[Any]]]:
    def change(mode: str, rate: float, request: gr.Request) -> Iterator[list[Any]]:
        session = board.session(request)
        # Only the rate: whoever leaves its box by pressing "From the start" plays slowly by now,
        # whatever speed was chosen before.
        mode = session.player.pace.mode if session.player is not None else mode
        for values in set_pace(board, session, mode, rate):
            yield [*values, *board.place(session)]

    return change
