"""`conduct`, the generator of a study's events."""

from collections.abc import Collection

import pytest

from core.errors import CellInterruptedError
from lab.conduct import MAX_ATTEMPTS, conduct
from lab.events import CellBegun, CellLost, CellMeasured, StudyBegun, StudyEnded
from lab.order import Cell, blocks, plan

CELLS = plan(["A", "B"], blocks(["x", "y"], 2))


class StoredCells:
    def __init__(self, *cells: Cell) -> None:
        self.results: dict[Cell, int] = dict.fromkeys(cells, -1)

    def cells(self) -> Collection[Cell]:
        return list(self.results)

    def keep(self, cell: Cell, result: int) -> None:
        self.results[cell] = result


def test_contestants_take_turns_and_repeats_come_last() -> None:
    names = [f"{c.contestant}{c.item}{c.repeat}" for c in CELLS]
    assert names == ["Ax0", "Bx0", "Ay0", "By0", "Ax1", "Bx1", "Ay1", "By1"]


def test_every_cell_is_measured_once_in_order() -> None:
    stored = StoredCells()
    events = list(conduct(CELLS, stored, CELLS.index))
    assert events[0] == StudyBegun(0, 8) and events[-1] == StudyEnded(True, "", 8, 8)
    measured = [e for e in events if isinstance(e, CellMeasured)]
    assert [e.cell for e in measured] == CELLS and [e.result for e in measured] == list(range(8))
    assert [e.done for e in measured] == list(range(1, 9))
    assert stored.results == {cell: i for i, cell in enumerate(CELLS)}


def test_kept_cells_are_not_measured_again() -> None:
    stored = StoredCells(CELLS[0], CELLS[3])
    measured_cells: list[Cell] = []
    events = list(conduct(CELLS, stored, lambda cell: measured_cells.append(cell) or 0))
    assert events[0] == StudyBegun(2, 8)
    assert measured_cells == [cell for cell in CELLS if cell not in (CELLS[0], CELLS[3])]


def test_a_cell_is_measured_when_its_event_is_requested() -> None:
    measured_cells: list[Cell] = []
    steps = conduct(CELLS, StoredCells(), lambda cell: measured_cells.append(cell) or 0)
    next(steps), next(steps)
    assert measured_cells == []
    next(steps)
    assert measured_cells == CELLS[:1]
    steps.close()
    assert measured_cells == CELLS[:1]


def test_an_interrupted_cell_is_measured_again_at_once() -> None:
    tries: list[Cell] = []

    def measure(cell: Cell) -> int:
        tries.append(cell)
        if len(tries) == 2:
            raise CellInterruptedError("a visitor's run began beside it")
        return 0

    stored = StoredCells()
    events = list(conduct(CELLS[:2], stored, measure))
    assert tries == [CELLS[0], CELLS[1], CELLS[1]]
    (lost,) = [e for e in events if isinstance(e, CellLost)]
    assert lost.reason == "a visitor's run began beside it"
    assert len(stored.results) == 2


def test_a_cell_that_is_always_interrupted_ends_the_study() -> None:
    def interrupt(cell: Cell) -> int:
        raise CellInterruptedError("again")

    events = list(conduct(CELLS, StoredCells(), interrupt))
    end = events[-1]
    assert isinstance(end, StudyEnded) and not end.complete
    assert f"interrupted {MAX_ATTEMPTS} times" in end.reason
    assert sum(isinstance(e, CellBegun) for e in events) == MAX_ATTEMPTS


def test_a_study_stops_before_the_next_cell() -> None:
    answers = iter([True, True, False])
    stored = StoredCells()
    events = list(conduct(CELLS, stored, lambda cell: 0, lambda: next(answers)))
    assert events[-1] == StudyEnded(False, "stopped", 2, 8)
    assert list(stored.results) == CELLS[:2]


def test_another_error_is_raised_and_measured_cells_are_kept() -> None:
    stored = StoredCells()

    def measure(cell: Cell) -> int:
        if cell == CELLS[2]:
            raise RuntimeError("the device is gone")
        return 0

    with pytest.raises(RuntimeError, match="gone"):
        list(conduct(CELLS, stored, measure))
    assert list(stored.results) == CELLS[:2]
