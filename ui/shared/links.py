"""Links to share: `?lesson=3`, `?run=ID&round=7&stage=verify`, `?tab=live`, `&large=1`.

A link opens its tab, lesson or run; `run=opening` is the opening run. ui/shared/assets/links.js
updates the address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gradio as gr

from core.config import Request
from ui.form.form import request_of
from ui.learn.layout import Learn
from ui.live.handlers import (
    OPENING_NOTICE,
    left_notice,
    live_values,
    opening_run,
    show_opening,
)
from ui.live.layout import Live
from ui.run.opening import OPENING
from ui.run.player import Pace
from ui.run.source import LiveSource
from ui.server.context import Context
from ui.server.session import TabSession, play
from ui.sessions.handlers import with_rights
from ui.sessions.history import CallerRights, rights_of
from ui.sessions.live_runs import follow_opened
from ui.sessions.repeat import recorded_request
from ui.sessions.retention import about_run
from ui.sessions.tab import Sessions, opened_run
from ui.shared.board_handlers import select_node
from ui.shared.event_options import EACH, QUICK, QUIET
from ui.shared.into_live import fill_form
from ui.shared.link_fields import go_to, instead, wanted_tab, wrong_panes
from ui.shared.parts import notice_value, part
from ui.words.messages import Line

__all__ = [
    "fill_linked",
    "follow_linked",
    "linked_run",
    "wire_links",
    "wrong_link",
]

REPEATED = "The form has this run's request: Run repeats it."
AWAITED = "The recorded run of this link is still being made. It is shown once it is complete."
# Reads and removes what ui/shared/assets/keys.js stores when the page is left.
LEFT_STATE = """() => { try {
  const left = sessionStorage.getItem("specscope-left");
  sessionStorage.removeItem("specscope-left");
  return [left ?? ""];
} catch { return [""]; } }"""
NO_OPENING = f"run is {OPENING!r}: this server has no opening run, which needs an SSM and a preset"


def linked_run(
    tab: Sessions | Live | Learn,
    session: TabSession,
    rights: CallerRights,
    query: Mapping[str, str],
) -> tuple[list[Any], list[str]]:
    """Opens the link's run on a tab's board, at the link's place in the run. Returns the values of
    the board and of its Stop button, then the run's id (empty if the run was not opened); and error
    messages about the place."""
    if query["run"] == OPENING:
        values = _open_opening_run(tab, session)
    else:
        values = opened_run(tab, session, rights, query["run"])
    player = session.player
    if not values[-1] or player is None:
        return values, []
    data, wrong = go_to(player, query)
    if data is None and not query.get("shown"):
        return values, wrong
    drawn = select_node(tab.board, session, data) if data else tab.board.values(session)
    return [*drawn, *tab.board.place(session), values[-1]], wrong


def _open_opening_run(tab: Sessions | Live | Learn, session: TabSession) -> list[Any]:
    """Returns what `opened_run` returns, for the opening run. A notice says if that run is still
    being recorded, or if this server has none."""
    context = tab.board.context
    source = opening_run(context)
    if source is not None:
        show_opening(session, source, Pace())
        assert session.player is not None
        session.player.advance(0.0)
    elif context.opening.is_awaited:
        session.no_run_words = AWAITED
    else:
        session.trouble = NO_OPENING
    opened = OPENING if source is not None else ""
    return [*tab.board.values(session), *tab.board.place(session), opened]


def fill_linked(
    live: Live, session: TabSession, rights: CallerRights, run_id: str, on_change: bool
) -> tuple[list[Any], str]:
    """Fills the form with the request of the run that a link has opened on Live. Returns updates of
    "Run on change", of the preset's name twice and of the form's values; and why the form cannot
    hold the request (empty if it can)."""

    def ask() -> Request:
        if run_id == OPENING:
            assert session.asked is not None
            return session.asked
        # At temperature 0 the seed has no effect. A seed in the form would also apply to later runs
        # at other temperatures.
        request = recorded_request(live.board.context, rights, run_id)
        if request.sampling.temperature > 0:
            return recorded_request(live.board.context, rights, run_id, seed=True)
        return request

    words = OPENING_NOTICE if run_id == OPENING else REPEATED
    _, *filled, _, refused = fill_form(live, session, ask, on_change, beside=True, words=words)
    lines = refused.get("lines", {}).values()
    if lines:
        return filled, " ".join(line["text"] for line in lines)
    # In `filled`, "Run on change" and the preset's name (twice) precede the form's values. Equal
    # requests make `session.form_differs` False.
    session.asked = session.form = request_of(filled[3:])
    return filled, ""


def wrong_link(faults: Sequence[str]) -> str:
    """A sentence about a link's wrong fields; empty if there are none."""
    return f"This link is wrong: {'; '.join(faults)}." if faults else ""


