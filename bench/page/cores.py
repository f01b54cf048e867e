"""Which cores the threads and processes of a measurement run on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["apart", "can_part", "shared"]


def can_part() -> bool:
    """Whether threads can be kept to cores here, and there are two."""
    return hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1


def apart(thread: int) -> None:
    """The thread alone on one core; all others of this process, and those of the processes it
    started, on the rest."""
    first, *rest = _cores()
    for one in _threads():
        _keep(one, {first} if one == thread else set(rest))


def shared() -> None:
    """All of them on all cores."""
    for one in _threads():
        _keep(one, set(_cores()))


def _cores() -> list[int]:
    return list(range(os.cpu_count() or 1))


def _keep(thread: int, cores: set[int]) -> None:
    with suppress(ProcessLookupError, OSError):  # it has ended meanwhile
        os.sched_setaffinity(thread, cores)


def _threads() -> Iterator[int]:
    """Of this process and of all that it started, by their numbers."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            told = path.read_text(encoding="utf-8", errors="replace")
            parent = int(told.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    left = [os.getpid()]
    while left:
        process = left.pop()
        left += children.get(process, [])
        with suppress(OSError):
            yield from (int(name) for name in os.listdir(f"/proc/{process}/task"))
