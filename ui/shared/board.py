"""The board: the pictures of a run, its scrubber and its notice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.components import (
    Figures,
    Inspector,
    Lengths,
    Mask,
    Picture,
    Proposals,
    Routing,
    Scrubber,
    Timeline,
    TokenStrip,
    TokenTree,
    WhatIf,
    pack,
)
from ui.run.mask import mask_value
from ui.run.scrubber import scrubber_value
from ui.run.what_if import what_if_value
from ui.server.context import Context
from ui.server.session import TabSession, guard, guard_once
from ui.shared.parts import log_line, notice, notice_value, part
from ui.words.messages import Line, run_lines
from ui.words.settings import settings_line

__all__ = ["DOCK", "Board", "Values", "build_board"]

Values = list[dict[str, Any]]

DOCK: tuple[tuple[str, tuple[Picture, ...]], ...] = (
    ("why", (Inspector,)),
    ("who", (Proposals, Routing)),
    ("when", (Timeline,)),
    ("length", (Lengths,)),
    ("inside", (Mask,)),
    ("whatif", (WhatIf,)),
)
"""The dock's tabs that have pictures, and these pictures."""


@dataclass(frozen=True, slots=True)
class Board:
    """The components of one board. `page`: its name in element ids and in the keys of tab sessions.
    `welcome`: its notice before there is a run. `stop`: a button outside the board that stops the
    shown run, None on pages without one."""

    page: str
    context: Context
    welcome: str
    notice: gr.HTML
    pictures: dict[str, gr.HTML]
    stop: gr.Button | None = None

    @property
    def outputs(self) -> list[Component]:
        return [self.notice, *self.pictures.values()]

    def session(self, request: gr.Request) -> TabSession:
        """The session of the calling tab."""
        return self.context.tab_sessions.of(request.session_hash, self.page)

    def current_notice(self, session: TabSession) -> dict[str, Any]:
        """The present value of `notice`."""
        with session.drawing:
            return session.stamps.on("notice", self._notice(session))

    def _notice(self, session: TabSession) -> dict[str, Any]:
        frame = session.frame()
        first, *rest = run_lines(frame, session.baseline, session.answer)
        if not frame.run_id:
            first = Line("info", session.no_run_words or self.welcome)
        if session.shows_opening_run:
            # Without `at_rest`, a visitor whose prompt is refused would take a recording that has
            # ended for that prompt's run.
            at_rest = f"A recording, not a run of yours. {first.text}"
            first = Line("info", session.doing if session.is_playing else at_rest)
        # The box has a fixed height: short messages come before long explanations.
        log = log_line(self.context.store.status())
        doing = "" if session.shows_opening_run else session.doing
        messages = [Line("error", session.trouble), Line("info", doing), log]
        # On Live the form shows the settings.
        settings = settings_line(frame.view) if self.page == "sessions" else ""
        again = bool(log.text) or self.awaits_opening(session)
        return notice_value([first, *messages, Line("info", settings), *rest], again)

    def awaits_opening(self, session: TabSession) -> bool:
        """Whether the page will open with a run whose recording is not complete yet."""
        idle = session.player is None and not session.trouble and not session.doing
        return self.page == "live" and idle and self.context.opening.is_awaited

    @property
    def places(self) -> list[Component]:
        """The button `stop`, if the board has one."""
        return [one for one in (self.stop,) if one is not None]

    def place(self, session: TabSession) -> list[Any]:
        """The present values of `places`: Stop can be pressed if there is a run that is not
        paused."""
        if self.stop is None:
            return []
        may_stop = session.player is not None and not session.player.is_paused
        return [gr.update(interactive=may_stop)]

    def values(self, session: TabSession) -> Values:
        """The present values of `outputs`."""
        with session.drawing:
            # Under `drawing`, since `Stamps` and PictureMaker are not thread-safe.
            notice_now, frame = self.current_notice(session), session.frame()
            pictures = session.pictures.values(
                frame, session.baseline, time.monotonic(), session.before
            )
            pictures["mask"] = mask_value(frame)
            pictures["what_if"] = what_if_value(frame, session.baseline)
            player = session.player
            # The opening run has a pace of its own, which the scrubber shows while that run plays.
            pace = (
                player.pace
                if player and session.shows_opening_run and session.is_playing
                else session.pace
            )
            pictures["scrubber"] = scrubber_value(frame, pace, session.is_playing)
            packed = {name: pack(pictures[name]) for name in self.pictures}
            return [notice_now, *(session.stamps.on(name, value) for name, value in packed.items())]

    def failure_values(self, session: TabSession) -> Callable[[str], Values]:
        """A function that makes the values to show after an error, from the error's message."""

        def show(message: str) -> Values:
            session.trouble = message
            return self.values(session)

        return show

    def stream(self, session: TabSession, frames: Iterator[object]) -> Iterator[Values]:
        """The board's values for each of `frames`; errors are shown on the board."""
        session.trouble = ""
        return guard((self.values(session) for _ in frames), self.failure_values(session))

    def once(self, session: TabSession, work: Callable[[], None]) -> Values:
        """Calls `work`, then returns the board's values; errors are shown on the board."""

        def work_and_show() -> Values:
            with session.drawing:
                session.trouble = ""
                work()
                return self.values(session)

        return guard_once(work_and_show, self.failure_values(session))


# -- layout --


def build_board(
    context: Context, page: str, welcome: str, more: Callable[[], None] | None = None
) -> Board:
    """Lays out the notice, the pictures, the scrubber and the dock. `more` builds one more tab of
    the dock, "requests"."""
    pictures: dict[str, gr.HTML] = {}

    def add(*kinds: Picture) -> None:
        for kind in kinds:
            # On Live, Figures offers a race against plain decoding; Lengths offers other presets.
            asks = kind.asks or (kind in (Figures, Lengths) and page == "live")
            part_name = kind.part if page == "live" else ""
            pictures[kind.name] = replace(kind, asks=asks)(
                elem_id=f"{page}-{kind.name}", part=part_name, elem_classes=f"sp-pic-{kind.name}"
            )

    with gr.Column(elem_id=f"{page}-board", elem_classes="sp-board"):
        message_box = notice(f"{page}-notice", Line("info", welcome))
        add(Figures, TokenStrip, TokenTree, Scrubber)
        with gr.Column(elem_id=f"{page}-dock", elem_classes="sp-dock"):
            tabs = [name for name, _ in DOCK] + ["requests"] * (more is not None)
            part("dock.js", f"{page}-docked", {"tabs": {str(i): t for i, t in enumerate(tabs)}})
            for name, kinds in DOCK:
                with gr.Column(elem_classes=f"sp-pane sp-pane-{name}"):
                    add(*kinds)
            if more is not None:
                with gr.Column(elem_classes="sp-pane sp-pane-requests"):
                    more()
    return Board(page, context, welcome, message_box, pictures)
