"""Links to hand out: `?lesson=3`, `?run=ID&round=7&stage=verify`, `?tab=live`, `&large=1`.

A link opens its tab, lesson or recorded run; while the page is used, the address is updated
(ui/shared/assets/links.js). Gradio's own parameters are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gradio as gr

from ui.learn.lessons import LESSONS
from ui.live.layout import Live
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.handlers import about_handler
from ui.sessions.history import Asker, asker_of
from ui.sessions.live_runs import follow_opened
from ui.sessions.tab import Sessions, opened_run
from ui.shared.event_options import EACH, QUICK
from ui.shared.parts import notice_value, part
from ui.shared.steering import select_node
from ui.words.messages import Line

__all__ = ["linked_run", "wanted_lesson", "wanted_tab", "wire_links"]


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
    at: Sessions | Live, session: TabSession, asker: Asker, query: Mapping[str, str]
) -> tuple[list[Any], str]:
    """The run of the link on a tab's board, at its place: `opened_run`'s values, and what was
    wrong with the place."""
    shown = opened_run(at, session, asker, query["run"])
    player = session.player
    if not shown[-1] or player is None or not query.get("round"):
        return shown, ""
    rounds = player.frame().known_rounds
    number, stage = _number_or_zero(query["round"]), query.get("stage", "")
    if not 1 <= number <= rounds:
        wrong = f"round is {query['round'][:20]!r}: a number from 1 to {rounds}"
        return shown, wrong
    data = {"round": number - 1, "stage": stage, "node": _node(query.get("node", ""))}
    return [*select_node(at.board, session, data), *at.board.place(session), shown[-1]], ""


def _node(text: str) -> int | None:
    return -1 if text == "-1" else _number_or_zero(text) if text[:1].isdigit() else None


# -- wiring --


def wire_links(
    context: Context,
    live: Live,
    sessions: Sessions,
    page: tuple[gr.HTML, gr.Tabs, gr.Blocks],
    visitor: gr.BrowserState,
) -> None:
    """Open what the address names, and keep the address up to date.

    `page`: the notice for an invalid link, the tabs, and the page's Blocks, whose `load` is used.
    """
    message_box, tabs, blocks = page
    copy = sessions.on.copy
    place = part("links.js", "link-place")
    shown = [tabs, message_box, place, *sessions.opened_outputs, *live.board.outputs]
    come = blocks.load(_open_handler(live, sessions, tabs), visitor, shown, **QUICK)
    inputs = [visitor, sessions.opened]
    come.then(about_handler(context), inputs, sessions.on.about_outputs, **QUICK)
    # Asked for by a page with such a link alone: any other would wait for nothing.
    follow_opened(sessions, place.select, visitor)
    place.submit(_history_handler(live, sessions, tabs), visitor, shown, **EACH)
    come.then(None, None, None, js="() => { window.specscopeLink?.ready(); }")
    tabs.change(None, None, None, js="() => { window.specscopeLink?.turned(); }")
    copy.click(None, None, None, js="() => { window.specscopeLink?.copy('sessions-copy'); }")


def _open_handler(live: Live, sessions: Sessions, tabs: gr.Tabs) -> Callable[..., list[Any]]:
    def open_link(request: gr.Request, visitor: str) -> list[Any]:
        return _opened(live, sessions, tabs, (request, visitor, dict(request.query_params)))

    return open_link


def _history_handler(live: Live, sessions: Sessions, tabs: gr.Tabs) -> Callable[..., list[Any]]:
    def go(request: gr.Request, event: gr.EventData, visitor: str) -> list[Any]:
        query = {str(key): str(value) for key, value in (event._data or {}).items()}
        return _opened(live, sessions, tabs, (request, visitor, query))

    return go


def _opened(
    live: Live, sessions: Sessions, tabs: gr.Tabs, asked: tuple[gr.Request, str, dict[str, str]]
) -> list[Any]:
    """The tab, the notice, and the boards of the run that a query names."""
    request, visitor, query = asked
    names = [str(child.id) for child in tabs.children if isinstance(child, gr.Tab)]
    tab, wrong = wanted_tab(query, names)
    place: Any = gr.skip()
    past = [gr.skip() for _ in sessions.opened_outputs]
    now = [gr.skip() for _ in live.board.outputs]
    if query.get("run") and tab in ("live", "sessions"):
        at = live if tab == "live" else sessions
        session = at.board.session(request)
        asker = asker_of(at.board.context, request, visitor)
        opened, wrong = linked_run(at, session, asker, query)
        place = {"run": opened[-1]}
        wrong = wrong if opened[-1] else session.trouble
        if tab == "live":
            now = opened[: len(now)]
        else:
            past = opened
    line = Line("warn", f"This link leads nowhere: {wrong.rstrip('.')}." if wrong else "")
    return [gr.Tabs(selected=tab) if tab else gr.skip(), notice_value([line]), place, *past, *now]
