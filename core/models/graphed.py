"""GraphedForward: a TensorForward in few fixed shapes, each replayed as a CUDA graph.

A pass is padded to a bucket of queries and slots. Its inputs are copied into tensors with fixed
addresses, which a graph reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from core.models.forward import Forward, KeysValues, TensorForward
from core.models.graph_cache import MAX_GRAPHS, CachedGraph, GraphPool
from core.models.kv_cache import KVArena
from core.models.rows import Batch, BoolArray

__all__ = ["EXTENT", "WIDTHS", "GraphedForward", "in_few_launches", "tensors_of"]

# The number of queries of a row is padded to the next of these widths.
WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
# Slots are rounded up to a multiple of EXTENT, so that one graph serves many text lengths.
EXTENT = 256


def in_few_launches(forward: TensorForward) -> Forward:
    """The same pass: as captured graphs on a GPU, unchanged on a CPU."""
    return GraphedForward(forward, capture=True) if forward.device.type == "cuda" else forward


def tensors_of(forward: Forward | TensorForward) -> TensorForward | None:
    """The TensorForward that `forward` is or wraps; None if there is none, or if its layers are
    streamed."""
    if getattr(forward, "stream", None) is not None:
        return None
    if isinstance(forward, GraphedForward):
        return forward.lean
    return forward if isinstance(forward, TensorForward) else None


class GraphedForward:
    """See Forward. Runs `lean`, through CUDA graphs if `capture`. A pass wider than the widest
    bucket runs eagerly."""

    def __init__(self, lean: TensorForward, *, capture: bool) -> None:
        self.lean = lean
        self._passes: dict[tuple[tuple[int, ...], int, int], _Pass] = {}
        self._arena_size = (0, 0)
        self._pool = GraphPool(capture=capture)
        self.device, self.dtype = lean.device, lean.dtype
        self.shapes = lean.shapes

    @property
    def weight_bytes(self) -> int:
        return self.lean.weight_bytes

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        rows, width = batch.tokens.shape
        bucket = next((w for w in WIDTHS if w >= width), None)
        if bucket is None:
            return self.lean.logits(batch, arena)
        # One slot more than any row uses, for padded queries.
        extent = -(-(batch.plan.extent + 1) // EXTENT) * EXTENT
        # Before the graph is looked up: growing the arena invalidates all graphs.
        arena.reserve(max(batch.plan.rows) + 1, extent)
        if self._arena_size != (arena.rows, arena.slots):
            self._passes.clear()
            self._arena_size = arena.rows, arena.slots
        # For every slot of the arena: a rotary table that grew later would be at a new address.
        self.lean.reach(max(arena.slots, int(batch.positions.max())))
        # The rows are part of the key: a graph reads fixed views of the arena.
        key = batch.plan.rows, bucket, extent
        if key not in self._passes:
            if len(self._passes) >= MAX_GRAPHS:
                self._passes.clear()
            self._passes[key] = _Pass(self.lean, arena, key, self._pool)
        bucket_pass = self._passes[key]
        bucket_pass.fill(batch)
        logits = bucket_pass.run()
        # A copy: a later pass may overwrite the logits.
        return logits[:, :width].clone()

    @property
    def captures(self) -> bool:
        """See `GraphPool.captures`."""
        return self._pool.captures


@dataclass
class _Inputs:
    """Inputs of a pass. `numbers` (3, rows, width): tokens, positions, slots; `full` and `near`
    (sliding window), each (rows, 1, width, extent): True where a slot is hidden."""

    numbers: torch.Tensor
    full: torch.Tensor
    near: torch.Tensor


class _Pass:
    """One bucket: `rows` of the arena, `width` queries each, `extent` slots."""

    def __init__(
        self,
        lean: TensorForward,
        arena: KVArena,
        key: tuple[tuple[int, ...], int, int],
        pool: GraphPool,
    ) -> None:
        self._lean, self._arena = lean, arena
        rows, width, extent = key
        self._rows, self._extent = rows, extent
        self._row_index = torch.tensor(rows, device=lean.device)[:, None]
        self._host = _inputs(len(rows), width, extent, torch.device("cpu"))
        on_cpu = lean.device.type == "cpu"
        self._device = self._host if on_cpu else _inputs(len(rows), width, extent, lean.device)
        self.run = CachedGraph(self.compute, pool)
        cuda: Any = torch.cuda
        self._copy_done = None if on_cpu else cuda.Event()

    def fill(self, batch: Batch) -> None:
        if self._copy_done is not None:
            self._copy_done.synchronize()  # waits until the last batch has left pinned memory
        width = batch.tokens.shape[1]
        numbers = self._host.numbers.numpy()
        # Padding: token 0 at position 0, written to the last slot.
        numbers[:2], numbers[2] = 0, self._extent - 1
        numbers[0, :, :width], numbers[1, :, :width] = batch.tokens, batch.positions
        plan = batch.plan
        for i, (start, real) in enumerate(zip(plan.starts, plan.counts, strict=True)):
            numbers[2, i, :real] = np.arange(start, start + real)
        for hidden, visible in ((self._host.full, batch.full), (self._host.near, batch.near)):
            _hide(hidden.numpy(), visible, plan.counts)
        if self._copy_done is not None:
            for name in ("numbers", "full", "near"):
                getattr(self._device, name).copy_(getattr(self._host, name), non_blocking=True)
            self._copy_done.record()

    def compute(self) -> torch.Tensor:
        """Logits (rows, width, V) for the batch of the last `fill`."""
        tokens, positions, slots = self._device.numbers
        lean = self._lean
        lowest = torch.finfo(lean.dtype).min
        masks = tuple(
            # Built on the device, since bool inputs are smaller to copy.
            torch.zeros(hidden.shape, dtype=lean.dtype, device=lean.device).masked_fill_(
                hidden, lowest
            )
            for hidden in (self._device.full, self._device.near)
        )

        def write(layer: int, k: torch.Tensor, v: torch.Tensor) -> KeysValues:
            places = self._row_index, slots
            return self._arena.write_at(layer, self._rows, places, self._extent, (k, v))

        return lean.over(tokens, positions, (masks[0], masks[1]), write)


def _inputs(rows: int, width: int, extent: int, device: torch.device) -> _Inputs:
    # Pinned: a copy from pageable memory would block the host.
    pin = device.type == "cpu" and torch.cuda.is_available()
    shape = (rows, 1, width, extent)
    return _Inputs(
        torch.zeros((3, rows, width), dtype=torch.long, device=device, pin_memory=pin),
        torch.ones(shape, dtype=torch.bool, device=device, pin_memory=pin),
        torch.ones(shape, dtype=torch.bool, device=device, pin_memory=pin),
    )


def _hide(hidden: BoolArray, visible: BoolArray, counts: tuple[int, ...]) -> None:
    """Marks in `hidden` the slots that a query does not attend to. A padded query attends only to
    the last slot."""
    hidden[:] = True
    for i, real in enumerate(counts):
        hidden[i, 0, :real, : visible.shape[2]] = ~visible[i, :real]
        hidden[i, 0, real:, -1] = False
