"""Where passes work: what workers hand to one another, what each has to itself, and what drafts are
asked pass by pass. Made here, since machine code that makes nothing counts no references.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.models.kv_cache import KVArena
from core.models.native.cpu_features import registers
from core.models.native.kernel_args import BLOCK, Asked, Own, Scratch, Shape
from core.models.native.layers import TOGETHER
from core.models.native.packing import Array, aligned, bits
from core.models.native.weight_formats import TILE

__all__ = ["Ground", "Grounds", "Room", "blank_asked", "ground_of"]

Ground = tuple[tuple[Array, Array, tuple[int, int]], Scratch, tuple[Own, ...]]
"""Keys and values, how many rows and slots there are; what workers hand to one another; and what
each has to itself."""

# What passes of no more tokens work on is kept for the next: to make it takes a twentieth of a pass
# of one token. It is made for whole steps of slots, which a text reaches one by one.
KEPT_TOKENS, STEP = 64, 512


class Room(NamedTuple):
    """What drafts take at most: tokens of one pass, rows of logits, nodes of one draft, slots of a
    row."""

    tokens: int
    rows: int
    nodes: int
    slots: int


class Grounds:
    """The grounds of passes that are made one at a time: what one has worked on serves the next."""

    def __init__(self) -> None:
        self._kept: tuple[Scratch, tuple[Own, ...]] | None = None
        self._sizes = (0, 0, 0)

    def of(self, shape: Shape, parts: int, sizes: tuple[int, int, int], arena: KVArena) -> Ground:
        """See `ground_of`; always of one shape and as many parts."""
        tokens, extent, workers = sizes
        if tokens > KEPT_TOKENS:
            return ground_of(shape, parts, sizes, arena)
        if self._kept is None or extent > self._sizes[1] or workers != self._sizes[2]:
            roomy = KEPT_TOKENS, -(-extent // STEP) * STEP, workers
            self._kept = ground_of(shape, parts, roomy, arena)[1:]
            self._sizes = roomy  # not before: there may be no memory for it
        return (_stored(arena), *self._kept)


def ground_of(shape: Shape, parts: int, sizes: tuple[int, int, int], arena: KVArena) -> Ground:
    """Where passes work one after another, of up to so many tokens that see so many slots, made by
    so many workers. `parts`: of how many bfloat16 a number is made that weights multiply."""
    tokens, extent, workers = sizes
    rooms = tuple(_own(shape, parts, tokens, extent) for _ in range(workers))
    return _stored(arena), _scratch(shape, tokens), rooms


def _stored(arena: KVArena) -> tuple[Array, Array, tuple[int, int]]:
    keys, values = arena.stacked
    return bits(keys).reshape(-1), bits(values).reshape(-1), (arena.rows, arena.slots)


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
