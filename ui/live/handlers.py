"""Handlers of the Live tab."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from core.config import Request
from core.errors import ConfigError
from core.events import ModelInfo, RunCompleted, RunStarted
from ui.form.fields import config_of
from ui.form.form import control_updates, examples, preset_values, request_of, validity
from ui.live.layout import Live
from ui.live.rerun import before_of
from ui.run.baselines import still_valid
from ui.run.opening import OPENING, ROUNDS_A_SECOND
from ui.run.plain_run import BLOCKS, race_plain
from ui.run.player import Pace, Player
from ui.run.source import MemorySource, last_event
from ui.server.context import Context
from ui.server.session import STOP_WAIT_S, Hub, TabSession, play, seldom
from ui.server.under_way import stop
from ui.shared.board import Values
from ui.shared.parts import header_value, notice_value
from ui.shared.study_words import measured_words
from ui.words.messages import Line
from ui.words.refusals import refusal_words

__all__ = [
    "OPENING_NOTICE",
    "Press",
    "Question",
    "run_question",
    "opening_run",
    "play_opening",
    "record_opening",
    "run_on_change",
    "show_opening",
    "check_form",
    "left_notice",
    "clear_trouble",
    "header_for_form",
    "header_now",
    "start_run",
    "stop_run",
    "temperature_hint",
]

# Milliseconds until the next update of the header.
BUSY_MS, REST_MS = 1000, 5000
PLAIN = "autoregressive"
OPENING_NOTICE = "This is a recorded run, played slowly. Press Run for one of your own."
LEFT_NOTICES = {
    "running": "Your run was stopped when this page was left or loaded anew; it is in Sessions.",
    "queued": "Your run was taken out of the queue when this page was left or loaded anew.",
}
Question = Callable[[Hub, TabSession, str], Iterator[object]]
"""(hub, session, the visitor's key) -> an iterator that yields once per frame and stores the answer
in the session."""


@dataclass(frozen=True, slots=True)
class Press:
    """One click. `owner`: the visitor's key; `values`: the form's values.

    `compare`: whether the previous run stays as a pale line. `race`: whether plain decoding follows
    the run. `stops`: the number of clicks on Stop before this click, as the browser counted them;
    None without a browser.
    """

    owner: str
    values: Sequence[Any] = ()
    compare: bool = False
    race: bool = False
    stops: int | None = None

    def has_later_stop(self, session: TabSession) -> bool:
        """Whether Stop was clicked after this click but arrived before it."""
        return self.stops is not None and self.stops < session.stops


def live_values(live: Live, session: TabSession, values: Values) -> Values:
    """The header's value, then the board's values."""
    return [header_now(live, session), *values]


def header_now(live: Live, session: TabSession) -> dict[str, Any]:
    """The header's value. `changed`: whether the form differs from the displayed run;
    `preset_runs`: whether choosing a preset starts a run."""
    with session.drawing:
        frame = session.frame()
        state = "queued" if frame.place else "ready"
        if not frame.ended and frame.run_id and not frame.place:
            state = "running"
        elif session.side is not None:
            state = "racing"
        context = live.board.context
        # The scores are shown if the run's models have the names and sizes of the loaded models.
        run = frame.view.started
        is_of_loaded = run is not None and _identities(run.models) == _identities(context.models)
        scores = frame.view.scoreboard if is_of_loaded else {}
        chips = header_value(
            *(context.models, state, frame.place, context.offer, scores), context.model_host.ranks
        )
        differs, player = session.form_differs, session.player
        # None for a run in progress: `_is_finished` reads its last event, which may be only in the
        # log, and the log must not be read for every frame.
        ended = player if player is not None and player.source.is_done else None
        preset_runs = not differs and ended is not None and _is_finished(session, ended)
        value = {**chips, **_at_work(context, state)}
        value |= {"changed": differs, "preset_runs": preset_runs}
        return session.stamps.on("header", value)


def _identities(models: Iterable[ModelInfo]) -> set[tuple[str, int]]:
    return {(model.name, model.parameters) for model in models}


def _at_work(context: Context, state: str) -> dict[str, Any]:
    """A model load or a study, shown while this tab has no run of its own (`state` is `ready`).

    `at_work`: its name; empty if there is none. `measured`: how many runs a study has measured, in
    words. `ask_ms`: milliseconds until the header's next update."""
    progress, loading = context.conductor.progress(), context.model_host.swap.is_loading
    words = measured = ""
    if state == "ready" and loading:
        words = "loading"
    elif state == "ready" and progress.is_active:
        words, measured = progress.kind.title(), measured_words(progress)
    ask_ms = BUSY_MS if progress.is_active or loading else REST_MS
    return {"at_work": words, "measured": measured, "ask_ms": ask_ms}


def record_opening(context: Context) -> None:
    """Records the run that the page opens with, from the form's initial values. Does nothing
    without SSMs or if the initial preset is plain decoding."""
    names = context.drafter_names
    if not names or context.preset == PLAIN:
        return
    config = config_of(preset_values(context.preset, 0.0, names))
    request = Request(
        examples(context.chats_by_default)[0][1], speculation=config, chat=context.chats_by_default
    )
    start = partial(context.hub.start, log=False, background=True)
    context.opening.record(start, request)


def opening_run(context: Context) -> MemorySource | None:
    """The opening run; None without a completed recording. If the recording was cancelled, and
    no run is waiting or running, starts the recording again."""
    source = context.opening.source()
    if context.opening.was_stopped and context.hub.idle:
        record_opening(context)
    return source


def show_opening(session: TabSession, source: MemorySource, pace: Pace) -> None:
    """Shows the opening run: at full speed its end, at another pace its beginning."""
    session.look_at(Player(source, pace))
    started = source.events(0, 1)[0]
    assert isinstance(started, RunStarted)
    # `asked` is set so that choosing a preset runs the preset.
    session.asked, session.doing = Request.from_plain(started.asked), OPENING_NOTICE


def play_opening(live: Live, session: TabSession) -> Iterator[Values]:
    """Plays the opening run slowly, or shows its end if too many pages play it already. Does
    nothing before it is recorded, or if the tab shows a run or a message."""
    opening = live.board.context.opening
    source = opening_run(live.board.context)
    # Playing occupies a server thread, so `players` limits how many pages play at once.
    plays = opening.players.acquire(blocking=False)
    try:
        with session.drawing:  # a Run clicked meanwhile must not be replaced
            if source is None or session.player is not None or session.doing or session.trouble:
                return
            show_opening(session, source, Pace("slow", ROUNDS_A_SECOND) if plays else Pace("full"))
        for frame in live.board.stream(session, play(session)):
            yield live_values(live, session, frame)
    finally:
        if plays:
            opening.players.release()


def start_run(live: Live, session: TabSession, press: Press) -> Iterator[Values]:
    """Runs the form's request; with `press.race`, plain decoding follows a completed run with
    drafters."""
    context = live.board.context

    def frames() -> Iterator[object]:
        request = request_of(press.values)
        before = before_of(session) if press.compare and not session.shows_opening_run else None
        session.cancel()
        baseline = still_valid(session.baseline, request, context.models)
        source = context.hub.start(request, press.owner, baseline)
        session.look_at(player := Player(source, session.pace))
        # After `look_at`, which clears `asked` and `before`.
        session.asked, session.before, session.baseline = request, before, baseline
        session.form = request
        racing = press.race and bool(request.speculation.drafters)
        session.measuring = racing  # no speed-up is shown before all repeats are measured
        # Checked here, because a Stop that arrives later finds the player in the session.
        if press.has_later_stop(session):
            session.cancel()
        yield from play(session)
        if racing and session.player is player and not _is_finished(session, player):
            session.measuring = False
            yield None
        elif racing and session.player is player:
            race = race_plain(context.hub, session, press.owner, BLOCKS, False)
            yield from seldom(race)

    for frame in live.board.stream(session, frames()):
        yield live_values(live, session, frame)


def _is_finished(session: TabSession, player: Player) -> bool:
    return session.player is player and isinstance(last_event(player.source), RunCompleted)


def run_on_change(live: Live, session: TabSession, press: Press) -> Iterator[Values]:
    """Runs the form's request if it is valid and differs from the displayed run's request.

    With `press.compare` (Run on change) any difference suffices. Without it (a preset was chosen)
    the displayed run must be finished, and the requests must differ in the SpeculationConfig alone.
    """
    differs = _differs if press.compare else _differs_in_preset
    if not validity(press.values) and differs(session, press.values):
        yield from start_run(live, session, press)
    else:
        yield [gr.skip() for _ in live.outputs]


def _differs(session: TabSession, values: Sequence[Any]) -> bool:
    """Whether the form differs from the displayed run's request; True for an empty prompt."""
    prompt = values[0] or ""
    return not prompt.strip() or session.asked != request_of(values)


def _differs_in_preset(session: TabSession, values: Sequence[Any]) -> bool:
    """Whether a finished run is shown, and the form differs from its request in the
    SpeculationConfig alone."""
    asked, player = session.asked, session.player
    if asked is None or player is None or not _is_finished(session, player):
        return False
    if values[0] != asked.prompt:
        return False
    request = request_of(values)
    return request != asked and replace(request, speculation=asked.speculation) == asked


def stop_run(live: Live, session: TabSession, stops: int = 0) -> Values:
    """Stops the session's runs and freezes the pictures; at full speed, shows the run's end.
    `stops`: clicks on Stop in this tab, including this one."""

    def work() -> None:
        # First, because a Run that was clicked earlier may arrive at any moment.
        session.stops = max(session.stops, stops)
        player = session.player
        session.cancel()
        if player is None:
            return
        stop(player.source)  # also a run that another tab started
        player.source.wait_done(STOP_WAIT_S)
        if player.pace.mode == "full":
            player.to_end()
        else:
            player.set_pace(Pace("step", player.pace.rounds_per_second))

    return live_values(live, session, live.board.once(session, work))


def run_question(
    live: Live, session: TabSession, press: Press, question: Question
) -> Iterator[Values]:
    """Measures the answer to `question` about the displayed run."""

    def frames() -> Iterator[object]:
        steps = question(live.board.context.hub, session, press.owner)
        for frame in seldom(steps):
            # A Stop that arrived before the question's run had started did not find that run.
            if press.has_later_stop(session) and session.side is not None:
                session.side.cancel()
            yield frame

    for values in live.board.stream(session, frames()):
        yield live_values(live, session, values)


def clear_trouble(live: Live, session: TabSession, values: Sequence[Any]) -> Any:
    """The board's notice without the last problem, unless `values` are refused for the same
    reason."""
    if not session.trouble:
        return gr.skip()
    try:
        request_of(values)
    except ConfigError as error:
        if refusal_words(str(error)) in session.trouble:
            return gr.skip()
    session.trouble = ""
    return live.board.current_notice(session)


def header_for_form(live: Live, session: TabSession, values: Sequence[Any]) -> dict[str, Any]:
    """The header's value after the form has sent its `values`."""
    try:
        session.form = request_of(values)
    except ConfigError:  # the form, or Run once it is pressed, says why
        session.form = None
    return header_now(live, session)


def left_notice(live: Live, session: TabSession, left: str | None, linked: str = "") -> Any:
    """The notice of a tab that was just opened: what became of the tab's run. `left`: whether the
    run was `running` or `queued` when the tab was left; other values change nothing. `linked`: the
    id of the run that the page's address names."""
    run_id = session.player.source.run_id if session.player is not None else ""
    # If another run is shown, the visitor has started it meanwhile.
    if left not in LEFT_NOTICES or run_id not in ("", OPENING, linked):
        return gr.skip()
    shown_words = session.doing if run_id == linked else ""
    session.doing = f"{LEFT_NOTICES[left]} {shown_words}".rstrip()
    return live.board.current_notice(session)


def temperature_hint(live: Live, session: TabSession) -> Any:
    """The info text of the temperature control (`session.acceptance.words`). It changes only if
    the displayed run has completed, had drafters, and is not the opening run."""
    player, asked = session.player, session.asked
    if (
        player is None
        or asked is None
        or session.shows_opening_run
        or not asked.speculation.drafters
    ):
        return gr.skip()
    end = last_event(player.source)
    if not isinstance(end, RunCompleted):
        return gr.skip()
    session.acceptance.keep(asked, live.board.context.models, end.stats.draft_acceptance_rate)
    return gr.update(info=session.acceptance.words())


def check_form(values: Sequence[Any]) -> list[Any]:
    """The reason why the form cannot run, the Run button, and the controls that depend on other
    controls."""
    reason = refusal_words(validity(values))
    lines = [Line("error", reason)] if reason else []
    return [
        notice_value(lines),
        gr.Button(interactive=not reason),
        *control_updates(values).values(),
    ]
