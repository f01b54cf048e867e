"""The order of blocks."""

from __future__ import annotations

from bench.interleave import interleave
from lab.order import Block, blocks


def test_every_contestant_meets_every_block_in_turn() -> None:
    met: list[tuple[str, str, int]] = []
    contestants = {
        name: lambda block, name=name: met.append((name, block.item, block.repeat))
        for name in ("A", "B")
    }
    done = list(interleave(blocks(["x", "y"], 2), contestants))
    assert [m[0] for m in met] == ["A", "B"] * 4
    assert [m[1:] for m in met[::2]] == [("x", 0), ("y", 0), ("x", 1), ("y", 1)]
    assert [block for block, _ in done] == blocks(["x", "y"], 2)


def test_a_block_is_run_when_it_is_asked_for() -> None:
    """What an interrupt leaves behind are whole blocks."""
    met: list[Block] = []
    steps = interleave(blocks(["x", "y"], 1), {"A": met.append})
    next(steps)
    assert met == [Block("x", 0)]
