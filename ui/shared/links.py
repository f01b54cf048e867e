"""Links to hand out: `?lesson=3`, `?run=ID&round=7`, `?tab=sessions`, `&large=1`.

A link opens its tab, lesson or recorded run; while the page is used, the address is updated
(ui/shared/assets/links.js). Gradio's own parameters are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gradio as gr

from ui.learn.lessons import LESSONS
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.handlers import about_handler
from ui.sessions.history import Asker, asker_of
from ui.sessions.live_runs import follow_opened
from ui.sessions.tab import Sessions, opened_run, scrub
from ui.shared.event_options import QUICK
from ui.shared.parts import notice_value, part
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
    if query.get("run"):
        return "sessions", ""
    name = query.get("tab", "").lower()
    if not name or name in tabs:
        return name, ""
    return "", f"tab is {name[:20]!r}: one of {', '.join(tabs)}"


def _number_or_zero(text: str) -> int:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def linked_run(
    sessions: Sessions, session: TabSession, asker: Asker, query: Mapping[str, str]
) -> list[Any]:
    """The run of the link on the board of Sessions, at its round: board, scrubber, id."""
    shown = opened_run(sessions, session, asker, query["run"])
    number = _number_or_zero(query.get("round", ""))
    player = session.player
    if not shown[-1] or not number or player is None:
        return shown
    values = scrub(sessions, session, number)
    return [*values, *sessions.board.place(session), shown[-1]]


# -- wiring --


def wire_links(
    context: Context,
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
    board = sessions.board
    shown = [tabs, message_box, place, *sessions.opened_outputs]
    come = blocks.load(_open_handler(context, sessions, tabs), visitor, shown, **QUICK)
    inputs = [visitor, sessions.opened]
    come.then(about_handler(context), inputs, sessions.on.about_outputs, **QUICK)
    # Asked for by a page with such a link alone: any other would wait for nothing.
    follow_opened(sessions, place.select, visitor)
    come.then(None, None, None, js="() => { window.specscopeLink?.ready(); }")
    tabs.change(None, None, None, js="() => { window.specscopeLink?.turned(); }")
    # The browser is told of a changed gr.State by queued events only; the figures name their run.
    figures: Any = board.pictures["figures"]
    figures.change(
        None, figures, None, js="(value) => { window.specscopeLink?.run(value?.run || ''); }"
    )
    scrub: Any = board.scrub
    scrub.change(None, scrub, None, js="(round) => { window.specscopeLink?.round(round); }")
    copy.click(None, None, None, js="() => { window.specscopeLink?.copy('sessions-copy'); }")


def _open_handler(context: Context, sessions: Sessions, tabs: gr.Tabs) -> Callable[..., list[Any]]:
    names = [str(child.id) for child in tabs.children if isinstance(child, gr.Tab)]
    count = len(sessions.opened_outputs)

    def open_link(request: gr.Request, visitor: str) -> list[Any]:
        query = dict(request.query_params)
        tab, wrong = wanted_tab(query, names)
        line = Line("warn", f"This link leads nowhere: {wrong}." if wrong else "")
        run: list[Any] = [gr.skip()] * (1 + count)
        if tab == "sessions" and query.get("run"):
            asker = asker_of(context, request, visitor)
            opened = linked_run(sessions, sessions.board.session(request), asker, query)
            run = [{"run": opened[-1]}, *opened]
        return [gr.Tabs(selected=tab) if tab else gr.skip(), notice_value([line]), *run]

    return open_link
