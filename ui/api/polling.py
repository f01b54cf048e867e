"""Waiting, without holding a thread, for endpoints that answer when something has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.config import Request
from lab.conductor import Conductor
from ui.run.source import LiveSource
from ui.server.context import Context

__all__ = ["poll", "start_run", "wait_for_study"]

POLL_S = 0.02


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


async def start_run(context: Context, request: Request, owner: str) -> LiveSource:
    """The request's run, submitted in a thread: to render a chat template and to tokenize may take
    seconds, in which others are answered. Cancelling the wait cancels the run."""
    starting = asyncio.ensure_future(asyncio.to_thread(context.hub.start, request, owner))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_cancel_run)
        raise


def _cancel_run(started: asyncio.Future[LiveSource]) -> None:
    if not started.cancelled() and started.exception() is None:
        started.result().cancel()
