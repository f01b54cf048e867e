"""The board: every picture of a run, its playback bar and its notice. Live and Sessions have one
each, and both draw frames made by the same `reduce`.

Layout and values; ui/shared/steering.py moves through a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.components import (
    Figures,
    Inspector,
    Legend,
    Lengths,
    Proposals,
    Routing,
    Timeline,
    TokenStrip,
    TokenTree,
    pack,
)
from ui.run.values import PICTURES, names_value
from ui.server.context import Context
from ui.server.session import TabSession, guard, guard_once
from ui.shared.parts import log_line, notice, notice_value
from ui.shared.playback import build_playback
from ui.words.messages import Line, run_lines
from ui.words.settings import settings_line

__all__ = ["Board", "Values", "build_board"]

Values = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Board:
    """The components of one board; `page` names it in ids and sessions.

    `welcome`: its notice before there is a run.
    """

    page: str
    context: Context
    welcome: str
    notice: gr.HTML
    pictures: dict[str, gr.HTML]
    speed: gr.Radio
    rate: gr.Slider
    buttons: dict[str, gr.Button]
    scrub: gr.Slider | None
    stop: gr.Button | None = None
    """Pressed, it stops what `moves`; of the page around the board, where that is no run's own."""

    @property
    def outputs(self) -> list[Component]:
        return [self.notice, *self.pictures.values()]

    def session(self, request: gr.Request) -> TabSession:
        """The session of the calling tab."""
        return self.context.tab_sessions.of(request.session_hash, self.page)

    def current_notice(self, session: TabSession) -> dict[str, Any]:
        """The notice's present value."""
        with session.drawing:
            return session.stamps.on("notice", self._notice(session))

    def _notice(self, session: TabSession) -> dict[str, Any]:
        frame = session.frame()
        first, *rest = run_lines(frame, session.baseline, session.answer)
        if not frame.run_id:
            first = Line("info", self.welcome)
        # The box has a fixed height: what is short and new comes before what explains at length.
        log = log_line(self.context.store.status())
        now = [Line("info", session.doing), Line("error", session.trouble), log]
        past = self.scrub is not None  # in Live the form shows the settings
        lines = [Line("info", settings_line(frame.view) if past else "")]
        return notice_value([first, *now, *lines, *rest], again=bool(log.text))

    @property
    def places(self) -> list[Component]:
        """The slider over the rounds and the button that stops, if the board has them."""
        return [one for one in (self.scrub, self.stop) if one is not None]

    def place(self, session: TabSession) -> list[Any]:
        """The present values of `places`: complete rounds, all rounds, whether it is playing."""
        frame, shown = session.frame(), list[Any]()
        if self.scrub is not None:
            last = max(1, frame.known_rounds)
            shown.append(gr.update(maximum=last, value=len(frame.view.rounds)))
        if self.stop is not None:
            moves = session.player is not None and not session.player.resting
            shown.append(gr.update(interactive=moves))
        return shown

    def values(self, session: TabSession) -> Values:
        """The present values of `outputs`."""
        with session.drawing:
            lines, frame = self.current_notice(session), session.frame()
            pictures = session.pictures.values(
                frame, session.baseline, time.monotonic(), session.before
            )
            if not frame.run_id:  # the loaded models', as on a board that never showed a run
                pictures["legend"] = names_value(self.context.models)
            packed = {name: pack(pictures[name]) for name in self.pictures}
            return [lines, *(session.stamps.on(name, value) for name, value in packed.items())]

    def failure_values(self, session: TabSession) -> Callable[[str], Values]:
        """A function that makes the values to show after an error in a handler."""

        def show(message: str) -> Values:
            session.trouble = message
            return self.values(session)

        return show

    def stream(self, session: TabSession, frames: Iterator[object]) -> Iterator[Values]:
        """The board's values for each of `frames`; errors are shown on the board."""
        session.trouble = ""
        return guard((self.values(session) for _ in frames), self.failure_values(session))

    def once(self, session: TabSession, work: Callable[[], None]) -> Values:
        """Call `work`, then return the board's values."""

        def work_and_show() -> Values:
            with session.drawing:
                session.trouble = ""
                work()
                return self.values(session)

        return guard_once(work_and_show, self.failure_values(session))


# -- layout --


def build_board(context: Context, page: str, welcome: str, scrub: bool = False) -> Board:
    """Lay out notice, figures, text, playback and pictures, in reading order.

    `scrub` adds a slider over the rounds, for runs that are complete.
    """
    message_box = notice(f"{page}-notice", Line("info", welcome))
    figures = Figures(elem_id=f"{page}-figures")
    bar = build_playback(page, scrub)
    # Side by side on a projector, one below the other on a notebook.
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=620):
            strip = TokenStrip(elem_id=f"{page}-strip")
        with gr.Column(scale=1, min_width=620):
            tree = TokenTree(elem_id=f"{page}-tree")
    legend = Legend(pack(names_value(context.models)), elem_id=f"{page}-legend")
    routing = Routing(elem_id=f"{page}-routing")
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=560):
            inspector = Inspector(elem_id=f"{page}-inspector")
        with gr.Column(scale=1, min_width=560):
            proposals = Proposals(elem_id=f"{page}-proposals")
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=360):
            lengths = Lengths(elem_id=f"{page}-lengths")
        with gr.Column(scale=1, min_width=360):
            timeline = Timeline(elem_id=f"{page}-timeline")
    views = {
        "legend": legend,
        "figures": figures,
        "strip": strip,
        "tree": tree,
        "routing": routing,
        "proposals": proposals,
        "inspector": inspector,
        "lengths": lengths,
        "timeline": timeline,
    }
    pictures = {name: views[name] for name in PICTURES}
    return Board(page, context, welcome, message_box, pictures, *bar)
