"""The Sessions tab: past runs, found, opened and played again on a board like Live's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import Request
from core.errors import StoreError, UnknownRunError
from ui.context import Context
from ui.pages.board import Board, Values, build_board
from ui.pages.history import ORDERS, STATUSES, Asker, allowed, asker_of, listed
from ui.pages.into_live import into_live
from ui.pages.live_layout import Live
from ui.pages.parts import notice, run_list
from ui.pages.steering import wire_board
from ui.player import Pace, Player
from ui.session import Desk, guarded_once
from ui.source import StoredSource

__all__ = ["Sessions", "build_sessions", "wire_sessions"]

INTO_SIGHT = """() => {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const options = { behavior: calm ? "auto" : "smooth", block: "start" };
  document.querySelector("#sessions-notice").scrollIntoView(options);
}"""


ALREADY = "This run is already deleted, in another tab perhaps: nothing was left to delete."


@dataclass(frozen=True, slots=True)
class Sessions:
    """The tab's components."""

    board: Board
    text: gr.Textbox
    status: gr.Dropdown
    order: gr.Dropdown
    page: gr.Number
    runs: gr.HTML
    said: gr.HTML
    older: gr.Button
    newer: gr.Button
    refresh: gr.Button
    into_live: gr.Button
    delete: gr.Button
    sure: gr.Button
    opened: gr.State

    @property
    def filters(self) -> list[Component]:
        return [self.text, self.status, self.order, self.page]


# -- layout --


def build_sessions(context: Context) -> Sessions:
    """The list above, the opened run below."""
    with gr.Row(equal_height=False):
        text = gr.Textbox(
            label="Search", info="Words of prompt or text.", scale=3, elem_id="sessions-search"
        )
        status = gr.Dropdown(["all", *STATUSES], value="all", label="Status", info="How it ended.")
        order = gr.Dropdown(list(ORDERS), value="newest", label="Order", info="What comes first.")
    said = notice("sessions-said")
    runs = run_list("sessions-runs")
    page = gr.Number(value=1, precision=0, visible=False)
    with gr.Row():
        newer = gr.Button("‹ Previous page", size="sm", elem_id="sessions-newer", min_width=80)
        older = gr.Button("Next page ›", size="sm", elem_id="sessions-older", min_width=80)
        refresh = gr.Button("Refresh", size="sm", elem_id="sessions-refresh", min_width=80)
        opening = gr.Button("Open in Live", size="sm", elem_id="sessions-into-live", min_width=80)
        delete = gr.Button(
            "Delete the opened run", size="sm", elem_id="sessions-delete", min_width=80
        )
        sure = gr.Button(
            "Yes, delete it for ever",
            size="sm",
            variant="stop",
            visible=False,
            elem_id="sessions-sure",
            min_width=80,
        )
    board = build_board(context, "sessions", "Open a run from the list.", scrub=True)
    opened = gr.State("")
    return Sessions(
        board,
        text,
        status,
        order,
        page,
        runs,
        said,
        older,
        newer,
        refresh,
        opening,
        delete,
        sure,
        opened,
    )


# -- handlers --


def opened_run(sessions: Sessions, desk: Desk, asker: Asker, run_id: str) -> list[Any]:
    """Open a run at its end: the board, the scrubber, the id, Delete."""
    board = sessions.board

    def work() -> list[Any]:
        allowed(board.context, asker, run_id)
        player = Player(StoredSource(board.context.store, run_id), Pace("full"))
        player.advance(0.0)
        desk.look_at(player)
        rounds = player.frame().known_rounds
        scrub = gr.Slider(minimum=0, maximum=max(1, rounds), value=rounds)
        return [*board.values(desk), scrub, run_id]

    def failed(message: str) -> list[Any]:
        return [*board.failed(desk)(message), gr.Slider(), ""]

    return guarded_once(work, failed)


def scrubbed(sessions: Sessions, desk: Desk, number: float | None) -> Values:
    """To the end of a round; a number past either end is that end, an emptied box no move."""

    def work() -> None:
        if desk.player is not None and number is not None:
            desk.player.seek(int(number))

    return sessions.board.once(desk, work)


def asked_of(context: Context, asker: Asker, run_id: str) -> Request:
    """The request of a past run as it was asked. StoreError, ConfigError."""
    if not run_id:
        raise StoreError("no run is opened: open one from the list first")
    return Request.from_plain(allowed(context, asker, run_id).asked)


def shows(desk: Desk, run_id: str) -> bool:
    """Whether this visitor's board has the run open: so it was theirs to see."""
    return desk.player is not None and desk.player.source.run_id == run_id


