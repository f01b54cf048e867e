"""Opens a study from Sessions in its own tab: the study of the opened run, or one of the list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from ui.server.session import guard_once
from ui.sessions.history import asker_of
from ui.sessions.layout import Sessions
from ui.shared.event_options import EACH, QUICK
from ui.shared.parts import notice_value
from ui.shared.studies import Studies
from ui.shared.study_handlers import StudyBoard, show_when_opened
from ui.words.messages import Line

__all__ = ["into_study"]


GONE = "The study that this run was made for was deleted."


def into_study(
    sessions: Sessions, tabs: gr.Tabs, boards: Sequence[StudyBoard], visitor: gr.BrowserState
) -> None:
    """The opened run's button opens its study's tab, whose board then shows it. If the study was
    deleted, a notice says so and the button disappears. The same for a study of the list."""
    context, on = sessions.board.context, sessions.on
    board_of = {board.kind: board for board in boards}

    def turn(request: gr.Request, key: str, run_id: str) -> list[Any]:
        def work() -> list[Any]:
            row = Studies(context, asker_of(context, request, key).owner, "").of_run(run_id)
            if row is None:
                return [gr.skip(), gr.Button(visible=False), notice_value([Line("warn", GONE)])]
            board = board_of[row.kind]
            show_when_opened(board.session(request), row.study_id)
            return [gr.Tabs(selected=board.page), gr.skip(), gr.skip()]

        def refusal(message: str) -> list[Any]:
            return [gr.skip(), gr.skip(), notice_value([Line("error", message)])]

        return guard_once(work, refusal)

    on.study.click(turn, [visitor, sessions.opened], [tabs, on.study, on.about], **QUICK)

    def choose(request: gr.Request, event: gr.EventData, key: str) -> list[Any]:
        event_data = event._data or {}

        def work() -> list[Any]:
            if event_data.get("do") != "open":
                return [gr.skip(), gr.skip()]
            mine = Studies(context, asker_of(context, request, key).owner, "")
            row = mine.line(str(event_data.get("study", "")))
            board = board_of[row.kind]
            show_when_opened(board.session(request), row.study_id)
            return [gr.Tabs(selected=board.page), gr.skip()]

        def refusal(message: str) -> list[Any]:
            return [gr.skip(), notice_value([Line("error", message)])]

        return guard_once(work, refusal)

    listed = sessions.studies
    listed.rows.select(choose, [visitor], [tabs, listed.said], **EACH)
