"""What a conductor writes to a log that may be locked for a while: measured cells, and a study's
final state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from core.errors import EXPECTED_ERRORS, StoreError, UnknownStudyError
from lab.measured import Measured
from lab.order import Cell
from lab.runs import StudyStore

__all__ = ["StoredCells", "Rests"]

KEEP_TRYING_S = 120.0
"""Seconds that a measured cell waits for a log that cannot be written: a lock is temporary, and
measuring the cell again would cost as much."""
AGAIN_S = 1.0


class StoredCells:
    """The cells of one study in the store. `tell` is called with a reason while the log cannot be
    written and with an empty text afterwards; `stop` ends the retries."""

    def __init__(
        self, store: StudyStore, study_id: str, tell: Callable[[str], None], stop: threading.Event
    ) -> None:
        self._store, self._study_id = store, study_id
        self._tell, self._stop = tell, stop

    def cells(self) -> Collection[Cell]:
        return [Cell(*key) for key in self._store.cells(self._study_id)]

    def keep(self, cell: Cell, result: Measured) -> None:
        """Stores a result; it is on disk on return. StoreError after the last retry,
        UnknownStudyError at once."""
        key, plain = (cell.contestant, cell.item, cell.repeat), result.to_plain()
        end = time.monotonic() + KEEP_TRYING_S
        while True:
            try:
                self._store.keep(self._study_id, key, plain)
            except UnknownStudyError:
                raise
            except StoreError as error:
                if self._stop.is_set() or time.monotonic() >= end:
                    raise StoreError(f"{cell.words}: measured, but not kept: {error}") from error
                self._tell(f"The log is busy: trying again ({error}).")
            else:
                self._tell("")
                return
            self._stop.wait(AGAIN_S)


class Rests:
    """Final states of studies, held in memory until the log can be written."""

    def __init__(self, store: StudyStore) -> None:
        self._store = store
        self._owed: dict[str, tuple[str, str]] = {}
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def of(self, study_id: str) -> tuple[str, str] | None:
        """State and reason of a study that could not be written to the log yet."""
        return self._owed.get(study_id)

    def record(self, study_id: str, state: str, reason: str) -> None:
        """Write a study's final state; if the log cannot be written, a thread retries."""
        with self._turn:
            self._owed[study_id] = (state, reason)
            self._write()
            if self._owed and self._thread is None:
                self._thread = threading.Thread(target=self._retry_loop, name="rests", daemon=True)
                self._thread.start()

    @contextmanager
    def resuming(self, study_id: str) -> Iterator[None]:
        """Writes no final state while the study is being resumed; afterwards discards the old
        one."""
        with self._turn:
            yield
            self._owed.pop(study_id, None)

    def close(self) -> None:
        """Tries a last time. The next server marks studies that are left, since their process is
        gone."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        with self._turn:
            self._write()
            self._thread = None
        self._closing.clear()

    def _retry_loop(self) -> None:
        while not self._closing.wait(AGAIN_S):
            with self._turn:
                self._write()
                if not self._owed:
                    self._thread = None
                    return

    def _write(self) -> None:
        for study_id, (state, reason) in list(self._owed.items()):
            try:
                self._store.set_state(study_id, state, reason)
            except UnknownStudyError:
                pass  # deleted meanwhile
            except EXPECTED_ERRORS:
                return
            del self._owed[study_id]
