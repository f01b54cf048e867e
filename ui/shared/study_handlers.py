"""The board of studies: its components and its handlers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.errors import UnknownStudyError
from lab.progress import Progress
from lab.study import Study
from ui.server.context import Context
from ui.server.session import TabSession, guard_once
from ui.shared.studies import STUDIES_A_PAGE, OpenedStudy, Studies
from ui.shared.study_place import StudyPlace
from ui.shared.study_words import progress_value, study_row_value

__all__ = [
    "StudyPictures",
    "StudyBoard",
    "show_when_opened",
    "past_study_values",
    "begin_study",
    "press_button",
    "look_at_study",
    "page_value",
    "turned_to_past",
]

PAUSE_FACTOR = 20
"""After a drawing of t seconds, a new count of measured runs causes no redraw for PAUSE_FACTOR x t
seconds, since drawing slows the engine."""
PAST_TITLE = "Past runs are on view"
GONE = "This study was deleted, in another tab perhaps."


@dataclass(frozen=True, slots=True)
class StudyBoard:
    """The components of one board. `page`: its name in element ids and in the keys of tab sessions.
    `kind`: the kind of its studies (lab.study)."""

    context: Context
    page: str
    kind: str
    progress: gr.HTML
    studies: gr.HTML

    def session(self, request: gr.Request) -> TabSession:
        """The session of the calling browser tab."""
        return self.context.tab_sessions.of(request.session_hash, self.page)


@dataclass(frozen=True, slots=True)
class StudyPictures:
    """A tab's own pictures, and a function that returns their values. Values that are plain dicts
    are stamped, so that a late answer does not replace a newer one."""

    outputs: tuple[Component, ...]
    draw: Callable[[OpenedStudy | None], Sequence[Any]]


def look_at_study(
    board: StudyBoard,
    session: TabSession,
    studies: Studies,
    drawn: StudyPictures,
    opening: bool = False,
) -> list[Any]:
    """The present values of board and pictures; the list and the pictures are skipped if nothing
    has changed. `opening`: whether the tab is being opened. Then the board shows the study that
    another tab chose, or the study of its kind that is being measured. Else the board keeps what it
    showed, and an empty board shows the newest study."""

    def work() -> None:
        if opening:
            session.trouble = ""
            session.study.drawn_state = ()
            _select_on_opening(board, session, studies)

    return _answer(board, session, studies, drawn, work, about="")


def begin_study(
    board: StudyBoard,
    session: TabSession,
    studies: Studies,
    drawn: StudyPictures,
    make: Callable[[], Study],
) -> list[Any]:
    """Begins the study that `make` returns and shows it."""

    def work() -> None:
        session.trouble = ""
        study = make()
        studies.begin(study)
        _select(session, study.study_id)

    return _answer(board, session, studies, drawn, work)


def press_button(
    board: StudyBoard,
    session: TabSession,
    studies: Studies,
    drawn: StudyPictures,
    event_data: dict[str, Any],
) -> list[Any]:
    """Answers a click on a button of the bar or the list; `event_data` comes from the browser."""
    study_id = str(event_data.get("study", ""))

    def delete() -> None:
        studies.delete(study_id)
        if session.study.study_id == study_id:
            _select(session, "")

    def turn_page() -> None:
        session.study.page = max(0, session.study.page + (1 if event_data.get("by") == 1 else -1))

    actions: dict[str, Callable[[], object]] = {
        "stop": lambda: studies.stop(study_id),
        "go": lambda: _go_on(studies, study_id),
        "show": lambda: _select(session, study_id),
        "open": lambda: _select(session, study_id),
        "delete": delete,
        "page": turn_page,
    }

    def work() -> None:
        session.trouble = ""
        session.study.drawn_state = ()
        actions.get(str(event_data.get("do")), lambda: None)()

    return _answer(board, session, studies, drawn, work, about=study_id or None)


def _go_on(studies: Studies, study_id: str) -> None:
    # No effect, and no error, if the study is running already.
    progress = studies.progress()
    if not (progress.measures(study_id) and progress.state != "stopping"):
        studies.resume(study_id)


def _answer(
    board: StudyBoard,
    session: TabSession,
    studies: Studies,
    drawn: StudyPictures,
    work: Callable[[], None],
    about: str | None = None,
) -> list[Any]:
    """Calls `work`, then returns the values of board and pictures. An error is shown in the bar;
    list and pictures stay. `about`: the value of `StudyPlace.trouble_study` after an error."""

    def refusal(message: str) -> list[Any]:
        session.trouble = message
        session.study.trouble_study = about
        session.study.trouble_state = _progress_key(about, studies.progress()) if about else ()
        no_change = [gr.skip() for _ in (board.studies, *drawn.outputs)]
        return [_bar(board, session, studies.progress(), message), *no_change]

    def work_and_show() -> list[Any]:
        work()
        return _values(board, session, studies, drawn)

    with session.drawing:
        return guard_once(work_and_show, refusal)


def _select_on_opening(board: StudyBoard, session: TabSession, studies: Studies) -> None:
    # A study that another tab chose has precedence over the study that is being measured.
    if session.study.chosen_elsewhere:
        session.study.chosen_elsewhere = False
        return
    progress = studies.progress()
    if progress.is_active and progress.kind == board.kind and progress.study_id:
        _select(session, progress.study_id)
    elif not session.study.study_id and not session.study.past:
        _select(session, studies.latest(board.kind))


def show_when_opened(session: TabSession, study_id: str) -> None:
    """Makes the session's board show this study when its tab is opened. Another tab calls this."""
    _select(session, study_id)
    session.study.chosen_elsewhere = True


