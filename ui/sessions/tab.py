"""The Sessions tab: functions for the opened run and for a second run to compare with."""

from __future__ import annotations

from typing import Any

import gradio as gr

from core.errors import StoreError, UnknownRunError
from ui.learn.layout import Learn
from ui.live.layout import Live
from ui.run.baselines import baseline_of
from ui.run.hindsight import stored_regret
from ui.run.player import Pace, Player
from ui.run.proof import identical
from ui.server.session import TabSession, guard_once
from ui.server.under_way import source_of
from ui.sessions.history import CallerRights, allowed_run, check_ended
from ui.sessions.layout import CANCEL_LABEL, COMPARE_LABEL, Sessions, build_sessions
from ui.sessions.retention import about_run
from ui.sessions.two_runs import compare_runs
from ui.shared.board import Values
from ui.shared.parts import notice_value
from ui.words.messages import Line

__all__ = [
    "Sessions",
    "build_sessions",
    "choose_run",
    "toggle_comparing",
    "delete_run",
    "opened_run",
    "shows",
    "no_comparison",
]

ALREADY_DELETED = "This run is already deleted, in another tab perhaps: nothing was left to delete."
CHOOSE_SECOND = "Choose the second run: press another one in this list."


def opened_run(
    tab: Sessions | Live | Learn, session: TabSession, rights: CallerRights, run_id: str
) -> list[Any]:
    """Opens a run at its end, or at its last event so far. Returns the values of the tab's board
    and of its Stop button, and the run's id, which is empty if the run was refused."""
    board = tab.board

    def work() -> list[Any]:
        run = allowed_run(board.context, rights, run_id)
        player = Player(source_of(board.context, run), Pace("full"))
        # At full speed one `advance` moves to the last event so far.
        player.advance(0.0)
        session.look_at(player)
        # These come after `look_at`, which clears `regret` and `answer`.
        session.baseline = baseline_of(board.context.store, run)
        session.regret = stored_regret(run)
        if session.baseline is not None and session.baseline.same_text:
            session.answer = identical(player.frame().view)
        return [*board.values(session), *board.place(session), run_id]

    def refusal(message: str) -> list[Any]:
        return [*board.failure_values(session)(message), *(gr.skip() for _ in board.places), ""]

    return guard_once(work, refusal)


def shows(session: TabSession, run_id: str) -> bool:
    """Whether the session's board shows the run."""
    return session.player is not None and session.player.source.run_id == run_id


def delete_run(
    sessions: Sessions, session: TabSession, rights: CallerRights, run_id: str
) -> list[Any]:
    """Deletes the opened run and clears the board. Returns the values of the board and of its Stop
    button, the opened run's id, and the hidden button that confirms."""
    board = sessions.board

    def empty_values(values: Values) -> list[Any]:
        return [*values, *board.place(session), "", gr.Button(visible=False)]

    def work() -> list[Any]:
        if not run_id:
            raise StoreError("no run is opened: open one from the list first")
        try:
            check_ended(board.context, allowed_run(board.context, rights, run_id))
            board.context.store.delete(run_id)
        except UnknownRunError:
            if not shows(session, run_id):
                raise
            session.look_at(None)
            return empty_values(board.failure_values(session)(ALREADY_DELETED))
        session.look_at(None)
        return empty_values(board.values(session))

    def refusal(message: str) -> list[Any]:
        skips = [gr.skip() for _ in board.places]
        return [*board.failure_values(session)(message), *skips, run_id, gr.Button(visible=False)]

    return guard_once(work, refusal)


# -- a second run --


def toggle_comparing(run_id: str, comparing: str) -> list[Any]:
    """Answers a click on the button that compares; a second click cancels. Returns the value of
    `Sessions.comparing`, the button and the notice."""
    if not run_id or comparing:
        return ["", gr.Button(COMPARE_LABEL), notice_value([])]
    return [run_id, gr.Button(CANCEL_LABEL), notice_value([Line("info", CHOOSE_SECOND)])]


def choose_run(
    sessions: Sessions,
    tab_sessions: tuple[TabSession, TabSession, TabSession],
    rights: CallerRights,
    run_id: str,
    comparing: str,
) -> list[Any]:
    """Opens the run clicked in the list, or compares it with the run whose id is `comparing`.

    `tab_sessions`: the tab sessions of the board and of the two halves of a comparison. Returns the
    values of `Sessions.opened_outputs`, `OpenedRun.about_outputs` and `TwoRuns.outputs`, then
    updates of the components that `toggle_comparing` updates."""
    board, two_runs = sessions.board, sessions.two_runs
    if not comparing:
        opened = opened_run(sessions, tab_sessions[0], rights, run_id)
        closed = [gr.Column(visible=False), *(gr.skip() for _ in two_runs.outputs[1:])]
        about = about_run(board.context, rights, opened[-1])
        return [*opened, *about, *closed, gr.skip(), gr.skip(), gr.skip()]
    pair = compare_runs(two_runs, board.context, tab_sessions[1:], rights, (comparing, run_id))
    skips = [gr.skip() for _ in (*sessions.opened_outputs, *sessions.controls.about_outputs)]
    return [*skips, *pair, *no_comparison()[1:]]


def no_comparison() -> list[Any]:
    """Updates that hide the comparison and end the choice of a second run."""
    return [gr.Column(visible=False), "", gr.Button(COMPARE_LABEL), notice_value([])]
