"""What a compiled pass is asked, from a batch of feeds."""

from __future__ import annotations

import numpy as np
import torch

from core.models.compiled.described import Asked
from core.models.compiled.packing import Array
from core.models.rows import Batch

__all__ = ["asked_in"]


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
