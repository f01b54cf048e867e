"""The board of a study in Compare, Tune and Prompts: its state, its buttons, and past studies.

A tab uses the board like this:

    board = build_study_board(context, "tune", "tune")    # inside the layout: the bar
    board.studies.render()                                # at the list's place
    drawn = StudyPictures((heat_map, table), draw)        # draw(opened): a value for each picture
    wire_study_board(board, visitor, tab, drawn)
    wire_begin(board, visitor, button.click, make, inputs, drawn)

`draw(opened)` gets an OpenedStudy, or None if no study is selected. `make(*inputs)` returns the
Study to measure (see `studies.new_study`) or raises ConfigError, which the board shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from lab.study import Study
from ui.server.context import Context
from ui.sessions.history import rights_of
from ui.shared.event_options import EACH, LATEST, QUICK
from ui.shared.parts import study_list, study_progress
from ui.shared.studies import Studies
from ui.shared.study_handlers import (
    StudyBoard,
    StudyPictures,
    begin_study,
    look_at_study,
    press_button,
)

__all__ = [
    "StudyPictures",
    "StudyBoard",
    "build_study_board",
    "studies_of",
    "wire_begin",
    "wire_study_board",
]


def build_study_board(context: Context, page: str, kind: str) -> StudyBoard:
    """Lays out the bar; the list appears where `board.studies.render()` is called."""
    progress, studies = study_progress(f"{page}-progress"), study_list(f"{page}-studies")
    return StudyBoard(context, page, kind, progress, studies)


def studies_of(context: Context, request: gr.Request, visitor: str) -> Studies:
    """The studies that the caller may see; the caller owns the studies that it begins."""
    owner = rights_of(context, request, visitor).owner
    return Studies(context, owner, context.access.key(request, visitor or ""))


# -- wiring --


def wire_study_board(
    board: StudyBoard, visitor: gr.BrowserState, tab: gr.Tab, drawn: StudyPictures
) -> None:
    """Connects the bar, the list and the tab's pictures, which show the board's study."""
    outputs = [board.progress, board.studies, *drawn.outputs]

    def look_handler(opening: bool) -> Callable[..., list[Any]]:
        def look(request: gr.Request, key: str) -> list[Any]:
            studies = studies_of(board.context, request, key)
            return look_at_study(board, board.session(request), studies, drawn, opening)

        return look

    def press(request: gr.Request, event: gr.EventData, key: str) -> list[Any]:
        studies = studies_of(board.context, request, key)
        return press_button(board, board.session(request), studies, drawn, event._data or {})

    tab.select(look_handler(opening=True), [visitor], outputs, **LATEST)
    board.progress.tick(look_handler(opening=False), [visitor], outputs, **LATEST)
    for part in (board.progress, board.studies):
        part.select(press, [visitor], outputs, **EACH)


def wire_begin(
    board: StudyBoard,
    visitor: gr.BrowserState,
    trigger: Callable[..., Any],
    make: Callable[..., Study],
    inputs: Sequence[Component],
    drawn: StudyPictures,
) -> Any:
    """On `trigger` (for example `button.click`) begins the study that `make(*inputs)` returns and
    shows it. Returns the event, for `.then`."""

    def begin(request: gr.Request, key: str, *values: Any) -> list[Any]:
        studies = studies_of(board.context, request, key)
        return begin_study(board, board.session(request), studies, drawn, lambda: make(*values))

    outputs = [board.progress, board.studies, *drawn.outputs]
    return trigger(begin, [visitor, *inputs], outputs, trigger_mode="once", **QUICK)
