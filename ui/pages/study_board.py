"""What Compare, Tune and Prompts share: how a study stands, Stop and Go on, the past studies.

A study is the server's: this board only looks. It follows whatever is measured now, in any tab,
after a reload and after a restart, and hands what is kept so far to the tab's own pictures. The
browser asks again by itself (assets/progress.js): each second while something is measured and the
board can be seen, seldom otherwise. Where a tab stands is its desk's `study`.

For a tab of its own:

    board = build_study_board(context, "tune", "tune")    # inside the layout: bar, buttons
    board.studies.render()                                # where the list is to stand
    drawn = Drawn((heat_map, table), draw)                # draw(opened) -> a value for each
    wire_study_board(board, visitor, tab, drawn)
    wire_begin(board, visitor, button.click, make, inputs, drawn)

`draw(opened)` gets a ui.studies.Opened (`study`, `results`, `row`), or None where no study is
looked at; it is called when something has changed, not each second. `make(*inputs)` gives the
Study to measure (`new_study` of ui/studies.py) or raises ConfigError, which the board tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.errors import UnknownStudyError
from lab.study import Study
from ui.context import Context
from ui.pages.history import asker_of
from ui.pages.parts import study_list, study_progress
from ui.session import Desk, guarded_once
from ui.studies import Opened, Studies
from ui.study_words import progress_value, row_value

__all__ = [
    "Drawn",
    "StudyBoard",
    "begun",
    "build_study_board",
    "chosen",
    "looked",
    "studies_of",
    "wire_begin",
    "wire_study_board",
]

ROWS = 8
RESTS = 20
"""Drawing while a study is measured takes at most one part in so many of the time: what it takes
from the engine is in the figures."""
GONE = "This study was deleted, in another tab perhaps."
QUICK: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "queue": False,
}


@dataclass(frozen=True, slots=True)
class StudyBoard:
    """The components of one board. `page` names it in ids and desks, `kind` is lab.study's."""

    context: Context
    page: str
    kind: str
    progress: gr.HTML
    studies: gr.HTML

    def desk(self, request: gr.Request) -> Desk:
        """The desk of the tab that asks."""
        return self.context.desks.of(request.session_hash, self.page)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A tab's own pictures: the components, and what they show of a study. Dict values are
    stamped, so that a late answer does not undo a newer one."""

    outputs: tuple[Component, ...]
    draw: Callable[[Opened | None], Sequence[Any]]


def build_study_board(context: Context, page: str, kind: str) -> StudyBoard:
    """The bar with its buttons, here; the list where `board.studies.render()` is called."""
    progress, studies = study_progress(f"{page}-progress"), study_list(f"{page}-studies")
    return StudyBoard(context, page, kind, progress, studies)


def studies_of(context: Context, request: gr.Request, visitor: str) -> Studies:
    """The studies that this caller may see, and whose those are that they begin."""
    owner = asker_of(context, request, visitor).owner
    return Studies(context, owner, context.access.key(request, visitor or ""))


# -- handlers --


def looked(
    board: StudyBoard, desk: Desk, mine: Studies, drawn: Drawn, opening: bool = False
) -> list[Any]:
    """What board and pictures show now; what has not changed is skipped. `opening`: the tab was
    opened, so that it turns to what is measured now, or to the newest study."""

    def work() -> None:
        if opening:
            desk.trouble = ""
            desk.study.drawn = ()
            _turn(board, desk, mine)

    return _answered(board, desk, mine, drawn, work)


def begun(
    board: StudyBoard, desk: Desk, mine: Studies, drawn: Drawn, make: Callable[[], Study]
) -> list[Any]:
    """Begin what `make` gives and look at it."""

    def work() -> None:
        desk.trouble = ""
        study = make()
        mine.begin(study)
        _look_at(desk, study.study_id)

    return _answered(board, desk, mine, drawn, work)


def chosen(
    board: StudyBoard, desk: Desk, mine: Studies, drawn: Drawn, told: dict[str, Any]
) -> list[Any]:
    """A button of the bar or the list was pressed; `told` comes from the browser."""
    study_id = str(told.get("study", ""))

    def delete() -> None:
        mine.delete(study_id)
        if desk.study.study_id == study_id:
            _look_at(desk, "")

    def turn_page() -> None:
        desk.study.page = max(0, desk.study.page + (1 if told.get("by") == 1 else -1))

    actions: dict[str, Callable[[], object]] = {
        "stop": lambda: mine.stop(study_id),
        "go": lambda: mine.resume(study_id),
        "show": lambda: _look_at(desk, study_id),
        "open": lambda: _look_at(desk, study_id),
        "delete": delete,
        "page": turn_page,
    }

    def work() -> None:
        desk.trouble = ""
        desk.study.drawn = ()
        actions.get(str(told.get("do")), lambda: None)()

    return _answered(board, desk, mine, drawn, work)


def _answered(
    board: StudyBoard, desk: Desk, mine: Studies, drawn: Drawn, work: Callable[[], None]
) -> list[Any]:
    """Do `work`, then show; what goes wrong is told on the board, which shows what there is."""

    def failed(message: str) -> list[Any]:
        desk.trouble = message
        unseen = [gr.skip() for _ in drawn.outputs]
        shown = progress_value(desk.study.row, mine.standing(), board.kind, message)
        return [desk.stamps.on("progress", shown), gr.skip(), *unseen]

    def worked() -> list[Any]:
        work()
        return _values(board, desk, mine, drawn)

    with desk.drawing:
        return guarded_once(worked, failed)


def _turn(board: StudyBoard, desk: Desk, mine: Studies) -> None:
    standing = mine.standing()
    if standing.live and standing.kind == board.kind and standing.study_id:
        _look_at(desk, standing.study_id)
    elif not desk.study.study_id:
        _look_at(desk, mine.latest(board.kind))


def _look_at(desk: Desk, study_id: str) -> None:
    desk.study.study_id, desk.study.row, desk.study.drawn = study_id, None, ()


def _values(board: StudyBoard, desk: Desk, mine: Studies, drawn: Drawn) -> list[Any]:
    """Bar, list, pictures; the log is read only where something has changed."""
    # Taken first: what is kept after it differs from it and is drawn by the next look.
    standing, place = mine.standing(), desk.study
    news = (place.study_id, place.page, standing.study_id, standing.live, standing.done)
    rest: list[Any] = [gr.skip() for _ in (board.studies, *drawn.outputs)]
    if news != place.drawn and (news[:-1] != place.drawn[:-1] or time.monotonic() > place.rests):
        began = time.monotonic()
        opened = _opened(desk, mine)
        place.row = opened.row if opened else None
        values = [_list_value(board, desk, mine), *drawn.draw(opened)]
        rest = [_stamped(desk, str(i), value) for i, value in enumerate(values)]
        place.drawn = news
        place.rests = time.monotonic() + RESTS * (time.monotonic() - began)
    said = progress_value(place.row, standing, board.kind, desk.trouble)
    return [desk.stamps.on("progress", said), *rest]


def _stamped(desk: Desk, name: str, value: Any) -> Any:
    """A value with its number; Gradio's own updates are dicts too, and stay what they are."""
    plain = isinstance(value, dict) and "__type__" not in value
    return desk.stamps.on(name, value) if plain else value


