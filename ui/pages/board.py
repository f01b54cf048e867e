"""The board: every picture of a run, its playback bar and its notice. Live and Sessions each have
one, and both draw frames that came through the same `reduce`.

Layout, then handlers as plain functions of (desk, ...), then wiring.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.components import (
    Figures,
    Inspector,
    Legend,
    Lengths,
    Proposals,
    Timeline,
    TokenStrip,
    TokenTree,
    pack,
)
from ui.context import Context
from ui.messages import Line, run_lines
from ui.pages.parts import log_line, notice, notice_value
from ui.pages.playback import build_playback, playing
from ui.player import Pace
from ui.session import Desk, guarded, guarded_once, play
from ui.settings import settings_line
from ui.values import PICTURES, names_value

__all__ = ["Board", "build_board", "wire_board"]

Values = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Board:
    """The components of one board; `page` names it in ids and desks.

    `welcome` is what it says before there is a run to look at.
    """

    page: str
    context: Context
    welcome: str
    notice: gr.HTML
    pictures: dict[str, gr.HTML]
    speed: gr.Radio
    rate: gr.Slider
    buttons: dict[str, gr.Button]
    scrub: gr.Slider | None

    @property
    def outputs(self) -> list[Component]:
        return [self.notice, *self.pictures.values()]

    def desk(self, request: gr.Request) -> Desk:
        """The desk of the tab that asks."""
        return self.context.desks.of(request.session_hash, self.page)

    def said(self, desk: Desk) -> dict[str, Any]:
        """What the notice says now."""
        with desk.drawing:
            return desk.stamps.on("notice", self._said(desk))

    def _said(self, desk: Desk) -> dict[str, Any]:
        frame = desk.frame()
        first, *rest = run_lines(frame, desk.baseline, desk.answer)
        if not frame.run_id:
            first = Line("info", self.welcome)
        # The box has a fixed height: what is short and new comes before what explains at length.
        log = log_line(self.context.store.status())
        now = [Line("info", desk.doing), Line("error", desk.trouble), log]
        past = self.scrub is not None  # in Live the settings stand in the form
        made = [Line("info", settings_line(frame.view) if past else "")]
        return notice_value([first, *now, *made, *rest], again=bool(log.text))

    def values(self, desk: Desk) -> Values:
        """What `outputs` show now."""
        with desk.drawing:
            said, frame = self.said(desk), desk.frame()
            pictures = desk.pictures.values(frame, desk.baseline, time.monotonic(), desk.before)
            packed = {name: pack(pictures[name]) for name in self.pictures}
            return [said, *(desk.stamps.on(name, value) for name, value in packed.items())]

    def failed(self, desk: Desk) -> Callable[[str], Values]:
        """What to show when a handler breaks."""

        def show(message: str) -> Values:
            desk.trouble = message
            return self.values(desk)

        return show

    def stream(self, desk: Desk, frames: Iterator[object]) -> Iterator[Values]:
        """The board's values at each of `frames`, errors told on the board."""
        desk.trouble = ""
        return guarded((self.values(desk) for _ in frames), self.failed(desk))

    def once(self, desk: Desk, work: Callable[[], None]) -> Values:
        """Do `work`, then show the board."""

        def worked() -> Values:
            with desk.drawing:
                desk.trouble = ""
                work()
                return self.values(desk)

        return guarded_once(worked, self.failed(desk))


# -- layout --


def build_board(context: Context, page: str, welcome: str, scrub: bool = False) -> Board:
    """Lay out notice, figures, text, playback and pictures, in reading order.

    `scrub` adds a slider over the rounds, for runs that are complete.
    """
    said = notice(f"{page}-notice", Line("info", welcome))
    figures = Figures(elem_id=f"{page}-figures")
    bar = build_playback(page, scrub)
    # Side by side on a projector, one below the other on a notebook.
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=620):
            strip = TokenStrip(elem_id=f"{page}-strip")
        with gr.Column(scale=1, min_width=620):
            tree = TokenTree(elem_id=f"{page}-tree")
    legend = Legend(pack(names_value(context.models)), elem_id=f"{page}-legend")
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=560):
            inspector = Inspector(elem_id=f"{page}-inspector")
        with gr.Column(scale=1, min_width=560):
            proposals = Proposals(elem_id=f"{page}-proposals")
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=360):
            lengths = Lengths(elem_id=f"{page}-lengths")
        with gr.Column(scale=1, min_width=360):
            timeline = Timeline(elem_id=f"{page}-timeline")
    made = {
        "legend": legend,
        "figures": figures,
        "strip": strip,
        "tree": tree,
        "proposals": proposals,
        "inspector": inspector,
        "lengths": lengths,
        "timeline": timeline,
    }
    pictures = {name: made[name] for name in PICTURES}
    return Board(page, context, welcome, said, pictures, *bar)


