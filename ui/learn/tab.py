"""Wiring of the Learn tab: guided lessons, each with real runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gradio as gr

from core.config import Request
from ui.learn.handlers import (
    Values,
    judge_answer,
    lesson_values,
    open_lesson,
    past_requests,
    request_on_board,
    run_example,
    show_run,
    stop_runs,
    try_lesson,
)
from ui.learn.layout import Learn, build_learn
from ui.learn.lessons import LESSONS
from ui.live.layout import Live
from ui.server.session import TabSession
from ui.sessions.history import rights_of
from ui.shared.all_requests import wire_requests_view
from ui.shared.board_handlers import wire_board
from ui.shared.event_options import EACH, LATEST, QUICK, QUIET
from ui.shared.into_live import into_live
from ui.shared.link_fields import wanted_lesson
from ui.shared.links import linked_run, wrong_link

__all__ = ["Learn", "build_learn", "wire_learn", "wire_lessons"]

SHOW_WHERE = "() => { window.specscopeLesson?.point(); }"
RUN_BEGINS = "() => { window.specscopeLesson?.runs(1); }"
RUN_ENDS = "() => { window.specscopeLesson?.runs(-1); }"
COPY_LINK = "() => { window.specscopeLink?.copy('learn-copy'); }"


def wire_learn(
    learn: Learn, visitor: gr.BrowserState, live: Live, tabs: gr.Tabs, blocks: gr.Blocks
) -> None:
    """Connects the tab's components."""
    progress = gr.BrowserState({}, storage_key="specscope-lessons", secret="specscope")
    wire_board(learn.board)
    _wire_runs(learn, visitor)

    def past(request: gr.Request) -> dict[str, Any] | None:
        return past_requests(learn.board.session(request))

    wire_requests_view(learn.requests, learn.board.context, visitor, past)
    turn: dict[str, Any] = {
        "inputs": [learn.at, progress],
        "outputs": [progress, *learn.lesson_outputs],
    }
    load_inputs = [*turn["inputs"], visitor]
    blocks.load(_load_handler(learn), load_inputs, turn["outputs"], **QUICK)
    learn.lesson.select(_choose_handler(learn), **turn, **EACH)
    learn.previous.click(_turn_handler(learn, _step_by(-1)), **turn, **LATEST)
    learn.next.click(_turn_handler(learn, _step_by(1)), **turn, **LATEST)
    for trigger in (learn.check.click, learn.number.submit):
        trigger(
            _answer_handler(learn),
            [learn.at, learn.number, learn.choice, progress],
            [learn.verdict, progress, learn.lesson],
            **QUICK,
        )
    learn.show.click(None, None, None, js=SHOW_WHERE)
    learn.copy.click(None, None, None, js=COPY_LINK)
    into_live(live, tabs, learn.into_live.click, _request_handler(learn), [learn.at], learn.verdict)


def wire_lessons(learn: Learn, triggers: Iterable[Callable[..., Any]]) -> None:
    """At each of `triggers`, updates the open lesson if the models were swapped."""
    loaded_version = gr.State(learn.board.context.model_host.version)
    for trigger in triggers:
        trigger(
            _follow_handler(learn),
            [loaded_version, learn.at],
            [loaded_version, *learn.models_outputs],
            **QUICK,
        )


def _wire_runs(learn: Learn, visitor: gr.BrowserState) -> None:
    stream: dict[str, Any] = {
        "inputs": [visitor, learn.at],
        "outputs": learn.run_outputs,
        **QUIET,
        "concurrency_limit": None,
        "trigger_mode": "multiple",
    }
    for button, work in ((learn.run, run_example), (learn.try_button, try_lesson)):
        button.click(None, None, None, js=RUN_BEGINS)
        ended = button.click(_run_handler(learn, work), **stream)
        ended.then(None, None, None, js=RUN_ENDS)
    learn.rows.select(_row_handler(learn), [learn.at], learn.run_outputs, **EACH)
    learn.stop.click(
        _stop_handler(learn),
        None,
        learn.board.outputs,
        **QUICK,
    )


# -- which lesson --

ChooseLesson = Callable[[gr.Request, float, dict[str, Any]], float]
"""(request, number of the open lesson, progress) -> number of the lesson to open."""


def _wanted_lesson(request: gr.Request, _at: float, progress: dict[str, Any]) -> float:
    number = wanted_lesson(request.query_params)
    return number or int(_lesson_number(progress.get("at"))) or 1


