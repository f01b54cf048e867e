"""The guided lessons: their texts, runs and questions."""

from __future__ import annotations

from ui.learn.lessons.answers import judge
from ui.learn.lessons.choosing import ACCEPTANCE, LENGTH, VOTE
from ui.learn.lessons.fitting import FITTING
from ui.learn.lessons.guessing import MEMORY_BOUND, ONE_SSM, TREE
from ui.learn.lessons.halves import HALVES
from ui.learn.lessons.lesson import Lesson, missing_reason, request_of
from ui.learn.lessons.routing import ROUTING
from ui.learn.lessons.sharing import SHARING
from ui.learn.lessons.time import LOSES, PIPELINE
from ui.learn.lessons.wire import WIRE

__all__ = ["LESSONS", "Lesson", "judge", "lesson_of", "missing_reason", "request_of"]

LESSONS = (
    *(MEMORY_BOUND, ONE_SSM, TREE, VOTE, ACCEPTANCE, LENGTH, PIPELINE, LOSES),
    *(ROUTING, SHARING, FITTING, WIRE, HALVES),
)


def lesson_of(number: float | None) -> Lesson:
    """Lesson `number`, counted from 1; numbers out of range give the first or the last lesson."""
    return LESSONS[min(len(LESSONS), max(1, int(number or 1))) - 1]
