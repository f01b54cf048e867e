"""Wiring of two runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from ui.server.context import Context
from ui.server.session import guard, guard_once
from ui.sessions.two_runs import Half, TwoRuns, both, select_round
from ui.sessions.two_runs_bar import moved_both, paced_both, played_both, scrubbed_both
from ui.shared.event_options import EACH, LATEST, QUIET

__all__ = ["wire_beside"]


def wire_beside(beside: TwoRuns, context: Context) -> None:
    """The bar moves both halves; a click in one picture selects the round in all of its half."""
    for half in beside.halves:
        for picture in half.pictures.values():
            picture.select(
                _pick_handler(half, context),
                None,
                list(half.pictures.values()),
                **EACH,
            )
    bar = beside.bar
    for name, button in bar.buttons.items():
        if name != "play":
            press = _move_handler(beside, context, name)
            button.click(press, None, beside.moved_outputs, **EACH)
    bar.scrub.input(_scrub_handler(beside, context), bar.scrub, beside.moved_outputs, **LATEST)
    bar.rate.release(_rate_handler(beside, context), bar.rate, None, **LATEST)
    play = _play_handler(beside, context)
    bar.buttons["play"].click(play, bar.rate, beside.moved_outputs, **QUIET, concurrency_limit=None)


def _pick_handler(half: Half, context: Context) -> Callable[..., list[Any]]:
    def pick(request: gr.Request, event: gr.EventData) -> list[Any]:
        return select_round(half, half.session(context, request), event._data or {})

    return pick


def _move_handler(beside: TwoRuns, context: Context, name: str) -> Callable[..., list[Any]]:
    def move(request: gr.Request) -> list[Any]:
        tab_sessions = beside.tab_sessions(context, request)
        return both(beside, tab_sessions, lambda: moved_both(tab_sessions, name))

    return move


def _scrub_handler(beside: TwoRuns, context: Context) -> Callable[..., list[Any]]:
    def move(request: gr.Request, number: float | None) -> list[Any]:
        tab_sessions = beside.tab_sessions(context, request)
        place, *drawn = both(beside, tab_sessions, lambda: scrubbed_both(tab_sessions, number))
        # The slider is the visitor's hand: only a round that there is not is written over.
        unchanged = number is None or number == place.get("value")
        return [gr.skip() if unchanged else place, *drawn]

    return move


def _rate_handler(beside: TwoRuns, context: Context) -> Callable[..., None]:
    def change(request: gr.Request, rate: float | None) -> None:
        guard_once(lambda: paced_both(beside.tab_sessions(context, request), rate), lambda _: None)

    return change


def _play_handler(beside: TwoRuns, context: Context) -> Callable[..., Iterator[list[Any]]]:
    def press(request: gr.Request, rate: float | None) -> Iterator[list[Any]]:
        tab_sessions = beside.tab_sessions(context, request)
        quiet = [gr.skip() for _ in beside.moved_outputs]
        shown = (beside.moving_values(tab_sessions) for _ in played_both(tab_sessions, rate))
        yield from guard(shown, lambda _: quiet)

    return press
