"""Handlers of the Learn tab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from core.config import Request
from core.errors import ConfigError, SpecScopeError, StoreError
from core.plurals import number_of
from ui.learn.layout import Learn, coming_words, question_words, reason_words, try_words
from ui.learn.lessons import LESSONS, Lesson, judge, lesson_of, request_of
from ui.learn.lessons.measured import runs_table_value
from ui.learn.parts import finished_lessons, lesson_value
from ui.learn.runs import cannot_run, follow, runs
from ui.run.baselines import baseline_of, key_of_run
from ui.run.plain_run import BLOCKS, race_plain
from ui.run.player import Pace, Player
from ui.run.source import StoredSource
from ui.server.session import STOP_WAIT_S, TabSession, seldom
from ui.shared.click_order import with_time
from ui.shared.parts import notice_value
from ui.words.messages import Line

__all__ = [
    "OFF",
    "judge_answer",
    "request_on_board",
    "run_example",
    "lesson_values",
    "show_run",
    "stop_runs",
    "try_lesson",
    "open_lesson",
    "past_requests",
]

STILL_RUNNING = "a run goes on: this one can be shown once it has ended, or press Stop"
DELETED = "this run was deleted in Sessions: its figures stay, its pictures are gone"
OFF = "This example cannot run here; the reason is below its button."

Values = list[Any]


# -- open a lesson --


def open_lesson(
    learn: Learn, session: TabSession, number: float | None, progress: Mapping[str, Any] | None
) -> Values:
    """Opens lesson `number` with its displayed run; returns values of `learn.lesson_outputs`."""
    lesson = lesson_of(number)
    with session.drawing:
        session.lecture.at = at = LESSONS.index(lesson) + 1
    follow(learn, session)
    names = learn.board.context.drafter_names
    reason = cannot_run(learn, lesson)
    session.no_run_words = OFF if reason else coming_words(lesson)
    board = learn.board.once(session, lambda: _show_last_run(learn, session, lesson))
    ready = not reason
    return [
        lesson_value(at, progress or {}),
        at,
        gr.Button(interactive=ready),
        _attempt_words(lesson, reason),
        gr.Button(lesson.attempt.button, interactive=ready),
        question_words(lesson.question.words),
        *_answers(lesson, names),
        gr.Button(interactive=ready),
        gr.Button(interactive=at > 1),
        gr.Button(interactive=at < len(LESSONS)),
        gr.Button(interactive=ready),
        *board,
        *_runs_and_question(session, lesson, reason),
    ]


def lesson_values(learn: Learn, session: TabSession, number: float | None) -> Values:
    """Values of `learn.models_outputs` for the loaded models. A run in progress stays on the
    board."""
    lesson = lesson_of(number)
    follow(learn, session)
    names = learn.board.context.drafter_names
    reason = cannot_run(learn, lesson)
    ready = not reason
    session.no_run_words = OFF if reason else coming_words(lesson)
    is_running = session.player is not None and not session.player.source.is_done
    board = learn.board.once(
        session, lambda: None if is_running else _show_last_run(learn, session, lesson)
    )
    buttons = [gr.Button(interactive=ready) for _ in range(4)]
    return [
        *buttons,
        _answers(lesson, names)[1],
        _attempt_words(lesson, reason),
        *board,
        *_runs_and_question(session, lesson, reason),
    ]


def _attempt_words(lesson: Lesson, reason: str) -> str:
    return reason_words(reason) if reason else try_words(lesson.attempt.words)


def _answers(lesson: Lesson, names: Sequence[str]) -> Values:
    """A number box and radio buttons, both empty; the control that is not needed is hidden."""
    numeric, unit = lesson.question.numeric, lesson.question.unit
    label = f"Your answer ({unit})" if unit else "Your answer"
    return [
        gr.Number(value=None, visible=numeric, label=label, step=10.0**-lesson.question.places),
        gr.Radio(choices=[*names, *lesson.question.besides], value=None, visible=not numeric),
    ]


def _show_last_run(learn: Learn, session: TabSession, lesson: Lesson) -> None:
    row = session.lecture.evidence(lesson.key).last
    session.look_at(None)
    session.baseline = None
    if row is None:
        return
    store = learn.board.context.store
    try:
        player = Player(StoredSource(store, row.run_id))
        run = store.run(row.run_id)
    except SpecScopeError:
        return  # perhaps deleted meanwhile; its row in the table stays
    player.advance(0.0)
    session.look_at(player)
    session.baseline = baseline_of(store, run)
    if session.baseline is not None:
        session.baseline = replace(session.baseline, request=key_of_run(player.frame().view))


def _runs_and_question(session: TabSession, lesson: Lesson, reason: str = "") -> Values:
    """The table of runs, and a notice about the lesson and its runs."""
    with session.drawing:
        evidence = session.lecture.evidence(lesson.key)
        measuring = lesson.timed and session.measuring
        labels = [setup.label for setup in lesson.setups]
        table = runs_table_value(
            evidence, lesson.columns, labels, timed=lesson.timed, measuring=measuring
        )
        stamped = session.stamps.on("rows", {"lesson": lesson.key, **table})
    needed = lesson.question.needs if lesson.question.answer(evidence) is None else ""
    first = Line("warn", reason) if reason else Line("info", needed)
    hidden = Line("info", _hidden_words(session.lecture.others(lesson.key)))
    lines = [first, Line("info", "" if measuring else lesson.outcome(evidence)), hidden]
    return [stamped, with_time(notice_value(lines))]


def show_run(learn: Learn, session: TabSession, number: float | None, label: str) -> Values:
    """Puts a run of the table back on the board; returns values of `learn.run_outputs`."""
    lesson = lesson_of(number)

    def work() -> None:
        sources = (session.player.source if session.player else None, session.side)
        if any(source is not None and not source.is_done for source in sources):
            raise StoreError(STILL_RUNNING)
        if session.lecture.display(lesson.key, label):
            _show_last_run(learn, session, lesson)
            if session.player is None:
                raise StoreError(DELETED)

    return [*learn.board.once(session, work), *_runs_and_question(session, lesson)]


def past_requests(session: TabSession) -> dict[str, Any] | None:
    """The view of all requests in a round of the board's ended run (which round: see
    `Lecture.requests_at`); None without such a run or view."""
    player = session.player
    if player is None or not player.source.is_done:
        return None
    frame, run_id = player.frame(), player.source.run_id
    kept = session.lecture.requests_at(run_id, frame.selected_round + 1, frame.pinned)
    if kept is None:
        return None
    number, requests = kept
    rounds = frame.view.rounds
    scheduled = [line.scheduled for line in rounds if line.scheduled is not None]
    granted, drafted = (
        sum(getattr(one, name) for one in scheduled) for name in ("num_granted", "num_drafted")
    )
    sums = f" In its {number_of(len(rounds), 'round')}: {granted} of {drafted} nodes verified."
    return {
        **requests,
        "pool": f"The run shown, as it was in its round {number}: {requests['pool']}"
        + (sums if scheduled and frame.at_end else ""),
    }


def _hidden_words(rows: int) -> str:
    if not rows:
        return ""
    runs = "A run" if rows == 1 else f"{rows} runs"
    return (
        f"{runs} with other models left the table: only runs with the same models can be compared."
    )


# -- runs --


def run_example(
    learn: Learn, session: TabSession, number: float | None, owner: str, pace: Pace
) -> Iterator[Values]:
    """Runs the lesson's example; yields `learn.run_outputs` for each frame."""
    lesson = lesson_of(number)
    yield from _stream(
        learn, session, lesson, runs(learn, session, lesson, lesson.example, owner, pace)
    )


