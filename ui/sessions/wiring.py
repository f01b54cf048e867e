"""Wiring of the Sessions tab: which handler answers which event."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr

from ui.live.layout import Live
from ui.sessions.handlers import (
    again_handler,
    choose_handler,
    delete_handler,
    export_handler,
    facts_and_study,
    list_handler,
    name_menus,
    stop_handler,
    studies_handler,
    study_press_handler,
    with_rights,
)
from ui.sessions.layout import CANCEL_LABEL, Sessions
from ui.sessions.live_runs import follow_opened
from ui.sessions.repeat import recorded_request
from ui.sessions.retention import (
    about_run,
    keep_note,
    log_location,
    retention_view,
    set_retention,
)
from ui.sessions.tab import no_comparison, toggle_comparing
from ui.sessions.two_runs_wiring import wire_two_runs
from ui.shared.board_handlers import wire_board
from ui.shared.event_options import EACH, LATEST, QUIET
from ui.shared.into_live import into_live

__all__ = ["wire_sessions"]

INTO_SIGHT = """() => {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const options = { behavior: calm ? "auto" : "smooth", block: "start" };
  // What has just become visible is laid out in the next frame.
  requestAnimationFrame(() => {
    const pair = document.querySelector("#sessions-pair");
    const isVisible = pair && pair.offsetParent !== null;
    (isVisible ? pair : document.querySelector("#sessions-notice")).scrollIntoView(options);
  });
}"""
LIST_INTO_SIGHT = """() => document.querySelector("#sessions-said").scrollIntoView(
  { behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" })"""
CHOOSING = """(label) => {
  const choosing = label === "%s";
  document.documentElement.toggleAttribute("data-choosing", choosing);
  document.querySelector("#sessions-runs .sp-selected")?.toggleAttribute("inert", choosing);
}"""
"""JavaScript: while a second run is being chosen, the first run cannot be pressed in the list."""


def wire_sessions(
    sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab, live: Live, tabs: gr.Tabs
) -> None:
    """Connects the tab's components."""
    wire_board(sessions.board)
    refresh_list = _wire_list(sessions, visitor, tab)
    _wire_opening(sessions, visitor, tab, refresh_list)
    _wire_opened(sessions, visitor, refresh_list)
    _wire_again(sessions, visitor, refresh_list)
    _wire_studies(sessions, visitor, tab)
    _wire_retention(sessions, visitor, tab)
    run_inputs = [visitor, sessions.opened_id]
    into_live(
        live,
        tabs,
        sessions.controls.into_live.click,
        with_rights(sessions.board.context, recorded_request),
        run_inputs,
        sessions.controls.facts,
    )


def _wire_list(sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab) -> Callable[[Any], None]:
    """Returns a function that refreshes the list after an event."""
    filters, context = sessions.filters, sessions.board.context
    inputs = [visitor, sessions.opened_id, *filters.inputs]
    outputs = [sessions.runs, sessions.notice, filters.page]
    # All triggers of a kind share one event, so that the latest trigger is answered last.
    again = [tab.select, sessions.refresh.click, sessions.notice.tick]
    changes = [one.change for one in filters.restarting_filters]
    kinds: list[tuple[list[Any], int | None]] = [
        (again, 0),
        ([sessions.next_page.click], 1),
        ([sessions.previous_page.click], -1),
        (changes, None),
    ]
    for triggers, turn in kinds:
        gr.on(triggers, list_handler(context, turn), inputs, outputs, **LATEST)
    for trigger in (tab.select, sessions.refresh.click):
        trigger(
            with_rights(context, name_menus), [visitor, *filters.names], filters.names, **LATEST
        )
    return lambda event: event.then(list_handler(context, 0), inputs, outputs, **LATEST)


def _wire_opening(
    sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab, refresh_list: Callable[[Any], None]
) -> None:
    board, controls, two_runs = sessions.board, sessions.controls, sessions.two_runs
    choose = [sessions.comparing, controls.compare, sessions.choose_notice]
    pair = [*two_runs.outputs, *choose]
    opened = sessions.runs.select(
        choose_handler(sessions),
        [visitor, sessions.comparing],
        [*sessions.opened_outputs, *controls.about_outputs, *pair],
        **EACH,
    )
    refresh_list(opened)
    choosing = CHOOSING % CANCEL_LABEL
    opened.then(None, controls.compare, None, js=choosing)
    opened.then(None, None, None, js=INTO_SIGHT)
    follow_opened(sessions, opened.then, visitor)
    toggled = controls.compare.click(
        toggle_comparing, [sessions.opened_id, sessions.comparing], choose, **LATEST
    )
    toggled.then(None, controls.compare, None, js=choosing)
    toggled.then(None, None, None, js=LIST_INTO_SIGHT)
    two_runs.close.click(lambda: gr.Column(visible=False), None, two_runs.section, **LATEST)
    wire_two_runs(two_runs, board.context)
    # The confirmation is for the opened run only.
    confirm = controls.confirm_delete
    controls.delete.click(
        lambda run_id: gr.Button(visible=bool(run_id)), sessions.opened_id, confirm, **LATEST
    )
    for trigger in (sessions.runs.select, tab.select):
        trigger(lambda: gr.Button(visible=False), None, confirm, **LATEST)
    deletion = confirm.click(
        delete_handler(sessions),
        [visitor, sessions.opened_id],
        [*sessions.opened_outputs, confirm],
        **LATEST,
    )
    refresh_list(deletion)
    deletion.then(
        with_rights(board.context, about_run),
        [visitor, sessions.opened_id],
        controls.about_outputs,
        **LATEST,
    )
    comparison: list[Any] = [two_runs.section, *choose]
    cleared = deletion.then(no_comparison, None, comparison, **LATEST)
    cleared.then(None, controls.compare, None, js=choosing)
    names = sessions.filters.names
    deletion.then(with_rights(board.context, name_menus), [visitor, *names], names, **LATEST)


def _wire_opened(
    sessions: Sessions, visitor: gr.BrowserState, refresh_list: Callable[[Any], None]
) -> None:
    controls, context = sessions.controls, sessions.board.context
    run_inputs = [visitor, sessions.opened_id]
    note_saved = controls.keep_note.click(
        with_rights(context, keep_note), [*run_inputs, controls.note], controls.facts, **LATEST
    )
    refresh_list(note_saved)
    # `once`: a click while the file is being written is dropped.
    for name, button in controls.exports.items():
        button.click(
            export_handler(context, name),
            run_inputs,
            [controls.saved, controls.facts],
            **QUIET,
            trigger_mode="once",
            concurrency_limit=None,
        )


def _wire_again(
    sessions: Sessions, visitor: gr.BrowserState, refresh_list: Callable[[Any], None]
) -> None:
    board, controls = sessions.board, sessions.controls
    # `once`: a second click during the run starts no other run.
    click = controls.again.click(
        again_handler(sessions),
        [visitor, sessions.opened_id],
        sessions.opened_outputs,
        **QUIET,
        trigger_mode="once",
        concurrency_limit=None,
    )
    refresh_list(click)
    click.then(
        with_rights(board.context, about_run),
        [visitor, sessions.opened_id],
        controls.about_outputs,
        **LATEST,
    )
    controls.stop.click(stop_handler(sessions), None, [*board.outputs, *board.places], **LATEST)


def _wire_studies(sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab) -> None:
    part, board = sessions.studies, sessions.board
    for trigger in (tab.select, sessions.refresh.click, part.section.expand):
        trigger(studies_handler(sessions), [visitor], part.outputs, **LATEST)
    press = part.rows.select(study_press_handler(sessions), [visitor], part.outputs, **EACH)
    # The press may have deleted the open run's study. The note is not updated: the visitor may be
    # typing in it.
    run_inputs, controls = [visitor, sessions.opened_id], sessions.controls
    outputs = [controls.facts, controls.study]
    press.then(with_rights(board.context, facts_and_study), run_inputs, outputs, **LATEST)


def _wire_retention(sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab) -> None:
    retention, context = sessions.retention, sessions.board.context
    outputs = [retention.section, retention.keep, retention.logged]
    tab.select(
        with_rights(context, retention_view),
        [visitor, retention.keep, retention.logged],
        outputs,
        **LATEST,
    )
    tab.select(with_rights(context, log_location), [visitor], retention.location, **LATEST)
    for button, confirmed in ((retention.set_button, False), (retention.confirm, True)):
        handler = with_rights(context, partial(set_retention, confirmed=confirmed))
        button.click(
            handler, [visitor, retention.keep], [retention.notice, retention.confirm], **LATEST
        )
