"""What a press in the Live tab does: run, stop, run again, ask about a run. Plain functions of the
tab's components and the visitor's desk; ui/live/tab.py connects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.form.form import followed, request_of, validity
from ui.live.layout import Live
from ui.live.rerun import before_of
from ui.run.baselines import still_valid
from ui.run.player import Pace, Player
from ui.server.session import Hub, TabSession, play
from ui.shared.board import Values
from ui.shared.parts import header_value, notice_value
from ui.words.messages import Line

__all__ = [
    "Press",
    "Question",
    "asked",
    "changed",
    "checked",
    "left",
    "mended",
    "started",
    "stopped",
]

STOP_WAIT_S = 2.0
LEFT = "Your run was stopped when this page was left or loaded anew; it is in Sessions."
Question = Callable[[Hub, TabSession, str], Iterator[object]]


@dataclass(frozen=True, slots=True)
class Press:
    """What came with one press: whose it was, the form's `values`, the speed of the pictures.

    `compare` keeps the run before as a pale line. `stops`: how often Stop had been pressed then, as
    the browser counts it; None where nobody counts.
    """

    owner: str
    values: Sequence[Any] = ()
    compare: bool = False
    stops: int | None = None
    pace: tuple[str, float] = ("full", 2.0)

    def overtaken(self, desk: TabSession) -> bool:
        """Whether a Stop that was pressed later has come first: what begins now is to end."""
        return self.stops is not None and self.stops < desk.stops


def shown(live: Live, desk: TabSession, values: Values) -> Values:
    """The board's values with the header's before them."""
    with desk.drawing:
        frame = desk.frame()
        state = "queued" if frame.place else "ready"
        if not frame.ended and frame.run_id and not frame.place:
            state = "running"
        elif desk.side is not None:
            state = "decoding plainly"
        chips = header_value(live.board.context.models, state, frame.place)
        return [desk.stamps.on("header", chips), *values]


def started(live: Live, desk: TabSession, press: Press) -> Iterator[Values]:
    """Run the form's request: check it, queue it, play it until it rests."""
    context = live.board.context

    def frames() -> Iterator[object]:
        request = request_of(press.values)
        before = before_of(desk) if press.compare else None
        desk.cancel()
        baseline = still_valid(desk.baseline, request, context.models)
        source = context.hub.start(request, press.owner, baseline)
        desk.look_at(Player(source, Pace(*press.pace)))
        desk.asked, desk.before, desk.baseline = request, before, baseline
        # Only now: a Stop that comes later finds the player on the desk.
        if press.overtaken(desk):
            desk.cancel()
        yield from play(desk)

    for drawn in live.board.stream(desk, frames()):
        yield shown(live, desk, drawn)


def changed(live: Live, desk: TabSession, press: Press) -> Iterator[Values]:
    """A control was moved: run, if "Run on change" is on and that is another request.

    Settings that cannot run change nothing; the reason stands beside Run.
    """
    if not press.compare:
        return
    if not validity(press.values) and not _same(desk, press.values):
        yield from started(live, desk, press)
    else:
        yield [gr.skip() for _ in live.outputs]


def _same(desk: TabSession, values: Sequence[Any]) -> bool:
    prompt = values[0] or ""
    return bool(prompt.strip()) and desk.asked == request_of(values)


def stopped(live: Live, desk: TabSession, stops: int = 0) -> Values:
    """Stop the engine for this desk, and the pictures where they are; full speed shows the end.

    `stops` counts the presses of Stop in this tab, this one included.
    """

    def work() -> None:
        # Before all else: a Run that was pressed earlier may come at any moment.
        desk.stops = max(desk.stops, stops)
        player = desk.player
        desk.cancel()
        if player is None:
            return
        player.source.wait_done(STOP_WAIT_S)
        if player.pace.mode == "full":
            player.to_end()
        else:
            player.set_pace(Pace("step", player.pace.rounds_per_second))

    return shown(live, desk, live.board.once(desk, work))


def asked(live: Live, desk: TabSession, press: Press, question: Question) -> Iterator[Values]:
    """`measure_baseline` or `prove` for the run that is looked at."""

    def frames() -> Iterator[object]:
        for frame in question(live.board.context.hub, desk, press.owner):
            # A Stop that came before the second run was there did not find it.
            if press.overtaken(desk) and desk.side is not None:
                desk.side.cancel()
            yield frame

    for drawn in live.board.stream(desk, frames()):
        yield shown(live, desk, drawn)


def mended(live: Live, desk: TabSession) -> Any:
    """The board's notice once the form has changed: what was refused before is another matter."""
    if not desk.trouble:
        return gr.skip()
    desk.trouble = ""
    return live.board.said(desk)


def left(live: Live, desk: TabSession, was_running: int | None) -> Any:
    """The notice of a tab that has just been opened: where its run went, if one was under way."""
    if not was_running or desk.player is not None:
        return gr.skip()
    desk.doing = LEFT
    return live.board.said(desk)


def checked(values: Sequence[Any]) -> list[Any]:
    """What the settings allow: the reason against Run, Run itself, the controls that follow."""
    reason = validity(values)
    lines = [Line("error", reason)] if reason else []
    return [notice_value(lines), gr.Button(interactive=not reason), *followed(values).values()]