def _opened(desk: Desk, mine: Studies) -> Opened | None:
    if not desk.study.study_id:
        return None
    try:
        return mine.opened(desk.study.study_id)
    except UnknownStudyError:
        _look_at(desk, "")
        desk.trouble = GONE
        return None


def _list_value(board: StudyBoard, desk: Desk, mine: Studies) -> dict[str, Any]:
    place = desk.study
    found = mine.listed(board.kind, ROWS + 1, ROWS * place.page)
    if not found and place.page:
        place.page -= 1
        return _list_value(board, desk, mine)
    standing = mine.standing()
    return {
        "rows": {str(i): row_value(row, standing) for i, row in enumerate(found[:ROWS])},
        "opened": place.study_id,
        "newer": place.page > 0,
        "older": len(found) > ROWS,
    }


# -- wiring --


def wire_study_board(
    board: StudyBoard, visitor: gr.BrowserState, tab: gr.Tab, drawn: Drawn
) -> None:
    """Connect bar and list; the tab's pictures follow the study that the board looks at."""
    outputs = [board.progress, board.studies, *drawn.outputs]

    def look(opening: bool) -> Callable[..., list[Any]]:
        def handler(request: gr.Request, key: str) -> list[Any]:
            mine = studies_of(board.context, request, key)
            return looked(board, board.desk(request), mine, drawn, opening)

        return handler

    def choose(request: gr.Request, event: gr.EventData, key: str) -> list[Any]:
        mine = studies_of(board.context, request, key)
        return chosen(board, board.desk(request), mine, drawn, event._data or {})

    tab.select(look(True), [visitor], outputs, trigger_mode="always_last", **QUICK)
    board.progress.tick(look(False), [visitor], outputs, trigger_mode="always_last", **QUICK)
    for part in (board.progress, board.studies):
        part.select(choose, [visitor], outputs, trigger_mode="multiple", **QUICK)


def wire_begin(
    board: StudyBoard,
    visitor: gr.BrowserState,
    trigger: Callable[..., Any],
    make: Callable[..., Study],
    inputs: Sequence[Component],
    drawn: Drawn,
) -> Any:
    """On `trigger` (a component's event, as `button.click`) begin what `make(*inputs)` returns and
    look at it. Returns the event, for `.then`."""

    def begin(request: gr.Request, key: str, *values: Any) -> list[Any]:
        mine = studies_of(board.context, request, key)
        return begun(board, board.desk(request), mine, drawn, lambda: make(*values))

    outputs = [board.progress, board.studies, *drawn.outputs]
    return trigger(begin, [visitor, *inputs], outputs, trigger_mode="once", **QUICK)
