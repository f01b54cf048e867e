"""Wiring of two runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gradio as gr

from ui.server.context import Context
from ui.server.session import guard, guard_once
from ui.sessions.two_runs import TwoRuns, both
from ui.sessions.two_runs_bar import (
    move_both,
    play_both,
    scrub_both,
    select_in_both,
    set_rate_of_both,
)
from ui.shared.event_options import EACH, LATEST, QUIET

__all__ = ["wire_two_runs"]

NO_LIMIT: dict[str, Any] = {"concurrency_limit": None}  # several visitors may play at once
MARK_PLAYING = "(rate) => { document.documentElement.dataset.pairPlays = ''; return [rate]; }"
UNMARK_PLAYING = "() => { delete document.documentElement.dataset.pairPlays; }"


def wire_two_runs(two_runs: TwoRuns, context: Context) -> None:
    """Connects the bar and the pictures of both halves."""
    bar, outputs = two_runs.bar, two_runs.bar_outputs

    def scrub(request: gr.Request, number: float | None) -> list[Any]:
        tab_sessions = two_runs.tab_sessions(context, request)
        slider, *drawn = both(two_runs, tab_sessions, lambda: scrub_both(tab_sessions, number))
        # The visitor drags the slider: only a round after the end of both runs changes the slider.
        keeps_slider = number is None or number == slider.get("value")
        return [gr.skip() if keeps_slider else slider, *drawn]

    def set_rate(request: gr.Request, rate: float | None) -> None:
        tab_sessions = two_runs.tab_sessions(context, request)
        guard_once(lambda: set_rate_of_both(tab_sessions, rate), lambda _: None)

    def play(request: gr.Request, rate: float | None) -> Iterator[list[Any]]:
        tab_sessions = two_runs.tab_sessions(context, request)
        no_change = [gr.skip() for _ in outputs]
        frames = (two_runs.bar_values(tab_sessions) for _ in play_both(tab_sessions, rate))
        yield from guard(frames, lambda _: no_change)

    for which, half in enumerate(two_runs.halves):
        for picture in half.pictures.values():
            picture.select(_select_handler(two_runs, context, which), None, outputs, **EACH)
    for name, button in bar.buttons.items():
        if name != "play":
            button.click(_move_handler(two_runs, context, name), None, outputs, **EACH)
    bar.scrub.input(scrub, bar.scrub, outputs, **LATEST)
    bar.rate.release(set_rate, bar.rate, None, **LATEST)
    playing = bar.buttons["play"].click(
        play, bar.rate, outputs, js=MARK_PLAYING, **QUIET, **NO_LIMIT
    )
    playing.then(None, None, None, js=UNMARK_PLAYING)


def _select_handler(two_runs: TwoRuns, context: Context, which: int) -> Callable[..., list[Any]]:
    def select(request: gr.Request, event: gr.EventData) -> list[Any]:
        tab_sessions = two_runs.tab_sessions(context, request)
        work = partial(select_in_both, tab_sessions, which, event._data or {})
        return both(two_runs, tab_sessions, work)

    return select


def _move_handler(two_runs: TwoRuns, context: Context, name: str) -> Callable[..., list[Any]]:
    def move(request: gr.Request) -> list[Any]:
        tab_sessions = two_runs.tab_sessions(context, request)
        return both(two_runs, tab_sessions, lambda: move_both(tab_sessions, name))

    return move
