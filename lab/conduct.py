"""Measures cells one by one; cells in the store are skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Protocol, TypeVar

from core.errors import CellInterruptedError
from lab.events import CellBegun, CellLost, CellMeasured, StudyBegun, StudyEnded, StudyEvent
from lab.order import Cell

__all__ = ["ResultStore", "always", "conduct"]

T = TypeVar("T")
Result = TypeVar("Result", contravariant=True)
MAX_ATTEMPTS = 200
"""Interruptions of one cell after which the study ends."""


class ResultStore(Protocol[Result]):
    """Stores results; a result is on disk when `keep` returns."""

    def cells(self) -> Collection[Cell]: ...
    def keep(self, cell: Cell, result: Result) -> None: ...


def always() -> bool:
    """The `go` of `conduct` that never waits and never stops."""
    return True


def conduct(
    cells: Sequence[Cell],
    store: ResultStore[T],
    measure: Callable[[Cell], T],
    go: Callable[[], bool] = always,
) -> Generator[StudyEvent[T], None, None]:
    """Measures the cells that are not in `store`, in order.

    `go` is called before each attempt to measure a cell; it may wait, and returns False to stop.
    `measure` raises CellInterruptedError if the cell has to be measured again.
    """
    stored = set(store.cells())
    # The order of `cells` is kept: a resumed study is interleaved like an uninterrupted one.
    todo = [cell for cell in cells if cell not in stored]
    total = len(cells)
    num_done = total - len(todo)
    yield StudyBegun(num_done, total)
    for cell in todo:
        for attempt in range(MAX_ATTEMPTS):
            if not go():
                yield StudyEnded(False, "stopped", num_done, total)
                return
            yield CellBegun(cell, num_done, total)
            start = time.perf_counter()
            try:
                result = measure(cell)
            except CellInterruptedError as error:
                yield CellLost(cell, str(error), num_done, total)
                if attempt + 1 == MAX_ATTEMPTS:
                    reason = f"{cell.contestant} on {cell.item}: interrupted {MAX_ATTEMPTS} times"
                    yield StudyEnded(False, reason, num_done, total)
                    return
                continue
            # Stored first: a reported result is on disk.
            store.keep(cell, result)
            num_done += 1
            yield CellMeasured(cell, result, time.perf_counter() - start, num_done, total)
            break
    yield StudyEnded(True, "", num_done, total)
