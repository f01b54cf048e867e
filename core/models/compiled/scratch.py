"""Where passes work: what workers hand to one another, what each has to itself, and what drafts are
asked pass by pass. Made here, since machine code that makes nothing counts no references.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.models.compiled.described import BLOCK, Asked, Own, Scratch, Shape
from core.models.compiled.features import registers
from core.models.compiled.kinds import TILE
from core.models.compiled.layers import TOGETHER
from core.models.compiled.packing import Array, aligned, bits
from core.models.kv_cache import KVArena

__all__ = ["Ground", "Room", "blank_asked", "ground_of"]

Ground = tuple[tuple[Array, Array, tuple[int, int]], Scratch, tuple[Own, ...]]
"""Keys and values, how many rows and slots there are; what workers hand to one another; and what
each has to itself."""


class Room(NamedTuple):
    """What drafts take at most: tokens of one pass, rows of logits, nodes of one draft, slots of a
    row."""

    tokens: int
    rows: int
    nodes: int
    slots: int


def ground_of(shape: Shape, parts: int, sizes: tuple[int, int, int], arena: KVArena) -> Ground:
    """Where passes work one after another, of up to so many tokens that see so many slots, made by
    so many workers. `parts`: of how many bfloat16 a number is made that weights multiply."""
    tokens, extent, workers = sizes
    keys, values = (bits(stack).reshape(-1) for stack in arena.stacked)
    rooms = tuple(_own(shape, parts, tokens, extent) for _ in range(workers))
    return (keys, values, (arena.rows, arena.slots)), _scratch(shape, tokens), rooms


def _scratch(shape: Shape, tokens: int) -> Scratch:
    attended = shape.heads * shape.size
    back = -(-shape.hidden // BLOCK) * BLOCK
    projected = -(-(attended + 2 * shape.kv_heads * shape.size) // BLOCK) * BLOCK
    sizes = projected, attended, back, 2 * shape.inner, shape.inner
    made = (np.empty(tokens * size, np.float32) for size in sizes)
    return Scratch._make((*made, np.zeros(1, np.int64)))


def _own(shape: Shape, parts: int, tokens: int, extent: int) -> Own:
    widest = max(shape.hidden, shape.heads * shape.size, shape.inner)
    # Tiles are loaded whole, whoever is in them.
    halved = aligned((tokens + TILE) * widest * parts, np.uint16)
    together = min(TOGETHER, tokens)
    full, near = (
        (np.empty(tokens * extent, np.int32), np.empty(tokens, np.int64)) for _ in range(2)
    )
    return Own(
        np.empty(tokens * shape.hidden, np.float32), np.empty(tokens * shape.hidden, np.float32),
        halved,
        np.empty(shape.size, np.float32), np.empty(together * shape.size, np.float32),
        np.empty(together, np.int64), np.empty(together * (extent + registers()[0]), np.float32),
        full, near,
    )  # fmt: skip


def blank_asked(room: Room, members: int) -> Asked:
    """For every pass of some drafts."""
    tokens, extent = room.tokens, room.slots
    full = np.empty(tokens * extent, np.bool_)
    return Asked(
        np.empty(tokens, np.int64), np.empty(tokens, np.int64), np.empty(tokens, np.int64),
        np.empty(tokens, np.int64), np.zeros(members + 1, np.int64), full, full[:0],
        np.empty(tokens, np.int64),
    )  # fmt: skip