# -- wiring --


def wire_links(
    context: Context,
    live: Live,
    sessions: Sessions,
    page: tuple[gr.HTML, gr.Tabs, gr.Blocks],
    visitor: gr.BrowserState,
) -> None:
    """Opens the tab, lesson or run that the address names, and keeps the address up to date.
    `page`: the notice for an invalid link, the tabs, and the page's Blocks."""
    message_box, tabs, blocks = page
    copy = sessions.controls.copy
    place = part("links.js", "link-place")
    open_outputs = [
        *(tabs, message_box, place, live.on_change, live.chosen, live.form.preset),
        *(*live.form.inputs, *sessions.opened_outputs, *live.outputs),
    ]
    open_inputs = [visitor, live.on_change]
    loaded = blocks.load(_open_handler(live, sessions, tabs), open_inputs, open_outputs, **QUICK)
    # The notice polls while the opening run is recorded.
    live.board.notice.tick(
        _awaiting_handler(live, sessions, tabs, len(open_outputs)),
        open_inputs,
        open_outputs,
        **EACH,
    )
    inputs = [visitor, sessions.opened_id]
    loaded.then(with_rights(context, about_run), inputs, sessions.controls.about_outputs, **QUICK)
    # A page whose link has opened a run triggers `select`.
    follow_opened(sessions, place.select, visitor)
    place.select(_follow_handler(live), place, live.outputs, **QUIET, concurrency_limit=None)
    place.submit(_history_handler(live, sessions, tabs), open_inputs, open_outputs, **EACH)
    # This comes after the link has opened its run, since opening a run replaces the notice.
    left: dict[str, Any] = {"js": LEFT_STATE, "preprocess": False, **QUICK}
    loaded.then(_left_handler(live), live.stops, live.board.notice, **left)
    loaded.then(None, None, None, js="() => { window.specscopeLink?.ready(); }")
    tabs.change(None, None, None, js="() => { window.specscopeLink?.turned(); }")
    copy.click(None, None, None, js="() => { window.specscopeLink?.copy('sessions-copy'); }")


def follow_linked(live: Live, session: TabSession, run_id: str) -> Iterator[list[Any]]:
    """Plays the run that a link has opened on Live, unless it is paused or was started in this tab.
    Yields values of the header and the board."""
    player = session.player
    # A run that was started in this tab is being played already.
    followed = player is not None and not isinstance(player.source, LiveSource)
    # `source.is_done` is not asked: a short run that has ended since it was opened is still played.
    if player is None or not followed or player.source.run_id != run_id or player.is_paused:
        yield [gr.skip() for _ in live.outputs]
        return
    for values in live.board.stream(session, play(session)):
        yield live_values(live, session, values)


def _left_handler(live: Live) -> Callable[..., Any]:
    def show_notice(request: gr.Request, left: str | None) -> Any:
        linked = dict(request.query_params).get("run", "")
        return left_notice(live, live.board.session(request), left, linked)

    return show_notice


