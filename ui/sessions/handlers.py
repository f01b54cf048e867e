"""Event handlers of the Sessions tab."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from ui.server.context import Context
from ui.server.session import guard, guard_once
from ui.sessions.exporting import export_progress
from ui.sessions.history import (
    CallerRights,
    RunFilters,
    drafter_choices,
    list_values,
    llm_choices,
    menu,
    rights_of,
)
from ui.sessions.layout import Sessions
from ui.sessions.repeat import repeat_run, stop_again
from ui.sessions.retention import about_run
from ui.sessions.tab import choose_run, delete_run
from ui.shared.parts import notice_value
from ui.shared.past_studies import listed_studies, press_list
from ui.shared.study_board import studies_of
from ui.words.messages import Line

__all__ = [
    "again_handler",
    "with_rights",
    "choose_handler",
    "delete_handler",
    "export_handler",
    "facts_and_study",
    "list_handler",
    "name_menus",
    "stop_handler",
    "studies_handler",
    "study_press_handler",
]


def with_rights(context: Context, work: Callable[..., Any]) -> Callable[..., Any]:
    """The handler that returns `work(context, rights, *values)`; its first input is the visitor's
    key."""

    def handler(request: gr.Request, visitor: str, *values: Any) -> Any:
        return work(context, rights_of(context, request, visitor), *values)

    return handler


# -- the list --


def list_handler(context: Context, turn: int | None) -> Callable[..., list[Any]]:
    """The handler that shows the list `turn` pages after the present page, or at its first page if
    `turn` is None."""

    def show(context: Context, rights: CallerRights, opened: str, *values: Any) -> list[Any]:
        text, status, order, page, *further = values
        number = 1 if turn is None else (page or 1) + turn
        filters = RunFilters(*further)
        return list_values(context, rights, opened, text, status, order, number, filters)

    return with_rights(context, show)


def name_menus(context: Context, rights: CallerRights, llm: str, drafter: str) -> list[Any]:
    """Updates of the menus of LLMs and of drafters; no change if the log cannot be read."""

    def work() -> list[Any]:
        menus = ((llm_choices, llm), (drafter_choices, drafter))
        return [menu(choices_of(context, rights), chosen) for choices_of, chosen in menus]

    return guard_once(work, lambda _: [gr.skip(), gr.skip()])


def choose_handler(sessions: Sessions) -> Callable[..., Any]:
    board, context = sessions.board, sessions.board.context

    def choose(request: gr.Request, event: gr.EventData, visitor: str, comparing: str) -> Any:
        # `_data`: the object that the component's script passed to `trigger`.
        session, event_data = board.session(request), event._data or {}
        run_id = str(event_data.get("run", ""))
        one, two = sessions.two_runs.tab_sessions(context, request)
        rights = rights_of(context, request, visitor)
        return session.clicks.last(
            "run",
            event_data,
            lambda: choose_run(sessions, (session, one, two), rights, run_id, comparing),
        )

    return choose


# -- the opened run --


def facts_and_study(context: Context, rights: CallerRights, run_id: str) -> list[Any]:
    """Updates of the opened run's facts and of its study button."""
    _, facts, _, _, study = about_run(context, rights, run_id)
    return [facts, study]


def again_handler(sessions: Sessions) -> Callable[..., Iterator[list[Any]]]:
    context = sessions.board.context

    def run_again(request: gr.Request, visitor: str, run_id: str) -> Iterator[list[Any]]:
        rights, owner = rights_of(context, request, visitor), context.access.key(request, visitor)
        yield from repeat_run(sessions, sessions.board.session(request), rights, owner, run_id)

    return run_again


def stop_handler(sessions: Sessions) -> Callable[..., list[Any]]:
    def stop(request: gr.Request) -> list[Any]:
        session = sessions.board.session(request)
        return [*stop_again(sessions, session), *sessions.board.place(session)]

    return stop


def export_handler(context: Context, name: str) -> Callable[..., Iterator[list[Any]]]:
    def save(request: gr.Request, visitor: str, run_id: str) -> Iterator[list[Any]]:
        rights = rights_of(context, request, visitor)

        def work() -> Iterator[list[Any]]:
            for file, line in export_progress(context, rights, run_id, name):
                # Each press has a new `n`, so that the browser saves the same file again.
                stamp = time.time_ns() // 1_000_000
                yield [{**file, "n": stamp} if file else gr.skip(), notice_value([line])]

        yield from guard(work(), lambda words: [gr.skip(), notice_value([Line("error", words)])])

    return save


def delete_handler(sessions: Sessions) -> Callable[..., list[Any]]:
    board = sessions.board

    def delete(request: gr.Request, visitor: str, run_id: str) -> list[Any]:
        rights = rights_of(board.context, request, visitor)
        return delete_run(sessions, board.session(request), rights, run_id)

    return delete


# -- studies --


def studies_handler(sessions: Sessions) -> Callable[..., list[Any]]:
    board = sessions.board

    def show(request: gr.Request, visitor: str) -> list[Any]:
        return listed_studies(board.session(request), studies_of(board.context, request, visitor))

    return show


def study_press_handler(sessions: Sessions) -> Callable[..., list[Any]]:
    board = sessions.board

    def press(request: gr.Request, event: gr.EventData, visitor: str) -> list[Any]:
        studies = studies_of(board.context, request, visitor)
        return press_list(board.session(request), studies, event._data or {})

    return press
