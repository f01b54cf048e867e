"""Steering a board: stepping, playing and selecting in the run that it shows.

Handlers as plain functions of (board, desk, ...), then wiring.
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


def move(board: Board, desk: TabSession, name: str) -> Values:
    """One press of a button of the playback bar."""

    def work() -> None:
        player = desk.player
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

    return board.once(desk, work)


def select_node(board: Board, desk: TabSession, data: Any) -> Values:
    """A round, and perhaps a node, was clicked in a picture; `data` comes from the browser."""

    def work() -> None:
        number, node = data.get("round"), data.get("node")
        if desk.player is not None and isinstance(number, int):
            desk.player.select(number, node if isinstance(node, int) else None)

    return board.once(desk, work)


def play_on(
    board: Board, desk: TabSession, mode: str, rate: float, rewind: bool
) -> Iterator[Values]:
    """Play on, where what stood still at `step` moves in slow motion; or go to the start, where
    who steps waits for the first step."""

    def frames() -> Iterator[object]:
        pace = Pace(play_mode(mode, rewind), rate)
        if desk.player is None:
            yield None
            return
        desk.player.set_pace(pace)
        if rewind:
            desk.player.rewind()
        yield from play(desk)

    return board.stream(desk, frames())


def told_again(board: Board, desk: TabSession) -> Any:
    """The notice anew while the log is paused; a run that moves says it with its next frame."""
    player = desk.player
    if player is not None and not player.resting and player.pace.mode != "step":
        return gr.skip()
    return board.current_notice(desk)


def set_pace(board: Board, desk: TabSession, mode: str, rate: float) -> Iterator[Values]:
    """The speed was changed: a run that rests moves on unless it is stepped."""

    def frames() -> Iterator[object]:
        pace, player = Pace(mode, rate), desk.player
        resting = player is None or player.resting
        if player is not None:
            player.set_pace(pace)
        if player is not None and resting and not player.resting:
            yield from play(desk)
        elif resting:
            yield None

    drawn = False
    for values in board.stream(desk, frames()):
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
        desk = board.desk(request)
        return [*move(board, desk, name), *board.place(desk)]

    return press


def _tick_handler(board: Board) -> Callable[..., Any]:
    def tick(request: gr.Request) -> Any:
        return told_again(board, board.desk(request))

    return tick


def _select_handler(board: Board) -> Callable[..., Values]:
    def select(request: gr.Request, event: gr.EventData) -> Values:
        return select_node(board, board.desk(request), event._data or {})

    return select


def _regret_handler(board: Board) -> Callable[..., Iterator[Values]]:
    def count(request: gr.Request) -> Iterator[Values]:
        desk = board.desk(request)
        yield from board.stream(desk, measure_regret(board.context.hub, desk, ""))

    return count


def _play_handler(board: Board, rewind: bool) -> Callable[..., Iterator[list[Any]]]:
    def press(mode: str, rate: float, request: gr.Request) -> Iterator[list[Any]]:
        desk = board.desk(request)
        # Told once, with the first frame: from then on the choice is the visitor's again.
        speed: Any = play_mode(mode, rewind) if desk.player is not None else gr.skip()
        for values in play_on(board, desk, mode, rate, rewind):
            yield [*values, *board.place(desk), speed]
            speed = gr.skip()

    return press


def _pace_handler(board: Board) -> Callable[..., Iterator[list[Any]]]:
    def change(mode: str, rate: float, request: gr.Request) -> Iterator[list[Any]]:
        desk = board.desk(request)
        for values in set_pace(board, desk, mode, rate):
            yield [*values, *board.place(desk)]

    return change


def _rate_handler(board: Board) -> Callable[..., Iterator[list[Any]]]:
    def change(mode: str, rate: float, request: gr.Request) -> Iterator[list[Any]]:
        desk = board.desk(request)
        # Only the rate: whoever leaves its box by pressing "From the start" plays slowly by now,
        # whatever speed was chosen before.
        mode = desk.player.pace.mode if desk.player is not None else mode
        for values in set_pace(board, desk, mode, rate):
            yield [*values, *board.place(desk)]

    return change
