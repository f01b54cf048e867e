"""Measures table rows that need no timing, in one or several processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, TypeVar

from bench.context import Context, loader
from bench.machine import pin_arithmetic
from bench.prompts import Prompt
from bench.settings import Settings
from core.engine.engine import Engine
from core.models.machine import use_threads

Task = TypeVar("Task")
Result = TypeVar("Result")
SharedArguments = tuple[Settings, Sequence[Prompt], Path | None]
Measure = Callable[[Engine, Settings, Sequence[Prompt], Task], Result]


def measure_rows(
    context: Context, measure: Measure[Task, Result], rows: Sequence[Task]
) -> Iterator[tuple[Task, Result]]:
    """Yields rows and results in the order in which rows are finished."""
    settings = context.settings
    if settings.processes > 1:
        shared_arguments = (settings, context.prompts, context.family)
        yield from map_processes(
            settings.processes, partial(_measure_row, measure, shared_arguments), rows
        )
    elif rows:
        pin_arithmetic()
        engine = Engine(context.load(settings.dtypes[0]))
        for row in rows:
            yield row, measure(engine, settings, context.prompts, row)


def _measure_row(
    measure: Measure[Task, Result], shared_arguments: SharedArguments, row: Task
) -> tuple[Task, Result]:
    settings, prompts, family = shared_arguments
    return row, measure(_engine(settings, family), settings, prompts, row)


@cache
def _engine(settings: Settings, family: Path | None) -> Engine:
    pin_arithmetic()
    use_threads(settings.threads)
    return Engine(loader(family)(settings.dtypes[0]))


def map_processes(
    processes: int, function: Callable[[Task], Any], tasks: Sequence[Task]
) -> Iterator[Any]:
    """Yields results in the order in which tasks are finished. The processes end with the
    generator."""
    # A fork would copy the locks that torch's threads hold, but not the threads.
    with get_context("spawn").Pool(processes, _exit_with_parent) as pool:
        yield from pool.imap_unordered(function, tasks)


def _exit_with_parent() -> None:
    """Ends this process when its parent ends, even if the parent is killed. A process that
    remains would take CPU time from the next measurement."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        # sys.exit would end this thread alone.
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
