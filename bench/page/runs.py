"""Measures the same request with and without a page that shows it, and pins threads to cores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from bench.application import BenchError
from bench.page.browser_process import BrowserClient
from bench.page.site import EventClock, Site
from core.config import Request
from core.plurals import number_of

ENGINE = "engine"
RUN_TIMEOUT_S = 120.0
POLL_S = 0.05


def headless(site: Site, request: Request) -> float:
    """Tokens per second without page and log."""
    clock = EventClock()
    for _ in site.worker.submit(request, clock.observe).events():
        pass
    return pace(clock)


def watched_speed(browser: BrowserClient, site: Site, prompt: str, tokens: int) -> float:
    """Tokens per second of a run that is logged and shown."""
    site.clock.rounds.clear()
    site.clock.tokens.clear()
    browser.call("run", prompt)
    # Waits for the clock's count: the page may still report the previous run's end.
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while sum(map(len, site.clock.tokens.values())) < tokens:
        if time.monotonic() > deadline:
            raise BenchError(
                f"the run has fewer than its {number_of(tokens, 'token')} after {RUN_TIMEOUT_S:g} s"
            )
        time.sleep(POLL_S)
    browser.call("wait_for_end")
    return pace(site.clock)


def engine_thread() -> int:
    """The id of the worker's thread. The thread exists after the first run."""
    (one,) = (thread for thread in threading.enumerate() if thread.name == ENGINE)
    assert one.native_id is not None
    return one.native_id


def pace(clock: EventClock) -> float:
    """Tokens per second of the last run. Its first round, which includes prefill, is left out."""
    run = clock.last()
    tokens, rounds = clock.tokens[run], clock.rounds[run]
    num_first = tokens.count(rounds[0])
    return (len(tokens) - num_first) / (rounds[-1] - rounds[0]) * 1000


@cache
def cores() -> tuple[int, ...]:
    """The cores that this process may use; none if the system cannot pin threads. Cached:
    `pin_thread` changes the affinity."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def can_pin() -> bool:
    return len(cores()) > 1


def pin_thread(thread: int) -> None:
    """Pins the thread to a core of its own, and all other threads of this process and its
    descendants to the remaining cores."""
    first, *rest = cores()
    for one in _threads():
        _set_affinity(one, {first} if one == thread else set(rest))


def spread_threads() -> None:
    for one in _threads():
        _set_affinity(one, set(cores()))


def _set_affinity(thread: int, allowed: set[int]) -> None:
    with suppress(ProcessLookupError, OSError):  # the thread has ended meanwhile
        os.sched_setaffinity(thread, allowed)


def _threads() -> Iterator[int]:
    """The threads of this process and its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            status = path.read_text(encoding="utf-8", errors="replace")
            # State and parent follow the program's name, which may have spaces and brackets.
            parent = int(status.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    pending = [os.getpid()]
    while pending:
        process = pending.pop()
        pending += children.get(process, [])
        with suppress(OSError):
            yield from (int(name) for name in os.listdir(f"/proc/{process}/task"))
