"""KVArena: the KV cache, addressed by row and slot.

A committed token's slot is its position. Pending tree nodes follow in one slot each, though
siblings share a position. Rejected nodes are not zeroed: masks hide them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from core.errors import OutOfMemoryError
from core.models.machine import available_bytes, format_bytes

# Up to this size a cache is allocated without a check of the free memory.
UNCHECKED_BYTES = 1 << 26

__all__ = ["UNCHECKED_BYTES", "ArenaCache", "KVArena", "LayerShape", "ShapeProbe", "SlotPlan"]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Heads and sizes of one layer's cached keys and values."""

    heads: int
    key_size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Slots that one pass writes and reads.

    For each batch entry: `rows` its arena row; `starts` the first slot it writes; `counts` how many
    of the `width` queries are real. Slots 0 to `extent` - 1 are read. Padded queries write to slot
    `extent` - 1. A pass with padded queries has one slot more, which no real query attends to.
    """

    rows: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    width: int
    extent: int


class KVArena:
    """Keys and values. All layers of one shape have their keys in one tensor (layers, rows, heads,
    slots, size) and their values in another.

    New slots are zeroed: 0 x NaN is NaN, and a NaN in a masked slot would leak through attention.
    """

    def __init__(
        self, shapes: Sequence[LayerShape], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._groups: dict[LayerShape, list[int]] = {}
        for layer, shape in enumerate(shapes):
            self._groups.setdefault(shape, []).append(layer)
        self.shapes = tuple(shapes)
        self._dtype, self._device = dtype, device
        self._stacks: list[torch.Tensor] = []
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        # All layers of a pass have the same plan.
        self._last_places: tuple[SlotPlan, torch.Tensor, torch.Tensor] | None = None
        self.rows = self.slots = 0

    @property
    def bytes(self) -> int:
        """Allocated memory in bytes."""
        return sum(stack.nbytes for stack in self._stacks)

    @property
    def stacked_kv(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (layers, rows, heads, slots, size), valid until `reserve` allocates
        again. Requires an earlier `reserve` and layers of one shape."""
        keys, values = self._stacks
        return keys, values

    def reserve(self, rows: int, slots: int) -> None:
        """Grows to at least `rows` rows of `slots` slots; contents stay. Raises
        OutOfMemoryError."""
        if rows <= self.rows and slots <= self.slots:
            return
        rows = max(self.rows, rows)
        slots = self._grown_slots(slots)
        self._check_room(rows * slots)
        stacks: list[torch.Tensor] = []
        layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        # `_stacks`: each group's keys, then its values; a layer's tensors are views (rows, heads,
        # slots, size).
        for shape, members in self._groups.items():
            pair = []
            for size in (shape.key_size, shape.value_size):
                new = torch.zeros(
                    (len(members), rows, shape.heads, slots, size),
                    dtype=self._dtype,
                    device=self._device,
                )
                if self._stacks:
                    old = self._stacks[len(stacks)]
                    new[:, : self.rows, :, : self.slots].copy_(old)
                stacks.append(new)
                pair.append(new)
            layers.update({m: (pair[0][i], pair[1][i]) for i, m in enumerate(members)})
        # Last, so that a failed allocation changes nothing.
        self._stacks = stacks
        self._layers = [layers[i] for i in sorted(layers)]
        self.rows, self.slots = rows, slots

    def growth_bytes(self, rows: int, slots: int) -> int:
        """Bytes that `reserve` would allocate; the present cache is freed only after that."""
        if rows <= self.rows and slots <= self.slots:
            return 0
        return self._bytes_of(max(self.rows, rows) * self._grown_slots(slots))

    def copied_bytes(self, rows: int, slots: int) -> int:
        """Bytes of the largest layer's keys and values in `rows` rows of `slots` slots. A pass over
        rows that are not adjacent copies them."""
        cell = max(one.heads * (one.key_size + one.value_size) for one in self.shapes)
        return rows * slots * cell * self._dtype.itemsize

    def _grown_slots(self, slots: int) -> int:
        # Doubling limits the copies of the whole cache while a text grows. 256 slots hold a short
        # text.
        return self.slots if slots <= self.slots else max(256, 2 * self.slots, slots)

    def _bytes_of(self, cells: int) -> int:
        size = sum(
            len(members) * shape.heads * (shape.key_size + shape.value_size)
            for shape, members in self._groups.items()
        )
        return cells * size * self._dtype.itemsize

    def _check_room(self, cells: int) -> None:
        num_bytes = self._bytes_of(cells)
        # The old cache is not free yet: its contents are copied first.
        free = available_bytes(self._device) if num_bytes > UNCHECKED_BYTES else None
        if free is not None and num_bytes > free:
            raise OutOfMemoryError(
                f"cache of {cells} slots needs {format_bytes(num_bytes)}: {format_bytes(free)} are "
                f"free on {self._device.type}; choose a shorter prompt or fewer requests at once"
            )

    def write(
        self, layer: int, plan: SlotPlan, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores new keys and values (batch, heads, width, size); returns the keys and values that
        the batch reads (batch, heads, extent, size)."""
        if len(plan.rows) == 1:
            # A single row has no padded queries and its slots are contiguous: slices suffice.
            row, start = plan.rows[0], plan.starts[0]
            read = []
            for store, new in zip(self._layers[layer], (keys, values), strict=True):
                store[row, :, start : start + plan.width] = new[0]
                read.append(store[row : row + 1, :, : plan.extent])
            return read[0], read[1]
        return self.write_at(layer, plan.rows, self._places(plan), plan.extent, (keys, values))

    def write_at(
        self,
        layer: int,
        rows: tuple[int, ...],
        places: tuple[torch.Tensor, torch.Tensor],
        extent: int,
        new: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`write` without a plan; `places`: `rows` as a tensor (batch, 1), slots (batch, width)."""
        at, slots = places
        first, last = rows[0], rows[-1]
        contiguous = rows == tuple(range(first, last + 1))
        read = []
        for store, part in zip(self._layers[layer], new, strict=True):
            # The indexed part is (batch, width, heads, size).
            store[at, :, slots] = part.transpose(1, 2)
            used = store[:, :, :extent]
            # Adjacent rows are read as a view, others are copied.
            read.append(used[first : last + 1] if contiguous else used.index_select(0, at[:, 0]))
        return read[0], read[1]

    def _places(self, plan: SlotPlan) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows (batch, 1) and slots (batch, width) that a plan writes to."""
        if self._last_places is None or self._last_places[0] is not plan:
            rows = torch.tensor(plan.rows, device=self._device)[:, None]
            scratch = plan.extent - 1
            table = [
                [start + i if i < count else scratch for i in range(plan.width)]
                for start, count in zip(plan.starts, plan.counts, strict=True)
            ]
            slots = torch.tensor(table, device=self._device)
            self._last_places = plan, rows, slots
        return self._last_places[1], self._last_places[2]

    def compact(self, row: int, start: int, slots: Sequence[int]) -> None:
        """Moves `slots` of one row, in order, to `start`, `start` + 1, ...; all layers at once."""
        if list(slots) == list(range(start, start + len(slots))):
            return
        index = torch.tensor(slots, device=self._device)
        for stack in self._stacks:
            # `index_select` copies before anything is written: source and target may overlap.
            stack[:, row, :, start : start + len(slots)] = stack[:, row].index_select(2, index)

    def move_at(self, at: torch.Tensor, slots: torch.Tensor, to: torch.Tensor) -> None:
        """Copies `slots` to the slots `to`, both (rows, n), in the rows `at` (rows, 1), in all
        layers. The ranges may overlap."""
        for stack in self._stacks:
            # Indexing by tensors copies before anything is written.
            stack[:, at, :, to] = stack[:, at, :, slots]


class _PassCache(Cache):
    """The KV cache argument of a transformers module. Subclasses define `update`."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    @property
    def is_sliding(self) -> list[bool]:
        return [False]


class ArenaCache(_PassCache):
    """The arena in the form of a module's cache; `plan` is set before each pass."""

    def __init__(self, arena: KVArena, layers: Sequence[int]) -> None:
        super().__init__()
        self.arena = arena
        self.plan: SlotPlan | None = None
        # Index in the arena by index in the model. Layers that share another layer's cache have no
        # entry.
        self._index = {layer: i for i, layer in enumerate(layers)}

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.plan is not None, "a pass needs a plan"
        return self.arena.write(self._index[layer_idx], self.plan, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.plan.starts[0] if self.plan is not None else 0


class ShapeProbe(_PassCache):
    """Records the shape of each layer that has a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[int, LayerShape] = {}

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.shapes[layer_idx] = LayerShape(
            key_states.shape[1], key_states.shape[3], value_states.shape[3]
        )
        return key_states, value_states
