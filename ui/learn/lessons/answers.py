"""Judges a visitor's answer by the visitor's own runs, not by fixed figures."""

from __future__ import annotations

import math

from ui.learn.lessons.lesson import Question
from ui.learn.lessons.measured import Evidence
from ui.words.messages import Line

__all__ = ["is_right", "judge"]


def judge(question: Question, evidence: Evidence, guess: float | str | None) -> tuple[bool, Line]:
    """Whether `guess` is right, and the line to show."""
    answer = question.answer(evidence)
    if answer is None:
        return False, Line("info", question.needs)
    if guess is None or guess == "":
        ask = "Write a number first." if question.numeric else "Choose an answer first."
        return False, Line("info", f"{ask} Where to look: {question.where}")
    if is_right(question, answer, guess):
        return True, Line("good", f"Right. {question.explain(evidence)}")
    return False, Line("warn", f"Not in this run. Where to look: {question.where}")


def is_right(question: Question, answer: float | str, guess: float | str) -> bool:
    """Whether the guess is right, by the question's `within` and `places`."""
    if isinstance(answer, str):
        return guess == answer
    try:
        number = float(guess)
    except ValueError:
        return False
    if not math.isfinite(number):
        return False
    if not question.within:
        return number == answer
    # The visitor computes with rounded figures, and may truncate the result instead of rounding.
    tolerance = max(10.0**-question.places, question.within * abs(answer))
    return abs(number - answer) <= tolerance + 1e-9
