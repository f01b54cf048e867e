"""The rows of the Prompts tab as a CSV file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gradio as gr

from core.errors import ConfigError
from ui.prompts.past import read_past_runs
from ui.prompts.past_handlers import known_domains
from ui.prompts.rows import PromptLine, of_study, rows_plain
from ui.prompts.run_figures import RunFigures
from ui.server.context import Context
from ui.server.session import TabSession, guard_once
from ui.shared.event_options import LATEST
from ui.shared.parts import notice_value
from ui.shared.studies import Studies
from ui.shared.study_board import StudyBoard, studies_of
from ui.tune.rows import to_csv
from ui.words.messages import Line

__all__ = ["rows_csv", "wire_file"]

NOTHING = "There are no rows to save yet: measure prompts, open a study, or look at past runs."


def rows_csv(
    context: Context, figures: RunFigures, studies: Studies, session: TabSession
) -> dict[str, Any]:
    """The CSV file (`name`, `media_type`, `text`) with all rows of the session's table, including
    hidden rows. Raises ConfigError if there are no rows."""
    search, study_id = session.study.past, session.study.study_id
    lines: tuple[PromptLine, ...] = ()
    if search is not None:
        name = "past-runs"
        *_, result = read_past_runs(context, figures, known_domains(), search)
        lines = result.lines
    elif study_id:
        name = study_id
        study, results, _ = studies.open(study_id)
        lines = of_study(study, results)
    if not lines:
        raise ConfigError(NOTHING)
    text = to_csv([_flat(row) for row in rows_plain(lines)])
    return {"name": f"specscope-{name}-prompts.csv", "media_type": "text/csv", "text": text}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    parts: Iterable[Any] = (f"{one:.4g}" if isinstance(one, float) else one for one in value)
    return " ".join(map(str, parts))


def wire_file(
    board: StudyBoard,
    figures: RunFigures,
    visitor: gr.BrowserState,
    save: gr.Button,
    outputs: tuple[gr.HTML, gr.HTML],
) -> None:
    """A click on `save` sends the file to the first of `outputs`, or an error to the second."""
    save.click(_handler(board, figures), [visitor], list(outputs), **LATEST)


def _handler(board: StudyBoard, figures: RunFigures) -> Callable[..., list[Any]]:
    def write(request: gr.Request, key: str) -> list[Any]:
        session = board.session(request)

        def work() -> list[Any]:
            studies = studies_of(board.context, request, key)
            exported = rows_csv(board.context, figures, studies, session)
            # A new number each time, so that saving the same file again changes the value.
            number = session.stamps.on("file", {"again": object()})["n"]
            return [{**exported, "n": number}, gr.skip()]

        def refusal(message: str) -> list[Any]:
            return [gr.skip(), notice_value([Line("error", message)])]

        with session.drawing:
            return guard_once(work, refusal)

    return write