def _step_by(by: int) -> ChooseLesson:
    def step(_request: gr.Request, at: float, _progress: dict[str, Any]) -> float:
        return min(len(LESSONS), max(1, at + by))

    return step


def _lesson_number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and 1 <= value <= len(LESSONS) else 0


# -- handlers --


def _turn_handler(learn: Learn, choose: ChooseLesson) -> Callable[..., Values]:
    def turn(request: gr.Request, at: float | None, progress: Any) -> Values:
        own_progress = _progress_of(progress)
        number = choose(request, at or 1, own_progress)
        return _turn(learn, learn.board.session(request), number, own_progress)

    return turn


def _load_handler(learn: Learn) -> Callable[..., Values]:
    """The handler that opens a lesson on page load, with a run if the link names lesson and run."""
    open_lesson_of = _turn_handler(learn, _wanted_lesson)
    board_at = 1 + learn.lesson_outputs.index(learn.board.outputs[0])

    def load(request: gr.Request, number: float | None, progress: Any, visitor: str) -> Values:
        query, board = dict(request.query_params), learn.board
        session = board.session(request)
        if session.lecture.at:  # a lesson was chosen while the page loaded
            return [gr.skip() for _ in range(1 + len(learn.lesson_outputs))]
        values = open_lesson_of(request, number, progress)
        if query.get("lesson") and query.get("run"):
            rights = rights_of(board.context, request, visitor)
            _, wrong = linked_run(learn, session, rights, query)
            session.trouble = wrong_link(wrong) or session.trouble
            values[board_at : board_at + len(board.outputs)] = board.values(session)
        return values

    return load


def _choose_handler(learn: Learn) -> Callable[..., Any]:
    def choose(request: gr.Request, event: gr.EventData, at: float | None, progress: Any) -> Any:
        session, event_data = learn.board.session(request), event._data or {}
        number = _lesson_number(event_data.get("lesson")) or at or 1
        return session.clicks.last(
            "lesson", event_data, lambda: _turn(learn, session, number, _progress_of(progress))
        )

    return choose


def _turn(learn: Learn, session: TabSession, number: float, progress: dict[str, Any]) -> Values:
    return [{**progress, "at": int(number)}, *open_lesson(learn, session, number, progress)]


def _progress_of(progress: Any) -> dict[str, Any]:
    return progress if isinstance(progress, dict) else {}


def _follow_handler(learn: Learn) -> Callable[..., Values]:
    def follow(request: gr.Request, known_version: int, at: float | None) -> Values:
        version = learn.board.context.model_host.version
        if known_version == version:
            return [gr.skip() for _ in range(1 + len(learn.models_outputs))]
        return [version, *lesson_values(learn, learn.board.session(request), at)]

    return follow


def _run_handler(
    learn: Learn, work: Callable[..., Iterator[Values]]
) -> Callable[..., Iterator[Values]]:
    def press(request: gr.Request, visitor: str, at: float) -> Iterator[Values]:
        board = learn.board
        session = board.session(request)
        session.lecture.may_schedule = board.context.access.may_change(request)
        owner = board.context.access.key(request, visitor or "")
        # `lecture.at` is preferred: `at` may still be the number of the lesson opened before.
        yield from work(learn, session, session.lecture.at or at, owner, session.pace)

    return press


def _row_handler(learn: Learn) -> Callable[..., Any]:
    def show_row(request: gr.Request, event: gr.EventData, at: float) -> Any:
        session, event_data = learn.board.session(request), event._data or {}
        label = str(event_data.get("label", ""))
        return session.clicks.last("row", event_data, lambda: show_run(learn, session, at, label))

    return show_row


def _stop_handler(learn: Learn) -> Callable[..., Values]:
    def stop(request: gr.Request) -> Values:
        return stop_runs(learn, learn.board.session(request))

    return stop


def _answer_handler(learn: Learn) -> Callable[..., Values]:
    def answer(
        request: gr.Request, at: float, number: float | None, choice: str | None, progress: Any
    ) -> Values:
        return judge_answer(learn.board.session(request), at, (number, choice), progress)

    return answer


def _request_handler(learn: Learn) -> Callable[..., Request]:
    def request_to_open(request: gr.Request, at: float) -> Request:
        return request_on_board(learn, learn.board.session(request), at)

    return request_to_open
