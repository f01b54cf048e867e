"""Waiting, without holding a thread, for endpoints that answer when something has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from core.config import Request
from lab.conductor import Conductor
from ui.run.source import LiveSource
from ui.server.context import Context

__all__ = ["in_thread", "poll", "start_run", "start_study", "wait_for_study"]

POLL_S = 0.02

Begun = TypeVar("Begun")


async def poll(is_over: Callable[[], bool], cancel: Callable[[], object] | None = None) -> None:
    """Returns once `is_over`. If the client disconnects, calls `cancel`."""
    try:
        while not is_over():
            await asyncio.sleep(POLL_S)
    except asyncio.CancelledError:
        if cancel is not None:
            cancel()
        raise


async def wait_for_study(conductor: Conductor, study_id: str) -> None:
    """Returns once the study is no longer being measured. If the client disconnects, stops it."""
    await poll(
        lambda: not conductor.progress().measures(study_id), lambda: conductor.stop(study_id)
    )


async def in_thread(begin: Callable[[], Begun], undo: Callable[[Begun], object]) -> Begun:
    """What `begin` returns, called in a thread: to render a chat template and to tokenize may take
    seconds, in which others are answered. If the client disconnects, calls `undo` with it."""
    beginning = asyncio.ensure_future(asyncio.to_thread(begin))

    def take_back(begun: asyncio.Future[Begun]) -> None:
        if not begun.cancelled() and begun.exception() is None:
            undo(begun.result())

    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        beginning.add_done_callback(take_back)
        raise


async def start_run(context: Context, request: Request, owner: str) -> LiveSource:
    """The request's run, submitted in a thread. If the client disconnects, stops it."""
    return await in_thread(lambda: context.hub.start(request, owner), LiveSource.cancel)


async def start_study(begin: Callable[[], None], conductor: Conductor, study_id: str) -> None:
    """Begins or resumes a study in a thread. If the client disconnects, stops it."""
    await in_thread(begin, lambda _: conductor.stop(study_id))