def deleted(sessions: Sessions, desk: Desk, asker: Asker, run_id: str) -> list[Any]:
    """Remove the opened run; the board becomes empty, also where another tab was first."""
    board = sessions.board

    def emptied(values: Values) -> list[Any]:
        return [*values, gr.Slider(minimum=0, maximum=1, value=0), "", gr.Button(visible=False)]

    def work() -> list[Any]:
        if not run_id:
            raise StoreError("no run is opened: open one from the list first")
        try:
            if allowed(board.context, asker, run_id).status == "running":
                raise StoreError("run is still running: stop it first")
            board.context.store.delete(run_id)
        except UnknownRunError:
            if not shows(desk, run_id):
                raise
            desk.look_at(None)
            return emptied(board.failed(desk)(ALREADY))
        desk.look_at(None)
        return emptied(board.values(desk))

    def failed(message: str) -> list[Any]:
        return [*board.failed(desk)(message), gr.Slider(), run_id, gr.Button(visible=False)]

    return guarded_once(work, failed)


# -- wiring --


def wire_sessions(
    sessions: Sessions, visitor: gr.BrowserState, tab: gr.Tab, live: Live, tabs: gr.Tabs
) -> None:
    """Connect everything of the tab; the list is read again whenever the tab is opened."""
    quick: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "queue": False,
        "trigger_mode": "always_last",
    }
    board = sessions.board
    wire_board(board)
    list_inputs = [visitor, sessions.opened, *sessions.filters]
    list_outputs = [sessions.runs, sessions.said, sessions.page]
    for trigger, turn in (
        (tab.select, 0),
        (sessions.refresh.click, 0),
        (sessions.said.tick, 0),
        (sessions.older.click, 1),
        (sessions.newer.click, -1),
        (sessions.text.change, None),
        (sessions.status.change, None),
        (sessions.order.change, None),
    ):
        trigger(_list_handler(board.context, turn), list_inputs, list_outputs, **quick)
    assert board.scrub is not None
    opening = [*board.outputs, board.scrub, sessions.opened]
    opened = sessions.runs.select(_open_handler(sessions), [visitor], opening, **quick)
    opened.then(_list_handler(board.context, 0), list_inputs, list_outputs, **quick)
    opened.then(None, None, None, js=INTO_SIGHT)
    board.scrub.input(_scrub_handler(sessions), [board.scrub], board.outputs, **quick)
    # The question stands for the run that is open: it goes when another is opened.
    sessions.delete.click(
        lambda run_id: gr.Button(visible=bool(run_id)), sessions.opened, sessions.sure, **quick
    )
    for trigger in (sessions.runs.select, tab.select):
        trigger(lambda: gr.Button(visible=False), None, sessions.sure, **quick)
    gone = sessions.sure.click(
        _delete_handler(sessions),
        [visitor, sessions.opened],
        [*opening, sessions.sure],
        **quick,
    )
    gone.then(_list_handler(board.context, 0), list_inputs, list_outputs, **quick)
    into_live(
        live,
        tabs,
        sessions.into_live.click,
        _asked_handler(sessions),
        [visitor, sessions.opened],
        board.notice,
    )


def _list_handler(context: Context, turn: int | None) -> Callable[..., list[Any]]:
    """`turn`: pages forward or back; None begins at the first page again."""

    def show(
        request: gr.Request,
        visitor: str,
        opened: str,
        text: str,
        status: str,
        order: str,
        page: float,
    ) -> list[Any]:
        number = 1 if turn is None else (page or 1) + turn
        asker = asker_of(context, request, visitor)
        return listed(context, asker, opened, text, status, order, number)

    return show


def _open_handler(sessions: Sessions) -> Callable[..., list[Any]]:
    board = sessions.board

    def choose(request: gr.Request, event: gr.EventData, visitor: str) -> list[Any]:
        run_id = str((event._data or {}).get("run", ""))
        asker = asker_of(board.context, request, visitor)
        return opened_run(sessions, board.desk(request), asker, run_id)

    return choose


def _asked_handler(sessions: Sessions) -> Callable[..., Request]:
    def asked(request: gr.Request, visitor: str, run_id: str) -> Request:
        context = sessions.board.context
        return asked_of(context, asker_of(context, request, visitor), run_id)

    return asked


def _scrub_handler(sessions: Sessions) -> Callable[..., Values]:
    def move(request: gr.Request, number: float | None) -> Values:
        return scrubbed(sessions, sessions.board.desk(request), number)

    return move


def _delete_handler(sessions: Sessions) -> Callable[..., list[Any]]:
    board = sessions.board

    def delete(request: gr.Request, visitor: str, run_id: str) -> list[Any]:
        asker = asker_of(board.context, request, visitor)
        return deleted(sessions, board.desk(request), asker, run_id)

    return delete
