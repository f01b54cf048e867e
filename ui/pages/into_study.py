"""From a run that is opened in Sessions to the comparison, grid or table that it was made for."""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr

from ui.pages.history import asker_of
from ui.pages.quiet import QUICK
from ui.pages.sessions_layout import Sessions
from ui.pages.study_handlers import StudyBoard, asked_for
from ui.studies import Studies

__all__ = ["into_study"]


def into_study(
    sessions: Sessions, tabs: gr.Tabs, boards: Sequence[StudyBoard], visitor: gr.BrowserState
) -> None:
    """The button of the opened run turns to the tab of its study, whose board then shows it. One
    that was deleted meanwhile leaves the visitor where they are: its button goes."""
    context = sessions.board.context
    board_of = {board.kind: board for board in boards}

    def turn(request: gr.Request, key: str, run_id: str) -> tuple[gr.Tabs, gr.Button]:
        mine = Studies(context, asker_of(context, request, key).owner, "")
        row = mine.of_run(run_id)
        if row is None:
            return gr.Tabs(), gr.Button(visible=False)
        board = board_of[row.kind]
        asked_for(board.desk(request), row.study_id)
        return gr.Tabs(selected=board.page), gr.Button()

    on = sessions.on
    on.study.click(turn, [visitor, sessions.opened], [tabs, on.study], **QUICK)
