"""Wiring of the Tune tab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from core.config import Request
from lab.study import Study
from ui.live.layout import Live
from ui.server.context import Context
from ui.server.session import guard_once
from ui.sessions.layout import Sessions
from ui.shared.event_options import EACH, LATEST
from ui.shared.into_live import into_live
from ui.shared.into_sessions import into_sessions
from ui.shared.parts import notice_value
from ui.shared.prompt_source import wire_prompt_source
from ui.shared.study_board import studies_of, wire_begin, wire_study_board
from ui.tune.form import axis_shown, base_menu
from ui.tune.tab import Tune, grid_request_of, plan_values, point_shown, request_of_point, study_csv
from ui.words.messages import Line

__all__ = ["wire_tune"]


def wire_tune(
    tune: Tune,
    visitor: gr.BrowserState,
    own: gr.BrowserState,
    tab: gr.Tab,
    live: Live,
    tabs: gr.Tabs,
    sessions: Sessions,
) -> None:
    """Connects the tab's components. `own`: the visitor's own presets."""
    context = tune.board.context
    _wire_form(tune, own, tab, live)
    wire_study_board(tune.board, visitor, tab, tune.pictures)

    def make(own_presets: dict[str, Any] | None, *values: Any) -> Study:
        num_live = len(live.form.inputs)
        return grid_request_of(context, own_presets, values[:num_live], values[num_live:]).study

    inputs = [own, *live.form.inputs, *tune.form.inputs]
    wire_begin(tune.board, visitor, tune.start.click, make, inputs, tune.pictures)
    point_outputs = [tune.point, tune.chosen_point, tune.use]
    tune.points.select(_point_handler(tune), [visitor], point_outputs, **EACH)
    _wire_results(tune, visitor, live, tabs, sessions)


def _wire_form(tune: Tune, own: gr.BrowserState, tab: gr.Tab, live: Live) -> None:
    context, form = tune.board.context, tune.form
    wire_prompt_source(form.prompts)
    for axis in form.axes:
        # With `change`, the typed values stay if the visitor chooses the same field again.
        axis.field.change(_axis_handler(context), axis.field, [axis.typed, axis.picked], **LATEST)
    tab.select(base_menu, own, form.base, **LATEST)
    num_live = len(live.form.inputs)

    def plan(own_presets: dict[str, Any] | None, *values: Any) -> list[Any]:
        return plan_values(context, own_presets, values[:num_live], values[num_live:])

    inputs = [own, *live.form.inputs, *form.inputs]
    # All controls share one event, so that the answer to the last change comes last.
    changes = [control.change for control in form.inputs]  # type: ignore[attr-defined]
    gr.on([tab.select, *changes], plan, inputs, [tune.plan, tune.start], **LATEST)


def _wire_results(
    tune: Tune,
    visitor: gr.BrowserState,
    live: Live,
    tabs: gr.Tabs,
    sessions: Sessions,
) -> None:
    context = tune.board.context

    def use(request: gr.Request, key: str, chosen: dict[str, Any]) -> Request:
        return request_of_point(studies_of(context, request, key), chosen)

    into_live(live, tabs, tune.use.click, use, [visitor, tune.chosen_point], tune.use_notice)
    into_sessions(sessions, tabs, tune.point.select, visitor)
    for button, what in ((tune.csv_points, "points"), (tune.csv_runs, "runs")):
        outputs = [tune.file, tune.use_notice]
        button.click(_file_handler(tune, what), [visitor], outputs, **LATEST)


# -- handlers --


def _axis_handler(context: Context) -> Callable[[str], Any]:
    return lambda field: axis_shown(field, context.drafter_names)


def _point_handler(tune: Tune) -> Callable[..., Any]:
    board = tune.board

    def choose(request: gr.Request, event: gr.EventData, key: str) -> Any:
        session, event_data = board.session(request), event._data or {}

        def work() -> tuple[Any, Any, Any]:
            studies = studies_of(board.context, request, key)
            value, chosen = point_shown(studies, event_data)
            return session.stamps.on("point", value), chosen, gr.Button(interactive=bool(chosen))

        return session.clicks.last("point", event_data, work)

    return choose


def _file_handler(tune: Tune, what: str) -> Callable[..., Any]:
    board = tune.board

    def write(request: gr.Request, key: str) -> list[Any]:
        session = board.session(request)

        def work() -> list[Any]:
            studies = studies_of(board.context, request, key)
            # The number is new each time, so that saving the same file again changes the value.
            number = session.stamps.on("file", {"again": object()})["n"]
            return [
                {**study_csv(studies, session.study.study_id, what), "n": number},
                notice_value([]),
            ]

        return guard_once(work, lambda message: [gr.skip(), notice_value([Line("error", message)])])

    return write
