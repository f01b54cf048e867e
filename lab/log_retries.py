"""Writes measured cells and final states of studies to the log, with retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from core.errors import EXPECTED_ERRORS, StoreError, UnknownStudyError
from lab.measured import Measured
from lab.order import Cell
from lab.runs import StudyStore

__all__ = ["StoredCells", "UnsavedStates"]

RETRY_TIMEOUT_S = 120.0
"""Seconds for which writing a measured cell is retried."""
RETRY_INTERVAL_S = 1.0


class StoredCells:
    """The cells of one study in the store. `on_busy` gets a reason while the log cannot be written,
    and an empty text after a write; `stop` ends the retries."""

    def __init__(
        self,
        store: StudyStore,
        study_id: str,
        on_busy: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._store, self._study_id = store, study_id
        self._on_busy, self._stop = on_busy, stop

    def cells(self) -> Collection[Cell]:
        return [Cell(*key) for key in self._store.cells(self._study_id)]

    def keep(self, cell: Cell, result: Measured) -> None:
        """Stores a result; on return it is on disk. Raises StoreError after the last retry,
        UnknownStudyError at once."""
        key, plain = (cell.contestant, cell.item, cell.repeat), result.to_plain()
        deadline = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            try:
                self._store.keep(self._study_id, key, plain)
            except UnknownStudyError:
                raise
            except StoreError as error:
                if self._stop.is_set() or time.monotonic() >= deadline:
                    raise StoreError(f"{cell.words}: measured, but not kept: {error}") from error
                self._on_busy(f"The log is busy: trying again ({error}).")
            else:
                self._on_busy("")
                return
            self._stop.wait(RETRY_INTERVAL_S)


class UnsavedStates:
    """Final states of studies, held in memory until the log can be written."""

    def __init__(self, store: StudyStore) -> None:
        self._store = store
        self._unsaved: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def state_of(self, study_id: str) -> tuple[str, str] | None:
        """The state and reason that are not in the log yet, else None."""
        return self._unsaved.get(study_id)

    def record(self, study_id: str, state: str, reason: str) -> None:
        """Writes a study's final state; if the log cannot be written, a thread retries."""
        with self._lock:
            self._unsaved[study_id] = (state, reason)
            self._write()
            if self._unsaved and self._thread is None:
                self._thread = threading.Thread(
                    target=self._retry_loop, name="unsaved-states", daemon=True
                )
                self._thread.start()

    @contextmanager
    def discarding_state(self, study_id: str) -> Iterator[None]:
        """No final state is written while the `with` block runs; if the block succeeds, the study's
        old state is discarded."""
        with self._lock:
            yield
            self._unsaved.pop(study_id, None)

    def close(self) -> None:
        """Ends the thread, then tries to write once more."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        with self._lock:
            self._write()
            self._thread = None
        self._closing.clear()

    def _retry_loop(self) -> None:
        while not self._closing.wait(RETRY_INTERVAL_S):
            with self._lock:
                self._write()
                if not self._unsaved:
                    self._thread = None
                    return

    def _write(self) -> None:
        # A copy, since the loop deletes entries.
        for study_id, (state, reason) in list(self._unsaved.items()):
            try:
                self._store.set_state(study_id, state, reason)
            except UnknownStudyError:
                pass  # deleted meanwhile
            except EXPECTED_ERRORS:
                return  # the other states would fail too
            del self._unsaved[study_id]
