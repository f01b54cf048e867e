"""Interleaving: A B C A B C, a block at a time, so that a noisy moment hits all alike.

Ratios are taken within a block. Knows nothing of models: an item is any value with a name in
`Block`, a contestant any callable. Made to be driven by a study harness as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Block", "blocks", "interleaved", "within_blocks"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Block:
    """One item measured once by every contestant."""

    item: str
    repeat: int


def blocks(items: Sequence[str], repeats: int) -> list[Block]:
    """Repeats outermost: a run that is cut short has met as many items as it could."""
    return [Block(item, repeat) for repeat in range(repeats) for item in items]


def interleaved(
    todo: Iterable[Block], contestants: Mapping[str, Callable[[Block], T]]
) -> Iterator[tuple[Block, dict[str, T]]]:
    """Each block with what its contestants returned, in their order; lazily, one block a step."""
    for block in todo:
        yield block, {name: run(block) for name, run in contestants.items()}


def within_blocks(
    measured: Iterable[tuple[str, Mapping[str, float]]], name: str, base: str
) -> list[list[float]]:
    """The ratio `name` / `base` of each (item, figures) block, grouped by item."""
    groups: dict[str, list[float]] = {}
    for item, figures in measured:
        groups.setdefault(item, []).append(figures[name] / figures[base])
    return list(groups.values())