def _follow_handler(live: Live) -> Callable[..., Iterator[list[Any]]]:
    def follow(request: gr.Request, place: dict[str, Any] | None) -> Iterator[list[Any]]:
        run_id = (place or {}).get("run", "")
        yield from follow_linked(live, live.board.session(request), run_id)

    return follow


def _open_handler(live: Live, sessions: Sessions, tabs: gr.Tabs) -> Callable[..., list[Any]]:
    def open_link(request: gr.Request, visitor: str, on_change: bool) -> list[Any]:
        query = dict(request.query_params)
        return _open(live, sessions, tabs, query, request, visitor, on_change)

    return open_link


def _awaiting_handler(
    live: Live, sessions: Sessions, tabs: gr.Tabs, num_outputs: int
) -> Callable[..., list[Any]]:
    """The handler that opens a link to the opening run once that run is recorded or is no longer
    awaited; it does nothing if the visitor has begun a run."""
    open_link, context = _open_handler(live, sessions, tabs), live.board.context

    def open_when_ready(request: gr.Request, visitor: str, on_change: bool) -> list[Any]:
        session = live.board.session(request)
        with session.drawing:  # a Run clicked meanwhile must not be replaced
            linked = dict(request.query_params).get("run") == OPENING
            waits = linked and session.player is None and not session.trouble
            if waits and (opening_run(context) is not None or not context.opening.is_awaited):
                return open_link(request, visitor, on_change)
        return [gr.skip() for _ in range(num_outputs)]

    return open_when_ready


def _history_handler(live: Live, sessions: Sessions, tabs: gr.Tabs) -> Callable[..., list[Any]]:
    def open_step(
        request: gr.Request, event: gr.EventData, visitor: str, on_change: bool
    ) -> list[Any]:
        query = {str(key): str(value) for key, value in (event._data or {}).items()}
        return _open(live, sessions, tabs, query, request, visitor, on_change)

    return open_step


def _open(
    live: Live,
    sessions: Sessions,
    tabs: gr.Tabs,
    query: dict[str, str],
    request: gr.Request,
    visitor: str,
    on_change: bool,
) -> list[Any]:
    """Opens what a link's `query` names. Returns updates of the tabs, the notice, the link's
    component (links.js), Live's form, and the boards of Sessions and Live. `on_change`: whether
    "Run on change" is on."""
    rights = rights_of(live.board.context, request, visitor)
    names = [str(child.id) for child in tabs.children if isinstance(child, gr.Tab)]
    tab, wrong_tab = wanted_tab(query, names)
    wrong = [wrong_tab] if wrong_tab else []
    place: Any = gr.skip()
    filled = [gr.skip() for _ in (live.on_change, live.chosen, live.form.preset)]
    filled += [gr.skip() for _ in live.form.inputs]
    sessions_updates = [gr.skip() for _ in sessions.opened_outputs]
    live_updates = [gr.skip() for _ in live.outputs]
    if query.get("run") and tab in ("live", "sessions"):
        opening_tab = live if tab == "live" else sessions
        session = opening_tab.board.session(request)
        opened, wrong = linked_run(opening_tab, session, rights, query)
        waits = not opened[-1] and not session.trouble
        place = {"run": opened[-1], "waits": waits}
        if session.trouble and not opened[-1]:
            wrong = [instead(session.trouble.rstrip("."), "no run")]
        if tab == "sessions":
            sessions_updates = opened
        else:
            if opened[-1]:
                filled, refused = fill_linked(live, session, rights, opened[-1], on_change)
                why = f"The form cannot hold this run's request: {refused}"
                session.trouble = why if refused else ""
            live_updates = live_values(live, session, live.board.values(session))
    line = Line("warn", wrong_link([*wrong, *wrong_panes(query, tab or "live")]))
    opened_tab = gr.Tabs(selected=tab) if tab else gr.skip()
    return [opened_tab, notice_value([line]), place, *filled, *sessions_updates, *live_updates]
