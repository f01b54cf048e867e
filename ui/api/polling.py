"""Starts work for endpoints, and waits for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from core.config import Request
from lab.conductor import Conductor
from ui.run.source import LiveSource
from ui.server.context import Context

__all__ = ["in_thread", "poll", "start_run", "start_study", "wait_for_study"]

POLL_S = 0.02

START_THREADS = 4

Started = TypeVar("Started")


async def poll(is_over: Callable[[], bool], cancel: Callable[[], object] | None = None) -> None:
    """Returns once `is_over()` is true. If this task is cancelled, calls `cancel`."""
    try:
        while not is_over():
            await asyncio.sleep(POLL_S)
    except asyncio.CancelledError:
        if cancel is not None:
            cancel()
        raise


async def wait_for_study(conductor: Conductor, study_id: str) -> None:
    """Returns once the study is no longer being measured. If cancelled, stops the study."""
    await poll(
        lambda: not conductor.progress().measures(study_id), lambda: conductor.stop(study_id)
    )


async def in_thread(
    start: Callable[[], Started], undo: Callable[[Started], object] = lambda _: None
) -> Started:
    """Returns the result of `start`, called in a thread. If cancelled, calls `undo` with this
    result once `start` has returned."""
    starting = asyncio.get_running_loop().run_in_executor(_start_threads(), start)

    def undo_result(started: asyncio.Future[Started]) -> None:
        if not started.cancelled() and started.exception() is None:
            undo(started.result())

    try:
        # A thread cannot be cancelled, so `start` runs to its end.
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(undo_result)
        raise


@cache
def _start_threads() -> ThreadPoolExecutor:
    """A separate pool, since slow starts would occupy the event loop's default pool."""
    return ThreadPoolExecutor(START_THREADS, thread_name_prefix="start")


async def start_run(context: Context, request: Request, owner: str) -> LiveSource:
    """Queues a run in a thread; stops the run if cancelled meanwhile."""
    return await in_thread(lambda: context.hub.start(request, owner), LiveSource.cancel)


async def start_study(begin: Callable[[], None], conductor: Conductor, study_id: str) -> None:
    """Calls `begin` in a thread; stops the study if cancelled meanwhile."""
    await in_thread(begin, lambda _: conductor.stop(study_id))