def try_lesson(
    learn: Learn, session: TabSession, number: float | None, owner: str, pace: Pace
) -> Iterator[Values]:
    """Runs the lesson's experiment; yields as `run_example` does."""
    lesson = lesson_of(number)
    setup = lesson.attempt.setup
    if setup is not None:
        work = runs(learn, session, lesson, (setup,), owner, pace)
    else:
        work = seldom(race_plain(learn.board.context.hub, session, owner, BLOCKS))
    yield from _stream(learn, session, lesson, work)


def _stream(
    learn: Learn, session: TabSession, lesson: Lesson, work: Iterator[object]
) -> Iterator[Values]:
    shown_notice: dict[str, Any] = {}
    for frame in learn.board.stream(session, work):
        # Under the lock `open_lesson` cannot open another lesson between these lines.
        with session.drawing:
            shown = lesson_of(session.lecture.at) if session.lecture.at else lesson
            table, notice = _runs_and_question(session, shown)
        # An unchanged notice keeps its number (see `with_time`), so that it does not replace the
        # verdict on an answer given meanwhile.
        if notice["lines"] != shown_notice.get("lines"):
            shown_notice = notice
        yield [*frame, table, shown_notice]


def stop_runs(learn: Learn, session: TabSession) -> list[dict[str, Any]]:
    """Stops the session's runs; the board moves to the end."""

    def work() -> None:
        player = session.player
        session.cancel()
        if player is not None:
            player.source.wait_done(STOP_WAIT_S)
            player.to_end()

    return learn.board.once(session, work)


# -- the question --


def judge_answer(
    session: TabSession,
    number: float | None,
    answer: tuple[float | None, str | None],
    progress: Mapping[str, Any] | None,
) -> Values:
    """Judges `answer`, a number and a name. Returns the verdict and, if right, the visitor's
    progress and the lesson marked as finished."""
    lesson = lesson_of(number)
    at = LESSONS.index(lesson) + 1
    evidence = session.lecture.evidence(lesson.key)
    right, line = judge(lesson.question, evidence, answer[0 if lesson.question.numeric else 1])
    new_progress = dict(progress) if isinstance(progress, dict) else {}
    if not right:
        return [with_time(notice_value([line])), gr.skip(), gr.skip()]
    finished = finished_lessons(new_progress)
    new_progress = {**new_progress, "done": [*finished, *({lesson.key} - set(finished))], "at": at}
    left = [i for i, one in enumerate(LESSONS, 1) if one.key not in new_progress["done"]]
    summary = f"Lesson {at} is finished." if left else "You have finished all lessons."
    verdict = with_time(notice_value([line, Line("info", summary)]))
    return [verdict, new_progress, lesson_value(at, new_progress)]


def request_on_board(learn: Learn, session: TabSession, number: float | None) -> Request:
    """The request of the lesson's displayed run, else of the example's last run. Raises
    ConfigError."""
    lesson = lesson_of(number)
    names = learn.board.context.drafter_names
    if reason := cannot_run(learn, lesson):
        raise ConfigError(reason)
    latest = session.lecture.evidence(lesson.key).latest
    setup = next((one for one in lesson.setups if one.label == latest), lesson.example[-1])
    return request_of(setup, names)
