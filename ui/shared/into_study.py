"""Opens a study from Sessions in the study's own tab: the study of the opened run, or a study in
the list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from ui.server.session import guard_once
from ui.sessions.layout import Sessions
from ui.shared.event_options import EACH, QUICK
from ui.shared.parts import notice_value
from ui.shared.study_board import studies_of
from ui.shared.study_handlers import StudyBoard, show_when_opened
from ui.words.messages import Line

__all__ = ["into_study"]


GONE = "The study that this run was made for was deleted."


def into_study(
    sessions: Sessions, tabs: gr.Tabs, boards: Sequence[StudyBoard], visitor: gr.BrowserState
) -> None:
    """Connects the opened run's button and the list of studies. Both open the study's own tab,
    whose board then shows the study. If the run's study was deleted, a notice says so."""
    context, controls = sessions.board.context, sessions.controls
    board_of = {board.kind: board for board in boards}

    def open_tab(request: gr.Request, row: Any) -> gr.Tabs:
        board = board_of[row.kind]
        show_when_opened(board.session(request), row.study_id)
        return gr.Tabs(selected=board.page)

    def open_of_run(request: gr.Request, key: str, run_id: str) -> list[Any]:
        def work() -> list[Any]:
            row = studies_of(context, request, key).of_run(run_id)
            if row is None:
                return [gr.skip(), gr.Button(visible=False), notice_value([Line("warn", GONE)])]
            return [open_tab(request, row), gr.skip(), gr.skip()]

        return guard_once(work, lambda words: [gr.skip(), gr.skip(), _error(words)])

    outputs = [tabs, controls.study, controls.facts]
    controls.study.click(open_of_run, [visitor, sessions.opened_id], outputs, **QUICK)

    def open_of_list(request: gr.Request, event: gr.EventData, key: str) -> list[Any]:
        event_data = event._data or {}

        def work() -> list[Any]:
            if event_data.get("do") != "open":
                return [gr.skip(), gr.skip()]
            study_id = str(event_data.get("study", ""))
            return [open_tab(request, studies_of(context, request, key).line(study_id)), gr.skip()]

        return guard_once(work, lambda words: [gr.skip(), _error(words)])

    listed = sessions.studies
    listed.rows.select(open_of_list, [visitor], [tabs, listed.notice], **EACH)


def _error(words: str) -> dict[str, Any]:
    return notice_value([Line("error", words)])
