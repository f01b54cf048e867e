"""The Learn tab's layout: the lesson at the left, the board at the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.learn.lessons import LESSONS, Lesson
from ui.learn.parts import lesson_value, lesson_view, runs_view
from ui.run.listed import join_names
from ui.server.context import Context
from ui.shared.all_requests import requests_view
from ui.shared.board import Board, build_board
from ui.shared.parts import notice
from ui.words.messages import Line

__all__ = [
    "Learn",
    "build_learn",
    "coming_words",
    "question_words",
    "reason_words",
    "try_words",
]

ABOVE = {
    "figures": "the race against plain decoding",
    "strip": "the text token by token",
    "tree": "the tree of each round",
}
BELOW = {
    "inspector": "Why shows how probable each model found a token",
    "proposals": "Who shows what each SSM proposed, and the vote",
    "routing": "Who shows which SSMs draft",
    "lengths": "Length shows how many tokens each round accepted",
    "timeline": "When shows how long each step of a round took",
    "requests": "Requests shows what shared a pass",
}
"""What pictures show, in words: ABOVE on the board, BELOW in its dock."""


@dataclass(frozen=True, slots=True)
class Learn:
    """The tab's components. `at` is the lesson's number, from 1."""

    board: Board
    lesson: gr.HTML
    at: gr.Number
    run: gr.Button
    stop: gr.Button
    rows: gr.HTML
    attempt: gr.Markdown
    try_button: gr.Button
    asked: gr.Markdown
    number: gr.Number
    choice: gr.Radio
    check: gr.Button
    show: gr.Button
    verdict: gr.HTML
    previous: gr.Button
    next: gr.Button
    copy: gr.Button
    into_live: gr.Button
    requests: gr.HTML

    @property
    def run_outputs(self) -> list[Component]:
        """The outputs that a run changes."""
        return [*self.board.outputs, self.rows, self.verdict]

    @property
    def models_outputs(self) -> list[Component]:
        """The outputs that a swap of models changes."""
        controls = [
            self.run,
            self.try_button,
            self.check,
            self.into_live,
            self.choice,
            self.attempt,
        ]
        return [*controls, *self.run_outputs]

    @property
    def lesson_outputs(self) -> list[Component]:
        """The outputs that opening another lesson changes."""
        controls = [self.run, self.attempt, self.try_button, self.asked, self.number, self.choice]
        moves = [self.check, self.previous, self.next, self.into_live]
        return [self.lesson, self.at, *controls, *moves, *self.run_outputs]


def build_learn(context: Context) -> Learn:
    """At the left the lessons and the lesson's text, at the right the board and the question."""
    requests: list[gr.HTML] = []
    with gr.Row(equal_height=False, elem_id="learn-screen"):
        with gr.Column(elem_classes="sp-lesson", elem_id="learn-side"):
            learn = _side()
        with gr.Column(elem_id="learn-stage"):
            board = build_board(
                context,
                "learn",
                coming_words(LESSONS[0]),
                lambda: requests.append(requests_view("learn-requests")),
            )
            learn |= _question()
    return Learn(board, requests=requests[0], **learn)


def coming_words(lesson: Lesson) -> str:
    """The notice before the lesson's first run: what the board will show."""
    above = join_names([ABOVE[name] for name in lesson.pictures if name in ABOVE])
    below = next((BELOW[name] for name in lesson.pictures if name in BELOW), "")
    return f"Press “Run the example”: here you will see {above}.{below and f' Below, {below}.'}"


def try_words(words: str) -> str:
    """The thing to try, as Markdown."""
    return f"**Something to try.** {words}"


def reason_words(words: str) -> str:
    """Why the buttons are off, as Markdown."""
    return f"**Not here.** {words}"


def question_words(words: str) -> str:
    """The question, as Markdown."""
    return f"**A question.** {words}"


def _side() -> dict[str, Any]:
    lesson = LESSONS[0]
    small: dict[str, Any] = {"size": "sm", "min_width": 60}
    parts: dict[str, Any] = {"lesson": lesson_view(lesson_value(1, {}))}
    parts["attempt"] = gr.Markdown(try_words(lesson.attempt.words), elem_classes="sp-say")
    with gr.Row(elem_classes="sp-buttons", elem_id="learn-runs"):
        parts["run"] = gr.Button("Run the example", elem_id="learn-run", min_width=130)
        parts["try_button"] = gr.Button(lesson.attempt.button, elem_id="learn-try", min_width=110)
        parts["stop"] = gr.Button("Stop", elem_id="learn-stop", min_width=60)
    parts["rows"] = runs_view()
    with gr.Row(elem_classes="sp-buttons", elem_id="learn-moves"):
        parts["previous"] = gr.Button("‹ Previous", elem_id="learn-previous", **small)
        parts["next"] = gr.Button("Next ›", elem_id="learn-next", **small)
        parts["copy"] = gr.Button("Copy link", elem_id="learn-copy", **small)
        parts["into_live"] = gr.Button("Open in Live", elem_id="learn-into-live", **small)
    parts["at"] = gr.Number(1, precision=0, visible=False)
    return parts


def _question() -> dict[str, Any]:
    question = LESSONS[0].question
    small: dict[str, Any] = {"size": "sm", "min_width": 60}
    with gr.Column(elem_id="learn-ask"):
        with gr.Row(equal_height=True, elem_classes="sp-answer"):
            asked = gr.Markdown(question_words(question.words), elem_classes="sp-say")
            number = gr.Number(
                label=f"Your answer ({question.unit})",
                value=None,
                elem_id="learn-number",
                min_width=110,
            )
            choice = gr.Radio(
                [], label="Your answer", visible=False, elem_id="learn-choice", min_width=300
            )
            check = gr.Button("Check", elem_id="learn-check", **small)
            show = gr.Button("Show me where", elem_id="learn-show", **small)
        verdict = notice("learn-verdict", Line("info", question.needs))
    return {
        "asked": asked,
        "number": number,
        "choice": choice,
        "check": check,
        "show": show,
        "verdict": verdict,
    }
