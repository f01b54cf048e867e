"""What a press in the Learn tab does: open a lesson, run its example, try, answer. Plain functions
of the tab's components and the visitor's desk; ui/pages/learn.py connects them.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any

import gradio as gr

from core.config import Request
from core.errors import ConfigError, SpecScopeError
from ui.checks import prove, speed_key
from ui.frame import Baseline
from ui.lessons import LESSONS, Lesson, judged, lesson_of, missing, request_of
from ui.lessons.lesson import Setup
from ui.lessons.measured import measured, table_value
from ui.messages import Line
from ui.pages.learn_layout import Learn, try_words
from ui.pages.lesson_parts import finished, lesson_value
from ui.pages.parts import notice_value
from ui.player import Pace, Player
from ui.session import Desk, play
from ui.source import StoredSource
from ui.view import View, reduce_all

__all__ = ["answered", "asked_for", "example", "followed", "stopped", "tried", "turned"]

Values = list[Any]
STOP_WAIT_S = 2.0
MEASURING = (
    "Before its first token, goodput measures how long passes of the LLM take, once for each start "
    "of this page. That needs a few seconds."
)


# -- a lesson is opened --


def turned(
    learn: Learn, desk: Desk, number: float | None, progress: Mapping[str, Any] | None
) -> Values:
    """Open lesson `number`: what `learn.turning` shows. Its last run is on the board again."""
    lesson = lesson_of(number)
    at = LESSONS.index(lesson) + 1
    _follow(learn, desk)
    names = learn.board.context.drafter_names
    cannot = missing(lesson, names)
    board = learn.board.once(desk, lambda: _look_again(learn, desk, lesson))
    ready = not cannot
    return [
        lesson_value(at, progress or {}),
        at,
        gr.Button(interactive=ready),
        try_words(lesson.attempt.words),
        gr.Button(lesson.attempt.button, interactive=ready),
        f"**A question.** {lesson.question.words}",
        *_answers(lesson, names),
        gr.Button(interactive=ready),
        gr.Button(interactive=at > 1),
        gr.Button(interactive=at < len(LESSONS)),
        gr.Button(interactive=ready),
        *board,
        *_beside(desk, lesson, cannot),
    ]


def followed(learn: Learn, desk: Desk, number: float | None) -> Values:
    """The lesson that is open, for the models that stand now: what `learn.following` shows.

    A run that goes on keeps the board: it ends on the models that it was begun with.
    """
    lesson = lesson_of(number)
    _follow(learn, desk)
    names = learn.board.context.drafter_names
    cannot = missing(lesson, names)
    ready = not cannot
    runs_on = desk.player is not None and not desk.player.source.done
    board = learn.board.once(desk, lambda: None if runs_on else _look_again(learn, desk, lesson))
    buttons = [gr.Button(interactive=ready) for _ in range(4)]
    return [*buttons, _answers(lesson, names)[1], *board, *_beside(desk, lesson, cannot)]


def _follow(learn: Learn, desk: Desk) -> Hashable:
    """The models that stand now count from here on; a speed of others is none to compare with."""
    rig = learn.board.context.rig
    models = (rig.pair, rig.infos)
    if desk.lecture.follow(models):
        desk.baseline = None
    return models


def _answers(lesson: Lesson, names: Sequence[str]) -> Values:
    """The box for a number or the names to choose from, empty; the other is out of sight."""
    numeric, unit = lesson.question.numeric, lesson.question.unit
    label = f"Your answer ({unit})" if unit else "Your answer"
    return [
        gr.Number(value=None, visible=numeric, label=label, step=10.0**-lesson.question.places),
        gr.Radio(choices=[*names, *lesson.question.besides], value=None, visible=not numeric),
    ]


def _look_again(learn: Learn, desk: Desk, lesson: Lesson) -> None:
    row = desk.lecture.evidence(lesson.key).last
    desk.look_at(None)
    desk.baseline = None
    if row is None:
        return
    try:
        player = Player(StoredSource(learn.board.context.store, row.run_id))
    except SpecScopeError:
        return  # deleted in Sessions meanwhile; its row in the table is still true
    player.advance(0.0)
    desk.look_at(player)


def _beside(desk: Desk, lesson: Lesson, cannot: str = "") -> Values:
    """The table of runs, and below the question what has to run before there is an answer."""
    evidence = desk.lecture.evidence(lesson.key)
    first = lesson.question.needs if lesson.question.answer(evidence) is None else ""
    line = Line("warn", cannot) if cannot else Line("info", first)
    others = Line("info", _gone(desk.lecture.others(lesson.key)))
    planned = [setup.label for setup in lesson.setups]
    return [table_value(evidence, lesson.columns, planned), notice_value([line, others])]


def _gone(rows: int) -> str:
    """Why runs are no longer in the table."""
    if not rows:
        return ""
    runs = "A run" if rows == 1 else f"{rows} runs"
    return (
        f"{runs} with other models left the table: only runs with the same models can be compared."
    )


# -- runs --


def example(
    learn: Learn, desk: Desk, number: float | None, owner: str, pace: Pace
) -> Iterator[Values]:
    """Run the lesson's example: what `learn.running` shows, frame by frame."""
    lesson = lesson_of(number)
    yield from _streamed(
        learn, desk, lesson, _runs(learn, desk, lesson, lesson.example, owner, pace)
    )


