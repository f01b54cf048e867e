"""Waiting, without holding a thread, for endpoints that answer when something has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lab.conductor import Conductor

__all__ = ["poll", "wait_for_study"]

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
