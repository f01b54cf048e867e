"""Buffers of the native pass: its inputs, made from a batch of feeds, and the workspace of its
threads. Allocated here, since compiled code that allocates nothing counts no references.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from core.models.kv_cache import KVArena
from core.models.native.compiling import registers
from core.models.native.kernel_args import BLOCK, Asked, Own, Scratch, Shape
from core.models.native.layers import TOGETHER
from core.models.native.packing import Array, aligned, bits
from core.models.native.weight_formats import TILE
from core.models.rows import Batch

__all__ = ["Ground", "Grounds", "Room", "asked_in", "blank_asked", "ground_of"]

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


def asked_in(batch: Batch, members: int) -> tuple[Asked, torch.Tensor | None]:
    """What a batch asks, and where its tokens lie in it; None where they lie there as they are:
    nothing padded, members in order."""
    rows, width = batch.tokens.shape
    if rows == 1:
        return _of_one(batch), None
    order = [row for member in range(members) for row in range(member, rows, members)]
    counts = np.array([batch.plan.counts[row] for row in order])
    ends = np.cumsum(counts)
    nodes = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    places = np.repeat(np.array(order) * width, counts) + nodes
    asis = len(places) == rows * width and (members == 1 or rows == members)

    def taken(part: Array) -> Array:
        flat = part.reshape(rows * width, *part.shape[2:])
        return flat if asis else flat[places]

    slots = np.repeat(np.array([batch.plan.starts[row] for row in order]), counts) + nodes
    windowed = batch.near is not batch.full
    per_member = counts.reshape(members, -1).sum(1)
    wanted = np.arange(ends[-1])
    asked = Asked(
        tokens=taken(batch.tokens),
        positions=taken(batch.positions),
        rows=np.repeat(np.array([batch.plan.rows[row] for row in order]), counts),
        slots=slots,
        first=np.concatenate([[0], np.cumsum(per_member)]),
        full=taken(batch.full).reshape(-1),
        near=taken(batch.near).reshape(-1) if windowed else np.zeros(0, np.bool_),
        wanted=wanted[-1:] if batch.last_only else wanted,
    )
    return asked, None if asis else torch.from_numpy(places)


def _of_one(batch: Batch) -> Asked:
    """The usual case, in few calls."""
    (row,), (start,), count = batch.plan.rows, batch.plan.starts, batch.plan.width
    return Asked(
        tokens=batch.tokens[0],
        positions=batch.positions[0],
        rows=np.full(count, row),
        slots=np.arange(start, start + count),
        first=np.array([0, count]),
        full=batch.full.reshape(-1),
        near=batch.near.reshape(-1) if batch.near is not batch.full else batch.full[:0].reshape(-1),
        wanted=np.arange(count - 1 if batch.last_only else 0, count),
    )
