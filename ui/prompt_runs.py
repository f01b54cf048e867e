"""Figures of past runs for the Prompts tab: each run's events are folded once and remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from core.errors import StoreError, StudyError
from lab.measured import Measured, measured
from ui.context import StoreApi

__all__ = ["MOST_RUNS", "RunFigures"]

MOST_RUNS = 200
"""Runs that one look at Sessions takes in: reading one costs a few milliseconds."""
REMEMBERED = 1000


class RunFigures:
    """`of(summaries)` folds what is not known yet. May be asked from several threads."""

    def __init__(self, store: StoreApi) -> None:
        self._store = store
        self._known: OrderedDict[str, Measured] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, summaries: Iterator[Any]) -> Iterator[tuple[str, Measured]]:
        """(prompt, figures) of each run that came to its end; others are left out."""
        for summary in summaries:
            found = self._figures(summary.run_id) if summary.status == "completed" else None
            if found is not None:
                yield summary.prompt, found

    def _figures(self, run_id: str) -> Measured | None:
        with self._lock:
            if run_id in self._known:
                self._known.move_to_end(run_id)
                return self._known[run_id]
        try:
            found = measured(self._store.events(run_id))
        except (StoreError, StudyError):
            return None  # deleted meanwhile, or not kept to its end
        with self._lock:
            self._known[run_id] = found
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found
