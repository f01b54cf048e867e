"""Whole blocks of a contest, measured through the lab: one prompt once with every contestant.

What an interrupt leaves behind are whole blocks, since ratios are taken within one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from lab.conduct import conduct
from lab.events import CellMeasured
from lab.order import Block, Cell, plan

__all__ = ["interleaved"]

T = TypeVar("T")


def interleaved(
    todo: Iterable[Block], contestants: Mapping[str, Callable[[Block], T]]
) -> Iterator[tuple[Block, dict[str, T]]]:
    """Each block with what its contestants returned, in their order; lazily, one block a step."""
    pending: _Pending[T] = _Pending()
    cells = plan(contestants, todo)
    for event in conduct(cells, pending, lambda cell: contestants[cell.contestant](cell.block)):
        if isinstance(event, CellMeasured) and len(pending.figures) == len(contestants):
            yield event.cell.block, pending.figures
            pending.figures = {}


class _Pending(Generic[T]):
    """The block under way; whole ones are the caller's to keep."""

    def __init__(self) -> None:
        self.figures: dict[str, T] = {}

    def cells(self) -> Collection[Cell]:
        return ()

    def keep(self, cell: Cell, result: T) -> None:
        self.figures[cell.contestant] = result
