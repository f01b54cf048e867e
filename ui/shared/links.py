"""Links to hand out: `?lesson=3`, `?run=ID&round=7&stage=verify`, `?tab=live`, `&large=1`.

A link opens its tab, lesson or recorded run; while the page is used, the address is updated
(ui/shared/assets/links.js). Gradio's own parameters are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gradio as gr

from core.config import Request
from ui.form.form import request_of
from ui.learn.lessons import LESSONS
from ui.live.handlers import live_values
from ui.live.layout import Live
from ui.run.player import Player
from ui.run.source import LiveSource
from ui.run.view import STAGES
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
from ui.shared.parts import notice_value, part
from ui.shared.steering import select_node
from ui.words.messages import Line

__all__ = [
    "fill_linked",
    "follow_linked",
    "linked_run",
    "wanted_lesson",
    "wanted_tab",
    "wire_links",
]

PLACE = ("round", "stage", "node")
"""The fields of a link that name a place in a run; a stage and a node belong to a round."""
REPEATED = "The form has this run's request: Run repeats it."


def wanted_lesson(query: Mapping[str, str]) -> int:
    """The lesson's number; 0 if the link names no existing lesson."""
    number = _number_or_zero(query.get("lesson", ""))
    return number if 1 <= number <= len(LESSONS) else 0


def wanted_tab(query: Mapping[str, str], tabs: Sequence[str]) -> tuple[str, str]:
    """The tab to open, empty for none, and an error message about the link."""
    if query.get("lesson"):
        wrong = f"lesson is {query['lesson'][:20]!r}: a number from 1 to {len(LESSONS)}"
        return "learn", "" if wanted_lesson(query) else wrong
    name = query.get("tab", "").lower()
    if query.get("run"):
        return ("live" if name == "live" else "sessions"), ""
    if not name or name in tabs:
        return name, ""
    return "", f"tab is {name[:20]!r}: one of {', '.join(tabs)}"


def _number_or_zero(text: str) -> int:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def linked_run(
    at: Sessions | Live, session: TabSession, rights: CallerRights, query: Mapping[str, str]
) -> tuple[list[Any], str]:
    """Opens the link's run on a tab's board, at its place: `opened_run`'s values, and an error
    message about the place."""
    values = opened_run(at, session, rights, query["run"])
    player = session.player
    if not values[-1] or player is None or not any(map(query.get, PLACE)):
        return values, ""
    if wrong := _wrong_place(player, query):
        return values, wrong
    data = {
        "round": _number_or_zero(query["round"]) - 1,
        "stage": query.get("stage", ""),
        "node": _node(query.get("node", "")),
    }
    return [*select_node(at.board, session, data), *at.board.place(session), values[-1]], ""


def fill_linked(
    live: Live, session: TabSession, rights: CallerRights, run_id: str, on_change: bool
) -> tuple[list[Any], str]:
    """The request of the run that a link has opened on Live, in the form, so that Run repeats it:
    "Run on change", the preset's name twice, the form's values; and why the form cannot hold it."""

    def ask() -> Request:
        # At temperature 0 the seed changes nothing, and a form that fixes it would surprise later.
        request = recorded_request(live.board.context, rights, run_id)
        is_random = request.sampling.temperature > 0
        return (
            recorded_request(live.board.context, rights, run_id, seed=True)
            if is_random
            else request
        )

    _, *filled, _, refused = fill_form(live, session, ask, on_change, beside=True, words=REPEATED)
    lines = refused.get("lines", {}).values()
    if lines:
        return filled, " ".join(line["text"] for line in lines)
    # `filled` has the switch, the preset's name twice, then the form's values. Both requests are
    # equal, so that `form_differs` is false.
    session.asked = session.form = request_of(filled[3:])
    return filled, ""


def _wrong_place(player: Player, query: Mapping[str, str]) -> str:
    """An error message about the link's round, stage or node; empty if they are valid."""
    frame = player.frame()
    typed = query.get("round", "")
    number = _number_or_zero(typed)
    if not 1 <= number <= frame.known_rounds:
        whose = "" if typed else ", whose stage or node the link names"
        return f"round is {typed[:20]!r}: a number from 1 to {frame.known_rounds}{whose}"
    stage, node = query.get("stage", ""), query.get("node", "")
    if stage and stage not in STAGES:
        return f"stage is {stage[:20]!r}: one of {', '.join(STAGES)}"
    last = frame.view.rounds[number - 1].nodes - 1
    if node and _node(node) not in range(-1, last + 1):
        allowed = f"a number from -1, the root, to {last}" if last >= 0 else "-1, the root"
        return f"node is {node[:20]!r}: {allowed}, in round {number}"
    return ""


def _node(text: str) -> int | None:
    """The node's number, -1 for the root; None if the text is not a number."""
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    return -1 if digits == "-1" else int(digits) if is_number else None


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
    inputs = [visitor, sessions.opened_id]
    loaded.then(with_rights(context, about_run), inputs, sessions.controls.about_outputs, **QUICK)
    # Triggered only by a page whose link names a run.
    follow_opened(sessions, place.select, visitor)
    place.select(_follow_handler(live), place, live.outputs, **QUIET, concurrency_limit=None)
    place.submit(_history_handler(live, sessions, tabs), given, shown, **EACH)
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


def _follow_handler(live: Live) -> Callable[..., Iterator[list[Any]]]:
    def follow(request: gr.Request, place: dict[str, str] | None) -> Iterator[list[Any]]:
        run_id = (place or {}).get("run", "")
        yield from follow_linked(live, live.board.session(request), run_id)

    return follow


def _open_handler(live: Live, sessions: Sessions, tabs: gr.Tabs) -> Callable[..., list[Any]]:
    def open_link(request: gr.Request, visitor: str, on_change: bool) -> list[Any]:
        query = dict(request.query_params)
        return _open(live, sessions, tabs, query, request, visitor, on_change)

    return open_link


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
    tab, wrong = wanted_tab(query, names)
    place: Any = gr.skip()
    filled = [gr.skip() for _ in (live.on_change, live.chosen, live.form.preset)]
    filled += [gr.skip() for _ in live.form.inputs]
    past = [gr.skip() for _ in sessions.opened_outputs]
    now = [gr.skip() for _ in live.outputs]
    if query.get("run") and tab in ("live", "sessions"):
        at = live if tab == "live" else sessions
        session = at.board.session(request)
        opened, wrong = linked_run(at, session, rights, query)
        place = {"run": opened[-1]}
        wrong = wrong if opened[-1] else session.trouble
        if tab == "sessions":
            past = opened
        else:
            if opened[-1]:
                filled, refused = fill_linked(live, session, rights, opened[-1], on_change)
                why = f"The form cannot hold this run's request: {refused}"
                session.trouble = why if refused else ""
            now = live_values(live, session, live.board.values(session))
    line = Line("warn", f"This link leads nowhere: {wrong.rstrip('.')}." if wrong else "")
    where = [gr.Tabs(selected=tab) if tab else gr.skip(), notice_value([line]), place]
    return [*where, *filled, *past, *now]
