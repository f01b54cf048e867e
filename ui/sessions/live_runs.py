"""Follows a run that was opened in Sessions until the run ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from ui.server.session import TabSession, play
from ui.sessions.handlers import list_handler
from ui.sessions.history import CallerRights, rights_of
from ui.sessions.layout import Sessions
from ui.sessions.retention import about_run
from ui.shared.event_options import LATEST, QUIET

__all__ = ["follow_opened", "follow_run"]


def follow_run(
    sessions: Sessions, session: TabSession, rights: CallerRights, run_id: str
) -> Iterator[list[Any]]:
    """Yields the values of the board and of its Stop button while the run is under way, then also
    the facts about the run. Changes nothing if the board shows another run or is paused."""
    board, about_outputs = sessions.board, sessions.controls.about_outputs
    player = session.player
    no_change = [gr.skip() for _ in (*board.outputs, *board.places, *about_outputs)]
    # `source.is_done` is not asked: a short run that has ended since it was opened is still played.
    if player is None or player.source.run_id != run_id or player.is_paused:
        yield no_change
        return
    for values in board.stream(session, play(session)):
        yield [*values, *board.place(session), *(gr.skip() for _ in about_outputs)]
    # The board shows the end already; the facts still say that the run is under way.
    if session.player is player and player.source.is_done:
        # Not `no_change`: Gradio would overwrite values of the last frame that are not drawn yet.
        shown = [*board.values(session), *board.place(session)]
        yield [*shown, *about_run(board.context, rights, run_id)]


def follow_opened(sessions: Sessions, opened: Callable[..., Any], visitor: gr.BrowserState) -> None:
    """Follows a run after the trigger `opened`, then refreshes the list."""
    board, filters = sessions.board, sessions.filters

    def follow(request: gr.Request, visitor: str, run_id: str) -> Iterator[list[Any]]:
        rights = rights_of(board.context, request, visitor)
        yield from follow_run(sessions, board.session(request), rights, run_id)

    event = opened(
        follow,
        [visitor, sessions.opened_id],
        [*board.outputs, *board.places, *sessions.controls.about_outputs],
        **QUIET,
        concurrency_limit=None,
    )
    inputs = [visitor, sessions.opened_id, *filters.inputs]
    outputs = [sessions.runs, sessions.notice, filters.page]
    event.then(list_handler(board.context, 0), inputs, outputs, **LATEST)
