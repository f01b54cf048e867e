"""Inputs and buffers of the native pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from core.models.kv_cache import KVArena
from core.models.native.compiling import registers
from core.models.native.kernel_args import BLOCK, BatchInputs, ModelSizes, SharedBuffers, Workspace
from core.models.native.layers import MAX_HEAD_TOKENS
from core.models.native.packing import Array, bits, empty_aligned, round_up
from core.models.native.weight_formats import TILE
from core.models.rows import Batch

__all__ = [
    "PassBuffers",
    "BufferCache",
    "DraftLimits",
    "pack_inputs",
    "empty_inputs",
    "allocate_buffers",
]

PassBuffers = tuple[tuple[Array, Array, tuple[int, int]], SharedBuffers, tuple[Workspace, ...]]
"""KV arena (keys, values, (rows, slots)); buffers that threads share; a workspace per thread."""

# Buffers for up to CACHED_TOKENS tokens are reused: allocating them takes a twentieth of a pass of
# one token. The buffers grow in steps of STEP slots.
CACHED_TOKENS, STEP = 64, 512


class DraftLimits(NamedTuple):
    """Upper bounds of a `kernel_args.DraftBatch`: tokens of one pass, rows of logits of all passes,
    nodes of one draft, KV slots of a row."""

    tokens: int
    rows: int
    nodes: int
    slots: int


class BufferCache:
    """Reuses buffers between passes that run one at a time."""

    def __init__(self) -> None:
        self._buffers: tuple[SharedBuffers, tuple[Workspace, ...]] | None = None
        self._sizes = (0, 0, 0)

    def of(
        self, shape: ModelSizes, parts: int, sizes: tuple[int, int, int], arena: KVArena
    ) -> PassBuffers:
        """See `allocate_buffers`; `shape` and `parts` must be the same in every call."""
        tokens, extent, workers = sizes
        if tokens > CACHED_TOKENS:
            return allocate_buffers(shape, parts, sizes, arena)
        if self._buffers is None or extent > self._sizes[1] or workers != self._sizes[2]:
            # Allocates for CACHED_TOKENS tokens, so that buffers grow with the extent alone.
            capacity = CACHED_TOKENS, round_up(extent, STEP), workers
            self._buffers = allocate_buffers(shape, parts, capacity, arena)[1:]
            self._sizes = capacity  # after the allocation, which may fail
        return (_kv_arrays(arena), *self._buffers)


def allocate_buffers(
    shape: ModelSizes, parts: int, sizes: tuple[int, int, int], arena: KVArena
) -> PassBuffers:
    """Buffers of a pass over `arena`. `sizes`: tokens, slots attended to, threads. `parts`: the
    number of bfloat16 values into which an activation is split (see
    `weight_formats.WeightFormat`)."""
    tokens, extent, workers = sizes
    workspaces = tuple(_workspace(shape, parts, tokens, extent) for _ in range(workers))
    return _kv_arrays(arena), _shared_buffers(shape, tokens), workspaces


def _kv_arrays(arena: KVArena) -> tuple[Array, Array, tuple[int, int]]:
    keys, values = arena.stacked_kv
    # Views: the kernel writes new keys and values into the arena itself.
    return bits(keys).reshape(-1), bits(values).reshape(-1), (arena.rows, arena.slots)


def _shared_buffers(shape: ModelSizes, tokens: int) -> SharedBuffers:
    attended = shape.heads * shape.size
    projected = round_up(attended + 2 * shape.kv_heads * shape.size, BLOCK)
    sizes = projected, attended, round_up(shape.hidden, BLOCK), 2 * shape.inner, shape.inner
    arrays = (np.empty(tokens * size, np.float32) for size in sizes)
    return SharedBuffers._make((*arrays, np.zeros(1, np.int64)))


def _workspace(shape: ModelSizes, parts: int, tokens: int, extent: int) -> Workspace:
    widest = max(shape.hidden, shape.heads * shape.size, shape.inner)
    # Full tiles are loaded, also past the last token.
    x_bf16 = empty_aligned((tokens + TILE) * widest * parts, np.uint16)
    head_tokens = min(MAX_HEAD_TOKENS, tokens)
    full, near = (
        (np.empty(tokens * extent, np.int32), np.empty(tokens, np.int64)) for _ in range(2)
    )
    return Workspace(
        np.empty(tokens * shape.hidden, np.float32), np.empty(tokens * shape.hidden, np.float32),
        x_bf16,
        np.empty(shape.size, np.float32), np.empty(head_tokens * shape.size, np.float32),
        np.empty(head_tokens, np.int64),
        # `attention.key_products` writes whole vectors, also past the last slot.
        np.empty(head_tokens * (extent + registers()[0]), np.float32),
        full, near,
    )  # fmt: skip


def empty_inputs(limits: DraftLimits, members: int) -> BatchInputs:
    """Uninitialized inputs, large enough for every pass of a DraftBatch."""
    tokens, extent = limits.tokens, limits.slots
    full = np.empty(tokens * extent, np.bool_)
    return BatchInputs(
        np.empty(tokens, np.int64), np.empty(tokens, np.int64), np.empty(tokens, np.int64),
        np.empty(tokens, np.int64), np.zeros(members + 1, np.int64), full, full[:0],
        np.empty(tokens, np.int64),
    )  # fmt: skip


def pack_inputs(batch: Batch, members: int) -> tuple[BatchInputs, torch.Tensor | None]:
    """The inputs of a batch of `members` models, without padding and grouped by model; and the
    index of each token in the flat batch (rows x width), None if it is the identity."""
    rows, width = batch.tokens.shape
    if rows == 1:
        return _pack_single(batch), None
    # Row r is of model r modulo the number of models.
    order = [row for member in range(members) for row in range(member, rows, members)]
    counts = np.array([batch.plan.counts[row] for row in order])
    ends = np.cumsum(counts)
    # Index of each token within its row.
    nodes = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    places = np.repeat(np.array(order) * width, counts) + nodes
    # True if there is no padding and the rows are already grouped.
    is_identity = len(places) == rows * width and (members == 1 or rows == members)

    def gather(part: Array) -> Array:
        flat = part.reshape(rows * width, *part.shape[2:])
        return flat if is_identity else flat[places]

    slots = np.repeat(np.array([batch.plan.starts[row] for row in order]), counts) + nodes
    windowed = batch.near is not batch.full
    per_member = counts.reshape(members, -1).sum(1)
    indices = np.arange(ends[-1])
    inputs = BatchInputs(
        tokens=gather(batch.tokens),
        positions=gather(batch.positions),
        rows=np.repeat(np.array([batch.plan.rows[row] for row in order]), counts),
        slots=slots,
        first=np.concatenate([[0], np.cumsum(per_member)]),
        full=gather(batch.full).reshape(-1),
        near=gather(batch.near).reshape(-1) if windowed else np.zeros(0, np.bool_),
        logits_indices=indices[-1:] if batch.last_only else indices,
    )
    return inputs, None if is_identity else torch.from_numpy(places)


def _pack_single(batch: Batch) -> BatchInputs:
    """`pack_inputs` of a single row, the usual case, in few calls."""
    (row,), (start,), count = batch.plan.rows, batch.plan.starts, batch.plan.width
    return BatchInputs(
        tokens=batch.tokens[0],
        positions=batch.positions[0],
        rows=np.full(count, row),
        slots=np.arange(start, start + count),
        first=np.array([0, count]),
        full=batch.full.reshape(-1),
        near=batch.near.reshape(-1) if batch.near is not batch.full else batch.full[:0].reshape(-1),
        logits_indices=np.arange(count - 1 if batch.last_only else 0, count),
    )
