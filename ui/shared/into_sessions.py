"""Opens a run in Sessions from another tab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from ui.sessions.handlers import with_rights
from ui.sessions.history import rights_of
from ui.sessions.layout import Sessions
from ui.sessions.live_runs import follow_opened
from ui.sessions.retention import about_run
from ui.sessions.tab import opened_run
from ui.shared.event_options import QUICK

__all__ = ["into_sessions"]


def into_sessions(
    sessions: Sessions, tabs: gr.Tabs, trigger: Callable[..., Any], visitor: gr.BrowserState
) -> Any:
    """On `trigger` (a component's `select` with data {"run": id}) opens that run and the Sessions
    tab. If the visitor has no such run, the tab says so. Returns the event."""
    board = sessions.board
    quick: dict[str, Any] = {**QUICK, "trigger_mode": "once"}

    def open_run(request: gr.Request, event: gr.EventData, key: str) -> list[Any]:
        run_id = str((event._data or {}).get("run", ""))
        rights = rights_of(board.context, request, key)
        values = opened_run(sessions, board.session(request), rights, run_id)
        return [gr.Tabs(selected="sessions"), *values]

    opened = trigger(open_run, [visitor], [tabs, *sessions.opened_outputs], **quick)
    follow_opened(sessions, opened.then, visitor)
    inputs = [visitor, sessions.opened_id]
    return opened.then(
        with_rights(board.context, about_run), inputs, sessions.controls.about_outputs, **quick
    )
