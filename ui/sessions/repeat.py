"""Repeats a past run with its recorded seed, and compares the texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from core.config import Request
from core.errors import StoreError
from core.events import Event, ModelInfo, RunStarted
from ui.run.frame import Before
from ui.run.player import Pace, Player
from ui.run.proof import llm_of
from ui.run.same_text import same_text
from ui.run.view import reduce_all
from ui.server.context import Context
from ui.server.session import STOP_WAIT_S, TabSession, play
from ui.server.under_way import stop, under_way
from ui.sessions.history import CallerRights, allowed_run
from ui.sessions.layout import Sessions
from ui.shared.board import Values

__all__ = ["recorded_request", "repeat_run", "stop_again"]

RUN_NAMES = ("This run", "the one before")


def recorded_request(
    context: Context, rights: CallerRights, run_id: str, seed: bool = False
) -> Request:
    """The request of a past run; if `seed`, with the seed that the run used. Raises StoreError if
    the visitor has no such run, ConfigError for an invalid request."""
    if not run_id:
        raise StoreError("no run is opened: open one from the list first")
    run = allowed_run(context, rights, run_id)
    request = Request.from_plain(run.asked)
    if not seed:
        return request
    return replace(request, sampling=replace(request.sampling, seed=run.seed))


def repeat_run(
    sessions: Sessions, session: TabSession, rights: CallerRights, owner: str, run_id: str
) -> Iterator[list[Any]]:
    """Repeats the opened run on its board. Yields the values of the board and of its Stop button,
    and at the end the new run's id."""
    board, store = sessions.board, sessions.board.context.store

    def frames() -> Iterator[object]:
        request = recorded_request(board.context, rights, run_id, seed=True)
        if under_way(board.context, store.run(run_id)):
            raise StoreError("run is still running: it can be made again once it has ended")
        old_events = store.events(run_id)
        request = _with_recorded_tokens(request, old_events, board.context.models)
        player = Player(board.context.hub.start(request, owner), Pace("full"))
        session.look_at(player)
        session.baseline = None  # it was measured earlier, perhaps under a different load
        session.before = Before.of(reduce_all(old_events))
        session.doing = "Running again, with the seed that was recorded."
        yield from play(session)
        if session.player is player:
            session.doing = ""
            if events := player.source.events(0, player.source.count):
                session.answer = same_text(events, old_events, RUN_NAMES)
            yield None

    for values in board.stream(session, frames()):
        yield [*values, *board.place(session), gr.skip()]
    if session.player is not None and session.player.source.is_done:
        # The last frame's values are sent again: with `gr.skip()` in their place, Gradio could drop
        # the last frame before it is drawn.
        run_id = session.player.source.run_id
        yield [*board.values(session), *board.place(session), run_id]


def _with_recorded_tokens(
    request: Request, old_events: Sequence[Event], models: Sequence[ModelInfo]
) -> Request:
    """Keeps the old run's prompt tokens: a chat template that writes the time would change them."""
    started = old_events[0] if old_events else None
    if not isinstance(started, RunStarted):
        return request
    old, new = llm_of(started.models), llm_of(models)
    if old is None or new is None or not old.is_same(new):
        return request
    return replace(request, prompt_token_ids=tuple(started.prompt_token_ids))


def stop_again(sessions: Sessions, session: TabSession) -> Values:
    """Stop the run on the board; at full speed show its end, otherwise pause the player."""

    def work() -> None:
        player = session.player
        if player is None:
            return
        stop(player.source)
        player.source.wait_done(STOP_WAIT_S)
        if player.pace.mode == "full":
            player.to_end()
        else:
            player.set_pace(Pace("step", player.pace.rounds_per_second))

    return sessions.board.once(session, work)
