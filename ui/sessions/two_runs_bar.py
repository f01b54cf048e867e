"""The playback bar of two runs side by side. The shorter run waits at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.run.player import EVENTS_A_ROUND, Pace, Player
from ui.server.session import TabSession
from ui.sessions.history import parse_whole_number
from ui.shared.board_handlers import select_in_run
from ui.shared.slider import Slider

__all__ = [
    "Bar",
    "bar_players",
    "build_bar",
    "move_both",
    "place_of",
    "play_both",
    "scrub_both",
    "select_in_both",
    "set_rate_of_both",
]

FRAME_S = 1 / 10
"""Seconds from frame to frame. A frame has all pictures of both runs: more frames would queue up in
the browser."""
SLOWEST, FASTEST = 0.25, 100.0  # rounds per second
BUTTONS = (
    ("rewind", "|◂ Restart"),
    ("round-previous", "‹ Round"),
    ("step-back", "◂ Step"),
    ("play", "▶ Play"),
    ("pause", "❚❚ Pause"),
    ("step", "Step ▸"),
    ("round-next", "Round ›"),
    ("end", "Last round ▸|"),
)
"""Names and labels."""
MOVES = {
    "step-back": -1,
    "step": 1,
    "round-previous": -EVENTS_A_ROUND,
    "round-next": EVENTS_A_ROUND,
}
"""By how many stages a button moves both runs; a round has EVENTS_A_ROUND stages."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar: buttons, speed, and the round of both runs."""

    buttons: dict[str, gr.Button]
    rate: gr.Slider
    scrub: gr.Slider


def build_bar() -> Bar:
    """One row of buttons, one row of sliders."""
    with gr.Column(elem_classes="sp-playback", elem_id="pair-playback"):
        with gr.Row(elem_classes="sp-buttons"):
            gr.Markdown("**Both runs**", elem_classes="sp-say")
            buttons = {
                name: gr.Button(title, size="sm", min_width=40, elem_id=f"pair-{name}")
                for name, title in BUTTONS
            }
        with gr.Row(equal_height=True):
            scrub = Slider(
                0,
                1,
                value=0,
                step=1,
                label="Round of both runs",
                scale=3,
                min_width=260,
                elem_id="pair-scrub",
            )
            rate = Slider(
                SLOWEST,
                FASTEST,
                value=2,
                step=0.25,
                label="Rounds per second",
                scale=2,
                min_width=200,
                elem_id="pair-rate",
            )
    return Bar(buttons, rate, scrub)


# -- where both are --


def bar_players(tab_sessions: Sequence[TabSession]) -> list[Player]:
    """The players of both halves; none before two runs were chosen."""
    return [session.player for session in tab_sessions if session.player is not None]


def place_of(players: Sequence[Player]) -> Any:
    """The slider's update. Its value is the round that the pictures show, 0 before the first round.
    Its maximum is the number of complete rounds of the longer run, at least 1."""
    rounds = max((one.frame().known_rounds for one in players), default=0)
    shown_round = -(-_stage_of(players) // EVENTS_A_ROUND)
    return gr.update(maximum=max(1, rounds), value=min(max(1, rounds), shown_round))


def _stage_of(players: Sequence[Player]) -> int:
    """The greater of the runs' places, since the shorter run waits at its end."""
    return max((one.place for one in players), default=0)


def _seek(players: Sequence[Player], stage: int) -> None:
    for one in players:
        one.take_turn()  # ends `play_both`
        one.seek_stage(stage)


# -- handlers --


def move_both(tab_sessions: Sequence[TabSession], name: str) -> None:
    """Moves both runs after a click on the button `name`."""
    players = bar_players(tab_sessions)
    stage = _stage_of(players)
    if name in ("round-previous", "round-next"):
        # Within a round, `round-next` goes to its end and `round-previous` to its beginning.
        stage -= stage % EVENTS_A_ROUND if name == "round-next" else -(-stage % EVENTS_A_ROUND)
    # `known` counts events and is larger than the number of stages; `seek_stage` stops at the end.
    last = max((one.frame().known for one in players), default=0)
    if name in ("rewind", "end"):
        return _seek(players, 0 if name == "rewind" else last)
    # After a step back the later rounds stay shown.
    for one in players:
        one.take_turn()
        one.show_stage(stage + MOVES.get(name, 0))


def select_in_both(tab_sessions: Sequence[TabSession], which: int, data: Any) -> None:
    """Answers a click in a picture of run `which` (0 or 1), and moves the other run to the same
    stage. `data`: see `select_in_run` and `Clicks.in_order`."""
    players = bar_players(tab_sessions)
    for one in players:
        one.take_turn()  # ends `play_both`
    clicks = tab_sessions[0].clicks
    with clicks.drawing:
        for event_data in clicks.in_order({**data, "which": which}):
            _select_in_pair(players, event_data["which"], event_data)


def _select_in_pair(players: Sequence[Player], which: int, data: Any) -> None:
    for clicked in players[which : which + 1]:
        select_in_run(clicked, data)
    for other in [*players[:which], *players[which + 1 :]]:
        other.select_stage(_stage_of(players[which : which + 1]))


def scrub_both(tab_sessions: Sequence[TabSession], number: float | None) -> None:
    """Moves both runs to the end of round `number`; None (an empty box) has no effect."""
    if number is not None:
        _seek(bar_players(tab_sessions), EVENTS_A_ROUND * parse_whole_number("round", number))


def set_rate_of_both(tab_sessions: Sequence[TabSession], rate: float | None) -> None:
    """Sets the speed in rounds per second, from SLOWEST to FASTEST; None (an empty box) has no
    effect."""
    for one in bar_players(tab_sessions):
        if rate is not None:
            # In step mode the players do not move by themselves; `play_both` moves them.
            one.set_pace(Pace("step", min(FASTEST, max(SLOWEST, rate))))


def play_both(
    tab_sessions: Sequence[TabSession],
    rate: float | None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Plays both runs from their place, or from the beginning if both are at their ends. Yields at
    the start, and whenever the runs have moved."""
    players = bar_players(tab_sessions)
    if not players:
        yield None
        return
    set_rate_of_both(tab_sessions, rate)
    # If a round is selected, both may be `at_end` although their place is earlier.
    stage = _stage_of(players)
    if all(one.at_end for one in players) and stage >= max(one.stage for one in players):
        stage = 0
    _seek(players, stage)
    turns = [one.turn for one in players]
    # `credit`: the number of stages that are due and not shown yet, with a fraction.
    credit, before = 0.0, clock()
    yield None
    while not all(one.at_end for one in players):
        time.sleep(FRAME_S)
        # Ends if another pair was chosen, or if another click has taken the turn.
        if [session.player for session in tab_sessions] != players or [
            one.turn for one in players
        ] != turns:
            return
        now = clock()
        credit += (now - before) * players[0].pace.rounds_per_second * EVENTS_A_ROUND
        before = now
        if credit >= 1:
            stage, credit = stage + int(credit), credit - int(credit)
            for one in players:
                one.seek_stage(stage)
            yield None
