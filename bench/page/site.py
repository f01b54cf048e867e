"""Serves the page on a free port, with a given worker and a temporary run store."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.routing import Route

from bench.application import free_port
from core.events import Event, RoundCompleted, RunCancelled
from storage import RunQuery, RunStore
from ui.server.context import Context, make_context
from ui.server.page import build_page, page_options
from ui.server.visitors import Access


@dataclass
class EventClock:
    """Times of the engine's events by run id, in milliseconds of the system clock. `stop_requests`:
    when `cancel` was called."""

    tokens: dict[str, list[float]] = field(default_factory=dict)
    rounds: dict[str, list[float]] = field(default_factory=dict)
    cancelled: dict[str, float] = field(default_factory=dict)
    stop_requests: dict[str, float] = field(default_factory=dict)

    def observe(self, event: Event) -> None:
        now = time.time() * 1000
        if isinstance(event, RoundCompleted):
            self.tokens.setdefault(event.run_id, []).extend([now] * len(event.token_ids))
            self.rounds.setdefault(event.run_id, []).append(now)
        elif isinstance(event, RunCancelled):
            self.cancelled[event.run_id] = now

    def last(self) -> str:
        """The id of the run whose first round came last."""
        return list(self.rounds)[-1]


@dataclass(frozen=True)
class Site:
    """`clock` observes the page's runs, but not runs that are submitted to `worker` directly."""

    url: str
    context: Context
    worker: Any
    clock: EventClock


class _ClockedWorker:
    """Wraps a worker or a run."""

    def __init__(self, inner: Any, clock: EventClock) -> None:
        self._inner, self._clock = inner, clock

    def cancel(self) -> None:
        # Only the first call stops the run.
        self._clock.stop_requests.setdefault(self._inner.run_id, time.time() * 1000)
        self._inner.cancel()

    def submit(self, request: Any, tap: Any = None) -> Any:
        def observe(event: Event) -> None:
            self._clock.observe(event)
            if tap is not None:
                tap(event)

        return _ClockedWorker(self._inner.submit(request, observe), self._clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def open_site(worker: Any) -> Iterator[Site]:
    """Yields a Site; closes the worker at the end."""
    clock = EventClock()
    with tempfile.TemporaryDirectory() as folder, RunStore(Path(folder) / "runs.db") as store:
        clocked_worker = _ClockedWorker(worker, clock)
        context = make_context(
            clocked_worker, store, Access("127.0.0.1"), "specinfer", RunQuery, race=False
        )
        with serve(build_page(context)) as url, closing(worker):
            yield Site(url, context, worker, clock)


@contextmanager
def serve(
    page: gr.Blocks, auth: tuple[str, str] | None = None, routes: Iterable[Route] = ()
) -> Iterator[str]:
    """Yields the page's address."""
    _, url, _ = page.launch(
        server_port=free_port(),
        auth=auth,
        prevent_thread_lock=True,
        quiet=True,
        **page_options(routes),
    )
    try:
        yield str(url)
    finally:
        page.close(verbose=False)
