"""Wiring of the Sessions tab: which handler answers which event. No rule and no layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr

from ui.live.layout import Live
from ui.sessions.handlers import (
    again_handler,
    as_asker,
    choose_handler,
    delete_handler,
    export_handler,
    facts_and_study,
    list_handler,
    name_menus,
    stop_handler,
    studies_handler,
    study_press_handler,
)
from ui.sessions.layout import Sessions
from ui.sessions.live_runs import follow_opened
from ui.sessions.repeat import recorded_request
from ui.sessions.retention import about_run, keep_note, retention_view, set_retention
from ui.sessions.tab import no_comparison, toggle_comparing
from ui.sessions.two_runs_wiring import wire_two_runs
from ui.shared.event_options import EACH, LATEST, QUIET
from ui.shared.into_live import into_live
from ui.shared.steering import wire_board

__all__ = ["wire_sessions"]

INTO_SIGHT = """() => {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const options = { behavior: calm ? "auto" : "smooth", block: "start" };
  // What has just become visible is there with the next frame.
  requestAnimationFrame(() => {
    const pair = document.querySelector("#sessions-pair");
    const seen = pair && pair.offsetParent !== null;
    (seen ? pair : document.querySelector("#sessions-notice")).scrollIntoView(options);
  });
}"""
LIST_INTO_SIGHT = """() => document.querySelector("#sessions-said").scrollIntoView(
  { behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" })"""


def wire_sessions(
    sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab, live: Live, tabs: gr.Tabs
) -> None:
    """Connect the tab's components; the list is refreshed whenever the tab is opened."""
    wire_board(sessions.board)
    reread = _wire_list(sessions, visitor, tab)
    _wire_opening(sessions, visitor, tab, reread)
    _wire_opened(sessions, visitor, reread)
    _wire_again(sessions, visitor, reread)
    _wire_studies(sessions, visitor, tab)
    _wire_retention(sessions, visitor, tab)
    run_inputs = [visitor, sessions.opened]
    into_live(
        live,
        tabs,
        sessions.on.into_live.click,
        as_asker(sessions.board.context, recorded_request),
        run_inputs,
        sessions.on.about,
    )


def _wire_list(sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab) -> Callable[[Any], None]:
    """The list and its filters; returns a function that refreshes the list after an event."""
    filters, context = sessions.filters, sessions.board.context
    inputs = [visitor, sessions.opened, *filters.inputs]
    outputs = [sessions.runs, sessions.notice, filters.page]
    # One event for triggers of a kind: the last of them is answered last.
    again = [tab.select, sessions.refresh.click, sessions.notice.tick]
    changes = [one.change for one in filters.restarting_filters]
    kinds: list[tuple[list[Any], int | None]] = [
        (again, 0),
        ([sessions.older.click], 1),
        ([sessions.newer.click], -1),
        (changes, None),
    ]
    for triggers, turn in kinds:
        gr.on(triggers, list_handler(context, turn), inputs, outputs, **LATEST)
    for trigger in (tab.select, sessions.refresh.click):
        trigger(as_asker(context, name_menus), [visitor, *filters.names], filters.names, **LATEST)
    return lambda event: event.then(list_handler(context, 0), inputs, outputs, **LATEST)


def _wire_opening(
    sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab, reread: Callable[[Any], None]
) -> None:
    board, on, two_runs = sessions.board, sessions.on, sessions.two_runs
    pair = [*two_runs.outputs, sessions.comparing, on.compare, sessions.choose]
    opened = sessions.runs.select(
        choose_handler(sessions),
        [visitor, sessions.comparing],
        [*sessions.opened_outputs, *on.about_outputs, *pair],
        **EACH,
    )
    reread(opened)
    opened.then(None, None, None, js=INTO_SIGHT)
    follow_opened(sessions, opened.then, visitor)
    choose = [sessions.comparing, on.compare, sessions.choose]
    on.compare.click(
        toggle_comparing, [sessions.opened, sessions.comparing], choose, **LATEST
    ).then(None, None, None, js=LIST_INTO_SIGHT)
    two_runs.close.click(lambda: gr.Column(visible=False), None, two_runs.section, **LATEST)
    wire_two_runs(two_runs, board.context)
    # The confirmation is for the open run: it is hidden when another is opened.
    on.delete.click(
        lambda run_id: gr.Button(visible=bool(run_id)), sessions.opened, on.sure, **LATEST
    )
    for trigger in (sessions.runs.select, tab.select):
        trigger(lambda: gr.Button(visible=False), None, on.sure, **LATEST)
    gone = on.sure.click(
        delete_handler(sessions),
        [visitor, sessions.opened],
        [*sessions.opened_outputs, on.sure],
        **LATEST,
    )
    reread(gone)
    gone.then(
        as_asker(board.context, about_run), [visitor, sessions.opened], on.about_outputs, **LATEST
    )
    none: list[Any] = [two_runs.section, sessions.comparing, on.compare, sessions.choose]
    gone.then(no_comparison, None, none, **LATEST)
    names = sessions.filters.names
    gone.then(as_asker(board.context, name_menus), [visitor, *names], names, **LATEST)


def _wire_opened(
    sessions: Sessions, visitor: gr.BrowserState, reread: Callable[[Any], None]
) -> None:
    on, context = sessions.on, sessions.board.context
    run_inputs = [visitor, sessions.opened]
    note_saved = on.keep_note.click(
        as_asker(context, keep_note), [*run_inputs, on.note], on.about, **LATEST
    )
    reread(note_saved)
    # `once`: a click while the file is being written is dropped.
    for name, button in on.exports.items():
        button.click(
            export_handler(context, name),
            run_inputs,
            [on.saved, on.about],
            **QUIET,
            trigger_mode="once",
            concurrency_limit=None,
        )


def _wire_again(
    sessions: Sessions, visitor: gr.BrowserState, reread: Callable[[Any], None]
) -> None:
    board, on = sessions.board, sessions.on
    # `once`: a second click while the run goes on is dropped, and starts no other.
    click = on.again.click(
        again_handler(sessions),
        [visitor, sessions.opened],
        sessions.opened_outputs,
        **QUIET,
        trigger_mode="once",
        concurrency_limit=None,
    )
    reread(click)
    click.then(
        as_asker(board.context, about_run), [visitor, sessions.opened], on.about_outputs, **LATEST
    )
    on.stop.click(stop_handler(sessions), None, [*board.outputs, *board.places], **LATEST)


def _wire_studies(sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab) -> None:
    """The list of studies; ui/shared/into_study.py opens one of them."""
    part, board = sessions.studies, sessions.board
    for trigger in (tab.select, sessions.refresh.click, part.section.expand):
        trigger(studies_handler(sessions), [visitor], part.outputs, **LATEST)
    press = part.rows.select(study_press_handler(sessions), [visitor], part.outputs, **EACH)
    # The open run's study may have been deleted. Its note may be being typed, so it is not updated.
    opened, on = [visitor, sessions.opened], sessions.on
    press.then(as_asker(board.context, facts_and_study), opened, [on.about, on.study], **LATEST)


def _wire_retention(sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab) -> None:
    retention, context = sessions.retention, sessions.board.context
    outputs = [retention.section, retention.keep, retention.logged]
    tab.select(
        as_asker(context, retention_view),
        [visitor, retention.keep, retention.logged],
        outputs,
        **LATEST,
    )
    for button, sure in ((retention.ask, False), (retention.sure, True)):
        handler = as_asker(context, partial(set_retention, sure=sure))
        button.click(
            handler, [visitor, retention.keep], [retention.notice, retention.sure], **LATEST
        )
