"""Figures of past runs, with a cache of the MOST_CACHED runs used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from core.errors import StoreError, StudyError
from core.events import RunStarted
from lab.measured import Measured, measure_run
from ui.prompts.row_settings import RowSettings, settings_of_run
from ui.server.context import StoreApi

__all__ = ["PastRun", "RunFigures"]

MOST_CACHED = 2000


@dataclass(frozen=True, slots=True)
class PastRun:
    """A completed run. `settings.drafters` is empty for plain decoding."""

    prompt: str
    settings: RowSettings
    figures: Measured


class RunFigures:
    """Computes and caches figures of runs. Thread-safe."""

    def __init__(self, store: StoreApi) -> None:
        self._store = store
        self._past_runs: OrderedDict[str, PastRun] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, summaries: Iterable[Any]) -> Iterator[PastRun]:
        """The completed runs in `summaries` whose logs are complete."""
        for summary in summaries:
            past_run = self._past_run(summary.run_id) if summary.status == "completed" else None
            if past_run is not None:
                yield past_run

    def _past_run(self, run_id: str) -> PastRun | None:
        with self._lock:
            if run_id in self._past_runs:
                self._past_runs.move_to_end(run_id)
                return self._past_runs[run_id]
        try:
            events = self._store.events(run_id)
            figures = measure_run(events)
        except (StoreError, StudyError):
            return None  # deleted meanwhile, or recorded incompletely
        started = events[0]
        assert isinstance(started, RunStarted)  # else `measure_run` has raised
        settings = settings_of_run(started, figures.schedule, figures.num_others)
        past_run = PastRun(started.prompt, settings, figures)
        with self._lock:
            self._past_runs[run_id] = past_run
            while len(self._past_runs) > MOST_CACHED:
                self._past_runs.popitem(last=False)
        return past_run
