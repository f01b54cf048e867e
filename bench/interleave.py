"""A block is one item, measured once with every contestant. Only complete blocks are stored: ratios
are taken within blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.context import Context
from bench.machine import load_average
from lab.order import Block, blocks

T = TypeVar("T")


@dataclass(frozen=True)
class Blocks:
    """One block per item and repeat. `repeats` None: the number in the settings. `key`: fields that
    all samples have. `item`, `figures`: names of the fields that hold the block's item and the
    contestants' figures."""

    context: Context
    key: Mapping[str, Any]
    items: Sequence[str]
    item: str = "prompt"
    figures: str = "figures"
    repeats: int | None = None

    def fields(self, block: Block) -> dict[str, Any]:
        """The fields that identify a block's sample."""
        item = int(block.item) if block.item.isdecimal() else block.item
        return {**self.key, self.item: item, "repeat": block.repeat}

    @property
    def missing_blocks(self) -> list[Block]:
        results, repeats = self.context.results, self.repeats or self.context.settings.repeats
        all_blocks = blocks(self.items, repeats)
        return [block for block in all_blocks if not results.has(**self.fields(block))]

    def measure(
        self,
        contestants: Mapping[str, Callable[[Block], Any]],
        more: Callable[[], Mapping[str, Any]] = dict,
        keep_row: Callable[[dict[str, Any]], Any] = dict,
        warm: Block | None = None,
    ) -> None:
        """Measures each missing block and stores its sample. `more`: returns more fields of a
        sample. `keep_row` converts the contestants' figures before they are stored. `warm`: a block
        that every contestant runs first; its figures are not stored."""
        todo = self.missing_blocks
        if todo and warm is not None:
            for run in contestants.values():
                run(warm)
        where = ", ".join(map(str, self.key.values()))
        for number, (block, figures) in enumerate(interleave(todo, contestants), start=1):
            # A busy machine explains an outlier.
            sample = {**self.fields(block), "load": load_average(), **more()}
            self.context.results.add({**sample, self.figures: keep_row(figures)})
            repeat = f"repeat {block.repeat}, {number} of {len(todo)}"
            self.context.say(f"{where}{where and ', '}{block.item}, {repeat}")


def interleave(
    todo: Iterable[Block], contestants: Mapping[str, Callable[[Block], T]]
) -> Iterator[tuple[Block, dict[str, T]]]:
    for block in todo:
        yield block, {name: run(block) for name, run in contestants.items()}
