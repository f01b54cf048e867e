"""The Learn tab's own components: the lessons, and the table of a lesson's runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from ui.learn.lessons import LESSONS, Lesson, lesson_of
from ui.run.listed import by_index
from ui.shared.board import DOCK
from ui.shared.parts import part

__all__ = ["lesson_value", "lesson_view", "runs_view"]


def lesson_view(value: dict[str, Any]) -> gr.HTML:
    """All lessons, and the open lesson's title and text. Triggers `select` with {"lesson": number,
    "press": time of the click}."""
    return part("lesson.js", "learn-lesson", value)


def runs_view() -> gr.HTML:
    """The runs. Triggers `select` with {"label": the run's label, "press": time of the click}."""
    return part("measured.js", "learn-rows")


def lesson_value(number: int, progress: Mapping[str, Any]) -> dict[str, Any]:
    """The value of `lesson_view` for lesson `number`; finished lessons are marked."""
    lesson, finished = lesson_of(number), finished_lessons(progress)
    before = [word for one in LESSONS[: number - 1] for word in one.words]
    return {
        "at": number,
        "title": lesson.title,
        "text": by_index(lesson.text),
        "look": lesson.look,
        "words": by_index({"w": one.word, "m": one.means} for one in (*lesson.words, *before)),
        "steps": {
            str(i): {"t": one.title, "s": one.short, "done": one.key in finished}
            for i, one in enumerate(LESSONS, 1)
        },
        "pictures": " ".join(lesson.pictures),
        "dock": dock_of(lesson),
        "point": lesson.question.point,
    }


def dock_of(lesson: Lesson) -> str:
    """The dock's tab with the last lesson picture that the dock has; empty if it has none."""
    panes = {one.name: name for name, some in DOCK for one in some} | {"requests": "requests"}
    return next((panes[name] for name in reversed(lesson.pictures) if name in panes), "")


def finished_lessons(progress: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of the finished lessons; stored values that are no texts are ignored."""
    finished = progress.get("done") if isinstance(progress, dict) else None
    return (
        tuple(key for key in finished if isinstance(key, str)) if isinstance(finished, list) else ()
    )
