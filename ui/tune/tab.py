"""The Tune tab: measures a grid of settings on prompts and shows the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from core.config import Request
from core.errors import ConfigError
from lab.grid import grid_of
from lab.order import Cell
from lab.study import Study
from lab.tables import Results
from lab.tuned import tuning_result
from ui.components import GridLength, GridPoints, GridSpeed, pack
from ui.form.form import empty_box_errors
from ui.run.explain import RECORD_TOP_K
from ui.server.context import Context
from ui.server.session import guard_once
from ui.shared.parts import download, grid_point, notice, notice_value
from ui.shared.studies import OpenedStudy, Studies
from ui.shared.study_board import StudyBoard, StudyPictures, build_study_board
from ui.shared.study_words import limit_words, machine_words
from ui.tune.form import GridRequest, TuneForm, build_tune_form, study_request
from ui.tune.rows import run_rows, summary_rows, to_csv
from ui.tune.values import grid_value, point_value, points_value
from ui.tune.words import found_lines, plan_lines
from ui.words.messages import Line
from ui.words.settings import PAGE_NODES

__all__ = [
    "Tune",
    "build_tune",
    "picture_values",
    "study_csv",
    "plan_values",
    "point_reset",
    "point_shown",
    "request_of_point",
]

NO_STUDY = "No grid is shown: start one, or open one from the list."


@dataclass(frozen=True, slots=True)
class Tune:
    """The tab's components."""

    board: StudyBoard
    form: TuneForm
    plan: gr.HTML
    start: gr.Button
    results_notice: gr.HTML
    speed: gr.HTML
    length: gr.HTML
    points: gr.HTML
    point: gr.HTML
    chosen_point: gr.State
    use: gr.Button
    use_notice: gr.HTML
    csv_points: gr.Button
    csv_runs: gr.Button
    file: gr.HTML

    @property
    def pictures(self) -> StudyPictures:
        pictures = (self.results_notice, self.speed, self.length, self.points)
        return StudyPictures(
            (*pictures, self.point, self.chosen_point, self.use),
            lambda opened: [*picture_values(opened), *point_reset(opened)],
        )


def build_tune(context: Context) -> Tune:
    """Lays out the form at the left and the results at the right."""
    with gr.Row(equal_height=False, elem_classes="sp-form-beside"):
        with gr.Column(elem_classes="sp-form-side", min_width=300):
            form = build_tune_form(context)
            plan = notice("tune-plan")
            start = gr.Button("Measure the grid", variant="primary", elem_id="tune-start")
        with gr.Column(elem_classes=["sp-form-results", "sp-results"], min_width=300):
            board = build_study_board(context, "tune", "tune")
            results_notice = notice("tune-found")
            with gr.Row(equal_height=False, elem_classes="sp-pair"):
                with gr.Column(min_width=340):
                    speed = GridSpeed(elem_id="tune-speed")
                with gr.Column(min_width=340):
                    length = GridLength(elem_id="tune-length")
            points = GridPoints(elem_id="tune-points")
            point = grid_point("tune-point")
            use_notice = notice("tune-used")
            with gr.Row(elem_classes=["sp-buttons", "sp-after-study"]):
                small: dict[str, Any] = {"size": "sm", "min_width": 90}
                use = gr.Button(
                    "Use this point in Live", elem_id="tune-use", interactive=False, **small
                )
                csv_points = gr.Button("CSV of all points", elem_id="tune-csv-points", **small)
                csv_runs = gr.Button("CSV of every run", elem_id="tune-csv-runs", **small)
            with gr.Accordion("Past grids", open=False, elem_id="tune-past"):
                board.studies.render()  # type: ignore[no-untyped-call]
    return Tune(
        board=board,
        form=form,
        plan=plan,
        start=start,
        results_notice=results_notice,
        speed=speed,
        length=length,
        points=points,
        point=point,
        chosen_point=gr.State({}),
        use=use,
        use_notice=use_notice,
        csv_points=csv_points,
        csv_runs=csv_runs,
        file=download("tune-file"),
    )