# -- handlers --


def moved(board: Board, desk: Desk, name: str) -> Values:
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
        }
        moves[name]()

    return board.once(desk, work)


def selected(board: Board, desk: Desk, data: Any) -> Values:
    """A round, and perhaps a node, was clicked in a picture; `data` comes from the browser."""

    def work() -> None:
        number, node = data.get("round"), data.get("node")
        if desk.player is not None and isinstance(number, int):
            desk.player.select(number, node if isinstance(node, int) else None)

    return board.once(desk, work)


def played(board: Board, desk: Desk, mode: str, rate: float, rewind: bool) -> Iterator[Values]:
    """Play on, or from the start: what stood still at `step` moves in slow motion."""

    def frames() -> Iterator[object]:
        pace = Pace(playing(mode, rewind), rate)
        if desk.player is None:
            yield None
            return
        desk.player.set_pace(pace)
        if rewind:
            desk.player.rewind()
        yield from play(desk)

    return board.stream(desk, frames())


def told_again(board: Board, desk: Desk) -> Any:
    """The notice anew while the log is paused; a run that moves says it with its next frame."""
    player = desk.player
    if player is not None and not player.resting and player.pace.mode != "step":
        return gr.skip()
    return board.said(desk)


def paced(board: Board, desk: Desk, mode: str, rate: float) -> Iterator[Values]:
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
        # Whoever plays shows it too: a frame of ours might come after the last one of theirs.
        yield [gr.skip() for _ in board.outputs]


# -- wiring --


def wire_board(board: Board) -> None:
    """Connect the playback bar and every picture's selection."""
    quick: dict[str, Any] = {
        "outputs": board.outputs,
        "show_progress": "hidden",
        "api_visibility": "private",
        "queue": False,
        "trigger_mode": "multiple",
    }
    for name in ("step-back", "step", "round-previous", "round-next", "follow"):
        board.buttons[name].click(_button_handler(board, name), **quick)
    board.notice.tick(_tick_handler(board), **{**quick, "outputs": board.notice})
    for picture in board.pictures.values():
        picture.select(_select_handler(board), **quick)
    stream = {**quick, "queue": True, "concurrency_limit": None}
    pace_inputs = [board.speed, board.rate]
    and_speed = {**stream, "outputs": [*board.outputs, board.speed]}
    board.buttons["play"].click(_play_handler(board, False), pace_inputs, **and_speed)
    board.buttons["rewind"].click(_play_handler(board, True), pace_inputs, **and_speed)
    board.speed.input(_pace_handler(board), pace_inputs, **stream)
    board.rate.release(_pace_handler(board), pace_inputs, **stream)


def _button_handler(board: Board, name: str) -> Callable[..., Values]:
    def press(request: gr.Request) -> Values:
        return moved(board, board.desk(request), name)

    return press


def _tick_handler(board: Board) -> Callable[..., Any]:
    def tick(request: gr.Request) -> Any:
        return told_again(board, board.desk(request))

    return tick


def _select_handler(board: Board) -> Callable[..., Values]:
    def select(request: gr.Request, event: gr.EventData) -> Values:
        return selected(board, board.desk(request), event._data or {})

    return select


def _play_handler(board: Board, rewind: bool) -> Callable[..., Iterator[list[Any]]]:
    def press(mode: str, rate: float, request: gr.Request) -> Iterator[list[Any]]:
        desk = board.desk(request)
        # Told once, with the first frame: from then on the choice is the visitor's again.
        speed: Any = playing(mode, rewind) if desk.player is not None else gr.skip()
        for values in played(board, desk, mode, rate, rewind):
            yield [*values, speed]
            speed = gr.skip()

    return press


def _pace_handler(board: Board) -> Callable[..., Iterator[Values]]:
    def change(mode: str, rate: float, request: gr.Request) -> Iterator[Values]:
        yield from paced(board, board.desk(request), mode, rate)

    return change
