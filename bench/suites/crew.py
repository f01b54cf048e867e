"""Rows shared among processes, by suites that time nothing: there every core may work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import TypeVar

__all__ = ["shared"]

Task = TypeVar("Task")
Found = TypeVar("Found")


def shared(
    processes: int, measured: Callable[[Task], Found], tasks: Sequence[Task]
) -> Iterator[Found]:
    """What a module's function finds of each task, in the order in which so many processes finish;
    all of these end with the generator."""
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(measured, tasks)
