"""Handlers of a board's events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from ui.run.hindsight import measure_regret
from ui.run.player import EVENTS_A_ROUND, Pace, Player
from ui.run.view import STAGES
from ui.server.session import TabSession, play
from ui.shared.board import Board, Values
from ui.shared.event_options import EACH

__all__ = [
    "move",
    "play_on",
    "refresh_notice",
    "select_in_run",
    "select_node",
    "set_pace",
    "wire_board",
]


def move(board: Board, session: TabSession, name: str) -> Values:
    """Answers a click on the scrubber's button `name`."""

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
    """Answers the click `data` in one of the board's pictures, then repeats later clicks that were
    answered before it."""

    def work() -> None:
        for event_data in session.clicks.in_order(data):
            if session.player is not None:
                select_in_run(session.player, event_data)

    return board.once(session, work)


def select_in_run(player: Player, data: Any) -> None:
    """Selects what was clicked in a picture: a round, perhaps with one of its stages, nodes or
    tokens; or a stage of the displayed round. `data` comes from the browser."""
    number, stage = data.get("round"), data.get("stage")
    if not isinstance(number, int) and stage not in STAGES:
        return
    stages = STAGES.index(stage) + 1 if stage in STAGES else EVENTS_A_ROUND
    if player.pace.mode == "slow":  # pauses at what was clicked
        player.set_pace(Pace("step", player.pace.rounds_per_second))
    round_number, node, token = (
        value if isinstance(value, int) else None
        for value in (number, data.get("node"), data.get("token"))
    )
    player.select(round_number, node, stages, token)


def play_on(board: Board, session: TabSession, rewind: bool) -> Iterator[Values]:
    """Plays in slow motion from the visitor's place; from the start if all events are shown and no
    round is selected, or if `rewind`. With `rewind` in step mode, stays paused at the start."""

    def frames() -> Iterator[object]:
        player, pace = session.player, session.pace
        if player is None:
            yield None
            return
        if rewind:
            player.set_pace(Pace("step" if pace.mode == "step" else "slow", pace.rounds_per_second))
            player.rewind()
        else:
            player.play_from_here(Pace("slow", pace.rounds_per_second))
        yield from play(session)

    return board.stream(session, frames())


def refresh_notice(board: Board, session: TabSession) -> Any:
    """Answers a poll of the notice with its present value. While a run plays, changes nothing,
    since the next frame contains the notice."""
    player = session.player
    if player is not None and not player.is_paused and player.pace.mode != "step":
        return gr.skip()
    return board.current_notice(session)


def set_pace(board: Board, session: TabSession, mode: str, rate: float | None) -> Iterator[Values]:
    """Sets the speed that was chosen, for this run and later runs. A paused run plays on, unless
    the mode is `step` or the run is at its end. `rate`: rounds per second, None to keep it."""

    def frames() -> Iterator[object]:
        pace = Pace(mode, session.pace.rounds_per_second if rate is None else rate)
        player, session.pace = session.player, pace
        was_paused = player is None or player.is_paused
        if player is not None:
            player.set_pace(pace)
        if player is not None and was_paused and not player.is_paused:
            yield from play(session)
        else:
            yield None

    return board.stream(session, frames())


# -- wiring --


def wire_board(board: Board) -> None:
    """Connects the events of the board's pictures, scrubber and notice."""

    def tick(request: gr.Request) -> Any:
        return refresh_notice(board, board.session(request))

    def select(request: gr.Request, event: gr.EventData) -> list[Any]:
        session, data = board.session(request), event._data or {}
        name = data.get("do")
        drawn = move(board, session, name) if name else select_node(board, session, data)
        return [*drawn, *board.place(session)]

    def stream_regret(request: gr.Request) -> Iterator[Values]:
        session = board.session(request)
        yield from board.stream(session, measure_regret(board.context.hub, session, ""))

    def play_or_pace(request: gr.Request, event: gr.EventData) -> Iterator[list[Any]]:
        session, data = board.session(request), event._data or {}
        if data.get("do") == "pace":
            frames = set_pace(board, session, data.get("mode", "full"), data.get("rate"))
        else:
            frames = play_on(board, session, data.get("do") == "rewind")
        for values in frames:
            yield [*values, *board.place(session)]

    outputs = [*board.outputs, *board.places]
    for picture in board.pictures.values():
        picture.select(select, outputs=outputs, **EACH)
    board.notice.tick(tick, outputs=board.notice, **EACH)
    # A stream goes through the queue, which EACH avoids.
    stream = {**EACH, "queue": True, "concurrency_limit": None}
    board.pictures["routing"].submit(stream_regret, outputs=board.outputs, **stream)
    board.pictures["scrubber"].submit(play_or_pace, outputs=outputs, **stream)