def _select(session: TabSession, study_id: str) -> None:
    """`study_id`: "" for no study."""
    session.study.study_id, session.study.row, session.study.drawn_state = study_id, None, ()
    session.study.past = None


def past_study_values(session: TabSession, values: Sequence[Any]) -> list[Any]:
    """`values` of the pictures that show `session.study.past`, stamped like a study's values."""
    # The list has the stamp "0".
    return [_stamp(session, str(i), value) for i, value in enumerate(values, start=1)]


def _values(
    board: StudyBoard, session: TabSession, studies: Studies, drawn: StudyPictures
) -> list[Any]:
    # The progress is read before the study: a result in between is drawn by the next call.
    progress, place = studies.progress(), session.study
    if place.trouble_study is not None and place.trouble_state != _progress_key(
        place.trouble_study, progress
    ):
        session.trouble, place.trouble_study = "", None
    ids = _listed_ids(board, session, studies)
    state = (place.study_id, place.page, ids, progress.study_id, progress.is_active, progress.done)
    rest: list[Any] = [gr.skip() for _ in (board.studies, *drawn.outputs)]
    # A change in `done` alone may have to wait; any other change is drawn at once.
    if state != place.drawn_state and (
        state[:-1] != place.drawn_state[:-1] or time.monotonic() > place.no_redraw_before
    ):
        began = time.monotonic()
        opened = _open_study(session, studies)
        place.row = opened.row if opened else None
        skips = [gr.skip() for _ in drawn.outputs]
        values = [
            _list_value(board, session, studies),
            *(skips if place.past else drawn.draw(opened)),
        ]
        rest = [_stamp(session, str(i), value) for i, value in enumerate(values)]
        place.drawn_state = state
        place.no_redraw_before = time.monotonic() + PAUSE_FACTOR * (time.monotonic() - began)
    return [_bar(board, session, progress, session.trouble), *rest]


def _bar(
    board: StudyBoard, session: TabSession, progress: Progress, trouble: str
) -> dict[str, Any]:
    if session.study.past:
        value = {
            **progress_value(None, progress, board.kind, trouble),
            "title": PAST_TITLE,
            "more": "",
            "state": "past",
        }
    else:
        value = progress_value(session.study.row, progress, board.kind, trouble)
    return session.stamps.on("progress", value)


def turned_to_past(board: StudyBoard, session: TabSession, studies: Studies) -> list[Any]:
    """The values of bar and list while the pictures show past runs instead of a study."""

    def work() -> list[Any]:
        rows = _stamp(session, "0", _list_value(board, session, studies))
        return [_bar(board, session, studies.progress(), session.trouble), rows]

    def refusal(message: str) -> list[Any]:
        return [_bar(board, session, studies.progress(), message), gr.skip()]

    with session.drawing:
        return guard_once(work, refusal)


def _listed_ids(board: StudyBoard, session: TabSession, studies: Studies) -> tuple[str, ...]:
    """The ids of the studies on the list's page, and one more if another page follows. Deselects
    the displayed study if it was deleted."""
    place = session.study
    ids = tuple(row.study_id for row in studies.page(board.kind, place.page))
    if place.study_id and place.study_id not in ids:
        try:
            studies.line(place.study_id)
        except UnknownStudyError:
            place.study_id, place.row, place.drawn_state = "", None, ()
            session.trouble = GONE
    return ids


def _progress_key(study_id: str, progress: Progress) -> tuple[object, ...]:
    """A value that changes when this study makes progress; constant while the study is not being
    measured."""
    is_measured = study_id and study_id == progress.study_id
    return (progress.is_active, progress.done) if is_measured else ("at rest",)


def _stamp(session: TabSession, name: str, value: Any) -> Any:
    # Gradio's updates are dicts, too; they have a key `__type__`.
    is_plain_dict = isinstance(value, dict) and "__type__" not in value
    return session.stamps.on(name, value) if is_plain_dict else value


def _open_study(session: TabSession, studies: Studies) -> OpenedStudy | None:
    if not session.study.study_id:
        return None
    try:
        return studies.open(session.study.study_id)
    except UnknownStudyError:
        _select(session, "")
        session.trouble = GONE
        return None


def _list_value(board: StudyBoard, session: TabSession, studies: Studies) -> dict[str, Any]:
    opened = "" if session.study.past else session.study.study_id
    return page_value(session.study, studies, board.kind, opened)


def page_value(place: StudyPlace, studies: Studies, kind: str, opened: str = "") -> dict[str, Any]:
    """The list's value at `place.page`, or at the last page if the list has fewer pages. `kind`:
    the kind of its studies, empty for all kinds; `opened`: the id of the study that is shown."""
    rows = studies.page(kind, place.page)
    while not rows and place.page:
        place.page -= 1
        rows = studies.page(kind, place.page)
    progress = studies.progress()
    rows_of_page = [
        study_row_value(row, progress, with_kind=not kind) for row in rows[:STUDIES_A_PAGE]
    ]
    return {
        "rows": {str(i): value for i, value in enumerate(rows_of_page)},
        "opened": opened,
        "newer": place.page > 0,
        "older": len(rows) > STUDIES_A_PAGE,
    }
