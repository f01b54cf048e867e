"""The order of measuring: A B C A B C, so that a noisy moment affects all contestants alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Block", "Cell", "blocks", "plan", "within_blocks"]


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """One item, measured once with every contestant."""

    item: str
    repeat: int


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One measurement: one contestant in one block."""

    contestant: str
    item: str
    repeat: int

    @property
    def block(self) -> Block:
        return Block(self.item, self.repeat)

    @property
    def words(self) -> str:
        """For example `specinfer, prompt 3, repeat 1`; repeats are counted from 1."""
        return f"{self.contestant}, prompt {self.item}, repeat {self.repeat + 1}"


def blocks(items: Sequence[str], repeats: int) -> list[Block]:
    """The blocks, repeat by repeat: an interrupted measurement covers as many items as possible."""
    return [Block(item, repeat) for repeat in range(repeats) for item in items]


def plan(contestants: Iterable[str], todo: Iterable[Block]) -> list[Cell]:
    """The cells of all blocks in the order of measuring."""
    names = list(contestants)
    return [Cell(name, block.item, block.repeat) for block in todo for name in names]


def within_blocks(
    measured: Iterable[tuple[str, Mapping[str, float]]], name: str, base: str
) -> list[list[float]]:
    """For each item, the ratios `name` / `base` in its blocks. `measured`: each block's item and
    figures by contestant."""
    groups: dict[str, list[float]] = {}
    for item, figures in measured:
        groups.setdefault(item, []).append(figures[name] / figures[base])
    return list(groups.values())
