"""Rows of `laws` shared among processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from bench.context import Context
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites import crew
from bench.suites.law_check import Checker, Reference
from bench.suites.law_rows import Row

__all__ = ["shared"]

Task = tuple[Settings, tuple[Prompt, ...], Row, Reference]


def shared(
    context: Context, todo: Sequence[tuple[Row, Reference]]
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Rows with their samples, in the order in which `settings.processes` processes finish them."""
    tasks = [(context.settings, context.prompts, *each) for each in todo]
    return crew.shared(context.settings.processes, _measured, tasks)


def _measured(task: Task) -> tuple[Row, dict[str, Any]]:
    settings, prompts, row, reference = task
    return row, _checker(settings, prompts).sample(row, reference)


@cache
def _checker(settings: Settings, prompts: tuple[Prompt, ...]) -> Checker:
    """A process's own."""
    return Checker(crew.engine_of(settings), settings, prompts)
