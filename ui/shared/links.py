"""Links to hand out: `?lesson=3`, `?run=ID&round=7&stage=verify`, `?tab=live`, `&large=1`.

A link opens its tab, lesson or recorded run, or the opening run (`run=opening`); while the page is
used, the address is updated (ui/shared/assets/links.js). Gradio's own parameters are not changed.
"""

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
from ui.shared.event_options import EACH, QUICK, QUIET
from ui.shared.into_live import fill_form
from ui.shared.link_fields import go_to, instead, wanted_tab, wrong_panes
from ui.shared.parts import notice_value, part
from ui.shared.steering import select_node
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
# Set by ui/shared/assets/keys.js when the page is closed while a run is under way; read once.
LEFT_STATE = """() => { try {
  const left = sessionStorage.getItem("specscope-left");
  sessionStorage.removeItem("specscope-left");
  return [left ?? ""];
} catch { return [""]; } }"""
NO_OPENING = f"run is {OPENING!r}: this server has no opening run, which needs an SSM and a preset"


def linked_run(
    at: Sessions | Live | Learn, session: TabSession, rights: CallerRights, query: Mapping[str, str]
) -> tuple[list[Any], list[str]]:
    """Opens the link's run on a tab's board, at its place: the values of the board and of its Stop
    button, the run's id, empty if it was not opened; and error messages about the place."""
    if query["run"] == OPENING:
        values = _opened_opening(at, session)
    else:
        values = opened_run(at, session, rights, query["run"])
    player = session.player
    if not values[-1] or player is None:
        return values, []
    data, wrong = go_to(player, query)
    if data is None and not query.get("shown"):
        return values, wrong
    drawn = select_node(at.board, session, data) if data else at.board.values(session)
    return [*drawn, *at.board.place(session), values[-1]], wrong


def _opened_opening(at: Sessions | Live | Learn, session: TabSession) -> list[Any]:
    """As `opened_run`, of the opening run; while it is recorded, a notice says so."""
    context = at.board.context
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
    return [*at.board.values(session), *at.board.place(session), opened]


