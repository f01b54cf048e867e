"""The Sessions tab's layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.server.context import Context
from ui.sessions.exporting import FORMATS
from ui.sessions.history import NO_DRAFTER, ORDERS, SINCE, STATUSES
from ui.sessions.retention import THINNING
from ui.sessions.two_runs import TwoRuns, build_two_runs
from ui.shared.board import Board, build_board
from ui.shared.parts import download, notice, part
from ui.shared.past_studies import PastStudies, build_past_studies

__all__ = ["CANCEL_LABEL", "COMPARE_LABEL", "Filters", "OpenedRun", "Sessions", "build_sessions"]

COMPARE_LABEL = "Compare with…"
CANCEL_LABEL = "Cancel comparing"
WELCOME = (
    "Runs open here: press one in the list for its race, text, trees and figures, round by round."
)
TOGGLE_TOOLS = """() => {
  const button = document.querySelector("#sessions-more");
  const open = document.documentElement.toggleAttribute("data-run-tools");
  button.setAttribute("aria-expanded", open);
  button.setAttribute("aria-label", "More: save, note, delete");
}"""


@dataclass(frozen=True, slots=True)
class Filters:
    """The list's filters, order and page. The last five `inputs` are the fields of
    `history.RunFilters`, in their order."""

    text: gr.Textbox
    status: gr.Dropdown
    order: gr.Dropdown
    page: gr.Number
    llm: gr.Dropdown
    drafter: gr.Dropdown
    since: gr.Dropdown
    only_with_note: gr.Checkbox
    without_studies: gr.Checkbox

    @property
    def inputs(self) -> list[Component]:
        boxes = [self.only_with_note, self.without_studies]
        return [self.text, self.status, self.order, self.page, *self.names, self.since, *boxes]

    @property
    def names(self) -> list[Component]:
        return [self.llm, self.drafter]

    @property
    def restarting_filters(self) -> list[Any]:
        """Inputs whose change shows the first page of the list."""
        return [*(one for one in self.inputs if one is not self.page)]


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """The controls of the opened run."""

    section: gr.Column
    facts: gr.HTML
    into_live: gr.Button
    again: gr.Button
    stop: gr.Button
    compare: gr.Button
    study: gr.Button
    copy: gr.Button
    delete: gr.Button
    confirm_delete: gr.Button
    exports: dict[str, gr.Button]
    saved: gr.HTML
    note: gr.Textbox
    keep_note: gr.Button

    @property
    def about_outputs(self) -> list[Any]:
        """The outputs of `retention.about_run`."""
        return [self.section, self.facts, self.note, self.stop, self.study]


@dataclass(frozen=True, slots=True)
class Retention:
    """The setting of how many runs keep their full trees. `logged`: the setting that was last read
    from the log."""

    section: gr.Accordion
    keep: gr.Textbox
    set_button: gr.Button
    confirm: gr.Button
    notice: gr.HTML
    logged: gr.State
    location: gr.HTML


@dataclass(frozen=True, slots=True)
class Sessions:
    """The tab's components. `comparing`: the id of the run to compare with the next run pressed in
    the list, or empty."""

    board: Board
    filters: Filters
    choose_notice: gr.HTML
    runs: gr.HTML
    notice: gr.HTML
    next_page: gr.Button
    previous_page: gr.Button
    refresh: gr.Button
    studies: PastStudies
    retention: Retention
    controls: OpenedRun
    two_runs: TwoRuns
    opened_id: gr.State
    comparing: gr.State

    @property
    def opened_outputs(self) -> list[Component]:
        """The outputs of `tab.opened_run`."""
        return [*self.board.outputs, *self.board.places, self.opened_id]


def build_sessions(context: Context) -> Sessions:
    """The list at the left, the opened run at the right, and two compared runs."""
    with gr.Row(elem_id="sessions-screen", equal_height=False):
        with gr.Column(elem_id="sessions-side"):
            filters = _build_filters()
            choose_notice = notice("sessions-choose")
            runs = part("runs.js", "sessions-runs")
            with gr.Row(elem_classes="sp-buttons"):
                small: dict[str, Any] = {"size": "sm", "min_width": 60}
                previous_page = gr.Button("‹ Previous", elem_id="sessions-previous", **small)
                next_page = gr.Button("Next ›", elem_id="sessions-next", **small)
                refresh = gr.Button("Refresh", elem_id="sessions-refresh", **small)
            message_box = notice("sessions-said")
            studies = build_past_studies()
            retention = _build_retention()
        with gr.Column(elem_id="sessions-detail"):
            controls = _build_opened()
            board = build_board(context, "sessions", WELCOME)
    two_runs = build_two_runs()
    board = replace(board, stop=controls.stop)
    buttons = next_page, previous_page, refresh
    list_parts = (board, filters, choose_notice, runs, message_box, *buttons, studies, retention)
    opened_id, comparing = gr.State(""), gr.State("")
    return Sessions(*list_parts, controls, two_runs, opened_id, comparing)


def _build_filters() -> Filters:
    text = gr.Textbox(
        label="Search",
        placeholder="Search prompt, text or note",
        max_lines=1,
        elem_id="sessions-search",
    )
    with gr.Accordion("Filter and order", open=False, elem_id="sessions-filters"):
        with gr.Row():
            status = gr.Dropdown(["all", *STATUSES], value="all", label="Status", min_width=90)
            order = gr.Dropdown(list(ORDERS), value="newest", label="Order", min_width=90)
        with gr.Row():
            llm = gr.Dropdown(
                [("all", "")], value="", label="LLM", elem_id="sessions-llm", min_width=90
            )
            drafter = gr.Dropdown(
                [("all", ""), NO_DRAFTER],
                value="",
                label="Drafter",
                elem_id="sessions-drafter",
                min_width=90,
            )
        with gr.Row():
            since = gr.Dropdown(
                list(SINCE),
                value="any time",
                label="Since",
                elem_id="sessions-since",
                min_width=90,
            )
        with gr.Row():
            only_with_note = gr.Checkbox(
                False, label="Only with a note", elem_id="sessions-noted", min_width=90
            )
            without_studies = gr.Checkbox(
                False, label="Without runs of studies", elem_id="sessions-alone", min_width=90
            )
    page = gr.Number(value=1, precision=0, visible=False)
    boxes = only_with_note, without_studies
    return Filters(text, status, order, page, llm, drafter, since, *boxes)


def _build_opened() -> OpenedRun:
    small: dict[str, Any] = {"size": "sm", "min_width": 40}
    with gr.Column(visible=False, elem_id="sessions-opened", elem_classes="sp-opened") as section:
        with gr.Row(elem_classes="sp-buttons", elem_id="sessions-head"):
            facts = notice("sessions-about")
            into_live = gr.Button("Open in Live", elem_id="sessions-into-live", **small)
            again = gr.Button("Run again", elem_id="sessions-again", **small)
            compare = gr.Button(COMPARE_LABEL, elem_id="sessions-compare", **small)
            stop = gr.Button("Stop", interactive=False, elem_id="sessions-stop", **small)
            copy = gr.Button("Copy link", elem_id="sessions-copy", **small)
            more = gr.Button("⋯", elem_id="sessions-more", **small)
        with gr.Column(elem_id="sessions-tools"):
            with gr.Row(elem_classes="sp-buttons"):
                study = gr.Button(
                    "Open its study", visible=False, elem_id="sessions-study", **small
                )
                exports = {
                    name: gr.Button(title, elem_id=f"sessions-save-{name}", **small)
                    for name, title in FORMATS.items()
                }
                delete = gr.Button("Delete", elem_id="sessions-delete", **small)
                confirm_delete = gr.Button(
                    "Yes, delete it for ever",
                    variant="stop",
                    visible=False,
                    elem_id="sessions-sure",
                    **small,
                )
            with gr.Row(equal_height=True, elem_id="sessions-noting"):
                note = gr.Textbox(
                    label="Note",
                    placeholder="Note",
                    lines=1,
                    max_lines=8,
                    elem_id="sessions-note",
                    min_width=120,
                )
                keep_note = gr.Button("Save note", elem_id="sessions-keep-note", **small)
        saved = download("sessions-saved")
    more.click(None, None, None, js=TOGGLE_TOOLS)
    buttons = (into_live, again, stop, compare, study, copy, delete, confirm_delete)
    return OpenedRun(section, facts, *buttons, exports, saved, note, keep_note)


def _build_retention() -> Retention:
    with gr.Accordion(
        "What the run log keeps", open=False, visible=False, elem_id="sessions-retention"
    ) as section:
        with gr.Row(equal_height=False, elem_classes="sp-beside"):
            # An empty gr.Number would show 0 once the accordion is opened.
            keep = gr.Textbox(
                label="Keep full trees for the last … runs",
                info=THINNING,
                max_lines=1,
                scale=4,
                elem_id="sessions-keep",
                min_width=240,
            )
            set_button = gr.Button("Set", size="sm", elem_id="sessions-keep-set", min_width=80)
            confirm = gr.Button(
                "Yes, thin the older runs",
                size="sm",
                variant="stop",
                visible=False,
                elem_id="sessions-keep-sure",
                min_width=120,
            )
        message_box = notice("sessions-kept")
        location = notice("sessions-log")
    return Retention(section, keep, set_button, confirm, message_box, gr.State(""), location)