# -- handlers --


def grid_request_of(
    context: Context, own: dict[str, Any] | None, live: Sequence[Any], values: Sequence[Any]
) -> GridRequest:
    """The study from the values of Tune's form and of Live's form. Raises ConfigError."""
    with empty_box_errors():
        return study_request(context, own, live, values)


def plan_values(
    context: Context, own: dict[str, Any] | None, live: Sequence[Any], values: Sequence[Any]
) -> list[Any]:
    """The notice about the planned study, and the button `start`, inactive after an error."""

    def work() -> list[Any]:
        grid_request = grid_request_of(context, own, live, values)
        return [
            notice_value(plan_lines(grid_request.study, grid_request.refused)),
            gr.Button(interactive=True),
        ]

    def refusal(message: str) -> list[Any]:
        return [notice_value([Line("error", message)]), gr.Button(interactive=False)]

    return guard_once(work, refusal)


def picture_values(opened: OpenedStudy | None) -> list[Any]:
    """Values of the notice, both pictures and the table."""
    if opened is None:
        return [notice_value([]), {}, {}, {}]
    study, results, _ = opened
    tuned = tuning_result(study, results)
    return [
        notice_value([*found_lines(study, tuned, len(results)), _run_line(study, results)]),
        pack(grid_value(study, tuned, "speed")),
        pack(grid_value(study, tuned, "length")),
        pack(points_value(study, tuned)),
    ]


def _run_line(study: Study, results: Results) -> Line:
    varies_nodes = any(field == "max_tree_nodes" for field, _ in study.axes)
    budget = f"Live's specinfer has {PAGE_NODES} nodes." if varies_nodes else ""
    words = (limit_words(study), budget, machine_words(results))
    return Line("info", " ".join(filter(None, words)))


def point_reset(opened: OpenedStudy | None) -> list[Any]:
    """Updates of a point's panel, the chosen point, and the button that uses the point."""
    # With a study they stay, since the table's script then requests a point.
    if opened is not None:
        return [gr.skip(), gr.skip(), gr.skip()]
    return [gr.update(value={}), None, gr.Button(interactive=False)]


def point_shown(
    studies: Studies, event_data: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The panel's value for the point in `event_data`, and {"study": id, "point": number}. Both
    are empty without such a point."""

    def work() -> tuple[dict[str, Any], dict[str, Any]]:
        study, results, _ = studies.open(str(event_data.get("study", "")))
        point = event_data.get("point")
        if not isinstance(point, int):
            return {}, {}
        value = point_value(study, results, tuning_result(study, results), point)
        return value, {"study": study.study_id, "point": point} if value else {}

    # No message if the study was deleted meanwhile: the board reports the deletion.
    return guard_once(work, lambda message: ({}, {}))


def request_of_point(studies: Studies, chosen: dict[str, Any]) -> Request:
    """The chosen point as a request for Live: on the study's first prompt, with the seed of its
    first repeat. Raises ConfigError."""
    if not chosen:
        raise ConfigError.must_be(
            "point", "none", "one of the grid: choose it in a picture or the table"
        )
    study = studies.open(chosen["study"]).study
    name = grid_of(study).configurations[chosen["point"]].name
    request = study.request(Cell(name, study.prompts[0].id, 0))
    # The runs of a grid record no probabilities, but Live shows them.
    speculation = replace(request.speculation, record_top_k=RECORD_TOP_K)
    return replace(request, speculation=speculation)


def study_csv(studies: Studies, study_id: str, what: str) -> dict[str, Any]:
    """A CSV of the displayed study. `what`: `points` or `runs`."""
    if not study_id:
        raise ConfigError(NO_STUDY)
    study, results, _ = studies.open(study_id)
    tuned = tuning_result(study, results)
    rows = summary_rows(tuned) if what == "points" else run_rows(study, results, tuned)
    name = f"specscope-{study_id}-{what}.csv"
    return {"name": name, "media_type": "text/csv", "text": to_csv(rows)}