def tried(
    learn: Learn, desk: Desk, number: float | None, owner: str, pace: Pace
) -> Iterator[Values]:
    """Do the lesson's thing to try."""
    lesson = lesson_of(number)
    setup = lesson.attempt.setup
    if setup is not None:
        work = _runs(learn, desk, lesson, (setup,), owner, pace)
    else:
        work = prove(learn.board.context.hub, desk, owner)
    yield from _streamed(learn, desk, lesson, work)


def _streamed(learn: Learn, desk: Desk, lesson: Lesson, work: Iterator[object]) -> Iterator[Values]:
    for drawn in learn.board.stream(desk, work):
        yield [*drawn, *_beside(desk, lesson)]


def _runs(
    learn: Learn, desk: Desk, lesson: Lesson, setups: Sequence[Setup], owner: str, pace: Pace
) -> Iterator[object]:
    """One run after the other, until the visitor turns to something else or stops one."""
    if cannot := missing(lesson, learn.board.context.drafter_names):
        raise ConfigError(cannot)
    for at, setup in enumerate(setups):
        last = at == len(setups) - 1
        models = _follow(learn, desk)
        player = _begin(learn, desk, setup, owner, pace if last else Pace())
        kept = yield from _played(desk, lesson, setup, player, models)
        if desk.player is not player or not kept:
            return
        yield None  # with its row in the table


def _played(
    desk: Desk, lesson: Lesson, setup: Setup, player: Player, models: Hashable
) -> Generator[object, None, bool]:
    """Show a run; whether it was completed. Its row stands in the table as soon as the engine has
    finished: the pictures may be far behind, and whoever does not wait for them loses nothing."""
    kept = False
    if setup.speculation.length == "goodput":
        desk.doing = MEASURING
    for frame in play(desk):
        if desk.player is player and player.source.count:
            desk.doing = ""
        kept = kept or (player.source.done and _kept(desk, lesson, setup, player, models))
        yield frame
    return kept or (player.source.done and _kept(desk, lesson, setup, player, models))


def _begin(learn: Learn, desk: Desk, setup: Setup, owner: str, pace: Pace) -> Player:
    context = learn.board.context
    request = request_of(setup, context.drafter_names)
    desk.cancel()
    player = Player(context.hub.start(request, owner), pace)
    desk.look_at(player)
    desk.asked = request
    if desk.baseline and desk.baseline.request != speed_key(request):
        desk.baseline = None
    return player


def _kept(desk: Desk, lesson: Lesson, setup: Setup, player: Player, models: Hashable) -> bool:
    """Put a run that `models` have completed into the table; of the LLM alone, make it the
    baseline."""
    source = player.source
    view = reduce_all(source.events(0, source.count))
    if view.state != "completed" or not view.rounds:
        return False
    desk.lecture.keep(lesson.key, measured(setup.label, view), models)
    if desk.player is player and not view.drafters and "tps" in lesson.columns:
        desk.baseline = _baseline(view)
    return True


def _baseline(view: View) -> Baseline:
    assert view.started is not None
    rate = view.stats.tokens_per_second
    note = f"the LLM alone, measured in this lesson: {rate:.1f} tokens/s"
    key = speed_key(Request.from_plain(view.started.asked))
    return Baseline(rate, view.run_id, note, key)


def stopped(learn: Learn, desk: Desk) -> list[dict[str, Any]]:
    """Stop the engine for this desk; the board shows how far it came."""

    def work() -> None:
        player = desk.player
        desk.cancel()
        if player is not None:
            player.source.wait_done(STOP_WAIT_S)
            player.to_end()

    return learn.board.once(desk, work)


# -- the question --


def answered(
    desk: Desk,
    number: float | None,
    given: tuple[float | None, str | None],
    progress: Mapping[str, Any] | None,
) -> Values:
    """Judge an answer, `given` as a number and as a name: the verdict, the visitor's progress, the
    lesson with its mark."""
    lesson = lesson_of(number)
    at = LESSONS.index(lesson) + 1
    evidence = desk.lecture.evidence(lesson.key)
    right, line = judged(lesson.question, evidence, given[0 if lesson.question.numeric else 1])
    kept = dict(progress) if isinstance(progress, dict) else {}
    if not right:
        return [notice_value([line]), gr.skip(), gr.skip()]
    done = finished(kept)
    kept = {**kept, "done": [*done, *({lesson.key} - set(done))], "at": at}
    left = [i for i, one in enumerate(LESSONS, 1) if one.key not in kept["done"]]
    more = f"Lesson {at} is finished." if left else "You have finished all lessons."
    return [notice_value([line, Line("info", more)]), kept, lesson_value(at, kept)]


def asked_for(learn: Learn, desk: Desk, number: float | None) -> Request:
    """The request on the board, else the example's last. ConfigError where it cannot run."""
    lesson = lesson_of(number)
    names = learn.board.context.drafter_names
    if cannot := missing(lesson, names):
        raise ConfigError(cannot)
    latest = desk.lecture.evidence(lesson.key).latest
    setup = next((one for one in lesson.setups if one.label == latest), lesson.example[-1])
    return request_of(setup, names)
