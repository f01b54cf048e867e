"""The list of studies in Sessions: comparisons, grids and studies of prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.server.session import TabSession, guard_once
from ui.shared.parts import notice, notice_value, study_list
from ui.shared.studies import Studies
from ui.shared.study_handlers import page_value
from ui.words.messages import Line

__all__ = ["PastStudies", "build_past_studies", "listed_studies", "press_list"]


@dataclass(frozen=True, slots=True)
class PastStudies:
    """The list and its notice."""

    section: gr.Accordion
    rows: gr.HTML
    notice: gr.HTML

    @property
    def outputs(self) -> list[Any]:
        return [self.rows, self.notice]


def build_past_studies() -> PastStudies:
    """The list and its notice in an accordion that is closed at first."""
    rows = study_list("sessions-studies")
    with gr.Accordion("Studies", open=False, elem_id="sessions-studies-box") as section:
        rows.render()  # type: ignore[no-untyped-call]
        message_box = notice("sessions-studies-said")
    return PastStudies(section, rows, message_box)


def listed_studies(session: TabSession, studies: Studies) -> list[Any]:
    """The list at the session's page, or at the last page if the list has fewer pages; and an empty
    notice."""

    def work() -> list[Any]:
        return [_list_value(session, studies), notice_value([])]

    with session.drawing:
        return guard_once(work, _refusal)


def press_list(session: TabSession, studies: Studies, event_data: dict[str, Any]) -> list[Any]:
    """Answers a click in the list: turns a page, deletes a study, or updates the list. `event_data`
    comes from the browser."""

    def work() -> list[Any]:
        if event_data.get("do") == "page" and event_data.get("by") in (1, -1):
            session.study.page = max(0, session.study.page + int(event_data["by"]))
        if event_data.get("do") == "open":
            # The handler that opens the study (into_study.py) sets the notice.
            return [_list_value(session, studies), gr.skip()]
        lines = []
        if event_data.get("do") == "delete":
            studies.delete(str(event_data.get("study", "")))
            lines = [Line("good", "Deleted; its runs stay in the list above.")]
        return [_list_value(session, studies), notice_value(lines)]

    with session.drawing:
        return guard_once(work, _refusal)


def _refusal(message: str) -> list[Any]:
    return [gr.skip(), notice_value([Line("error", message)])]


def _list_value(session: TabSession, studies: Studies) -> dict[str, Any]:
    return session.stamps.on("studies", page_value(session.study, studies, ""))
