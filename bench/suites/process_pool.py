"""Distributes rows over processes, for suites that time nothing: there every core may work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TypeVar

from bench.context import loader
from bench.machine import pin_arithmetic
from bench.settings import Settings
from core.engine.engine import Engine
from core.models.machine import use_threads

__all__ = ["engine_of", "map_processes"]

Task = TypeVar("Task")
Found = TypeVar("Found")


def map_processes(
    processes: int, measured: Callable[[Task], Found], tasks: Sequence[Task]
) -> Iterator[Found]:
    """The function's result for each task, in the order in which the processes finish; the
    processes end with the generator."""
    with get_context("spawn").Pool(processes, _attend) as pool:
        yield from pool.imap_unordered(measured, tasks)


def _attend() -> None:
    """End this process with its parent, even if that was killed: the next measurement must not
    share the cores with it."""
    parent = parent_process()
    assert parent is not None

    def attend() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=attend, daemon=True).start()


def engine_of(settings: Settings, family: Path | None = None) -> Engine:
    """A process's own engine, of the first dtype."""
    pin_arithmetic()
    use_threads(settings.threads)
    return Engine(loader(family)(settings.dtypes[0]))