def fill_linked(
    live: Live, session: TabSession, rights: CallerRights, run_id: str, on_change: bool
) -> tuple[list[Any], str]:
    """The request of the run that a link has opened on Live, in the form, so that Run repeats it:
    "Run on change", the preset's name twice, the form's values; and why the form cannot hold it."""

    def ask() -> Request:
        if run_id == OPENING:
            assert session.asked is not None
            return session.asked
        # At temperature 0 the seed changes nothing, and a form that fixes it would surprise later.
        request = recorded_request(live.board.context, rights, run_id)
        is_random = request.sampling.temperature > 0
        return (
            recorded_request(live.board.context, rights, run_id, seed=True)
            if is_random
            else request
        )

    words = OPENING_NOTICE if run_id == OPENING else REPEATED
    _, *filled, _, refused = fill_form(live, session, ask, on_change, beside=True, words=words)
    lines = refused.get("lines", {}).values()
    if lines:
        return filled, " ".join(line["text"] for line in lines)
    # `filled` has the switch, the preset's name twice, then the form's values. Both requests are
    # equal, so that `form_differs` is false.
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

    `page`: the notice for an invalid link, the tabs, and the page's Blocks, whose `load` is used.
    """
    message_box, tabs, blocks = page
    copy = sessions.controls.copy
    place = part("links.js", "link-place")
    shown = [
        *(tabs, message_box, place, live.on_change, live.chosen, live.form.preset),
        *(*live.form.inputs, *sessions.opened_outputs, *live.outputs),
    ]
    given = [visitor, live.on_change]
    loaded = blocks.load(_open_handler(live, sessions, tabs), given, shown, **QUICK)
    # The notice polls while the opening run is recorded.
    live.board.notice.tick(
        _awaiting_handler(live, sessions, tabs, len(shown)), given, shown, **EACH
    )
    inputs = [visitor, sessions.opened_id]
    loaded.then(with_rights(context, about_run), inputs, sessions.controls.about_outputs, **QUICK)
    # Triggered only by a page whose link names a run.
    follow_opened(sessions, place.select, visitor)
    place.select(_follow_handler(live), place, live.outputs, **QUIET, concurrency_limit=None)
    place.submit(_history_handler(live, sessions, tabs), given, shown, **EACH)
    # After the link has opened its run, which replaces the notice.
    left: dict[str, Any] = {"js": LEFT_STATE, "preprocess": False, **QUICK}
    loaded.then(_left_handler(live), live.stops, live.board.notice, **left)
    loaded.then(None, None, None, js="() => { window.specscopeLink?.ready(); }")
    tabs.change(None, None, None, js="() => { window.specscopeLink?.turned(); }")
    copy.click(None, None, None, js="() => { window.specscopeLink?.copy('sessions-copy'); }")


def follow_linked(live: Live, session: TabSession, run_id: str) -> Iterator[list[Any]]:
    """The header and the board while the run that a link has opened on Live goes on elsewhere."""
    player = session.player
    # A run that was started in this tab is being played already.
    followed = player is not None and not isinstance(player.source, LiveSource)
    # Not `source.is_done`: a short run may have ended since it was opened.
    if player is None or not followed or player.source.run_id != run_id or player.is_paused:
        yield [gr.skip() for _ in live.outputs]
        return
    for values in live.board.stream(session, play(session)):
        yield live_values(live, session, values)


def _left_handler(live: Live) -> Callable[..., Any]:
    def look(request: gr.Request, left: str | None) -> Any:
        linked = dict(request.query_params).get("run", "")
        return left_notice(live, live.board.session(request), left, linked)

    return look


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
    live: Live, sessions: Sessions, tabs: gr.Tabs, outputs: int
) -> Callable[..., list[Any]]:
    """Opens a link to the opening run once that is recorded, or says that it will not be, unless
    the visitor has begun a run."""
    open_link, context = _open_handler(live, sessions, tabs), live.board.context

    def look_again(request: gr.Request, visitor: str, on_change: bool) -> list[Any]:
        session = live.board.session(request)
        with session.drawing:  # a Run clicked meanwhile must not be replaced
            linked = dict(request.query_params).get("run") == OPENING
            waits = linked and session.player is None and not session.trouble
            if waits and (opening_run(context) is not None or not context.opening.is_awaited):
                return open_link(request, visitor, on_change)
        return [gr.skip() for _ in range(outputs)]

    return look_again


def _history_handler(live: Live, sessions: Sessions, tabs: gr.Tabs) -> Callable[..., list[Any]]:
    def go(request: gr.Request, event: gr.EventData, visitor: str, on_change: bool) -> list[Any]:
        query = {str(key): str(value) for key, value in (event._data or {}).items()}
        return _open(live, sessions, tabs, query, request, visitor, on_change)

    return go


def _open(
    live: Live,
    sessions: Sessions,
    tabs: gr.Tabs,
    query: dict[str, str],
    request: gr.Request,
    visitor: str,
    on_change: bool,
) -> list[Any]:
    """The tab, the notice, Live's form, and the boards of the run that a link's `query` names.
    `on_change`: whether "Run on change" is on."""
    rights = rights_of(live.board.context, request, visitor)
    names = [str(child.id) for child in tabs.children if isinstance(child, gr.Tab)]
    tab, wrong_tab = wanted_tab(query, names)
    wrong = [wrong_tab] if wrong_tab else []
    place: Any = gr.skip()
    filled = [gr.skip() for _ in (live.on_change, live.chosen, live.form.preset)]
    filled += [gr.skip() for _ in live.form.inputs]
    past = [gr.skip() for _ in sessions.opened_outputs]
    now = [gr.skip() for _ in live.outputs]
    if query.get("run") and tab in ("live", "sessions"):
        at = live if tab == "live" else sessions
        session = at.board.session(request)
        opened, wrong = linked_run(at, session, rights, query)
        waits = not opened[-1] and not session.trouble
        place = {"run": opened[-1], "waits": waits}
        if session.trouble and not opened[-1]:
            wrong = [instead(session.trouble.rstrip("."), "no run")]
        if tab == "sessions":
            past = opened
        else:
            if opened[-1]:
                filled, refused = fill_linked(live, session, rights, opened[-1], on_change)
                why = f"The form cannot hold this run's request: {refused}"
                session.trouble = why if refused else ""
            now = live_values(live, session, live.board.values(session))
    line = Line("warn", wrong_link([*wrong, *wrong_panes(query, tab or "live")]))
    where = [gr.Tabs(selected=tab) if tab else gr.skip(), notice_value([line]), place]
    return [*where, *filled, *past, *now]
