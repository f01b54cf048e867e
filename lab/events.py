"""The events of a study while it is measured; `done` of `total` cells are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from lab.order import Cell

__all__ = ["CellBegun", "CellLost", "CellMeasured", "StudyBegun", "StudyEnded", "StudyEvent"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StudyBegun:
    """`done` cells are stored from an earlier measurement and are not measured again."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CellBegun:
    """A cell is being measured."""

    cell: Cell
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CellMeasured(Generic[T]):
    """A cell is measured and stored; it took `seconds`."""

    cell: Cell
    result: T
    seconds: float
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CellLost:
    """A cell was interrupted; it is measured again, unless the study ends."""

    cell: Cell
    reason: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StudyEnded:
    """`complete`: every cell is stored. Else `reason` says why the study ended before that."""

    complete: bool
    reason: str
    done: int
    total: int


StudyEvent = StudyBegun | CellBegun | CellMeasured[T] | CellLost | StudyEnded
