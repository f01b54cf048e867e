"""Row: committed tokens and pending tree nodes. Batch: the inputs of one pass.

A committed token's slot is its position. Pending nodes follow in one slot each; a node's position
is length + depth - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from core.models.kv_cache import SlotPlan
from core.models.protocol import CACHED, Feed

__all__ = ["Batch", "BoolArray", "IntArray", "Row", "batch_of"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
# Pending nodes for which a new Row has room.
FIRST_PENDING = 32


@dataclass
class Row:
    """`length` committed tokens, then `pending` nodes. `depths` (pending,): 1 for nodes that follow
    the committed tokens. `ancestors` (pending, pending): `ancestors[i]` marks node i and its
    ancestors. Both arrays have room for more nodes."""

    length: int = 0
    pending: int = 0
    depths: IntArray = field(default_factory=lambda: np.zeros(FIRST_PENDING, np.int64))
    ancestors: BoolArray = field(
        default_factory=lambda: np.zeros((FIRST_PENDING, FIRST_PENDING), np.bool_)
    )

    def add(self, parents: Sequence[int]) -> None:
        """Appends nodes with these parents; see `Feed.parents`."""
        total = self.pending + len(parents)
        if total > len(self.depths):
            self._grow(total)
        for i, parent in enumerate(parents, start=self.pending):
            if parent == CACHED:
                self.depths[i] = 1
                self.ancestors[i, :total] = False
            else:
                self.depths[i] = self.depths[parent] + 1
                self.ancestors[i, :total] = self.ancestors[parent, :total]
            self.ancestors[i, i] = True
        self.pending = total

    def keep(self, num_committed: int, nodes: Sequence[int]) -> None:
        """Commits `num_committed` nodes; of the other pending nodes only `nodes` stay pending,
        renumbered from 0."""
        self.length += num_committed
        self.pending = count = len(nodes)
        if count:
            # Indexing by an array copies first: source and target may overlap.
            index = np.array(nodes, np.int64)
            # Depths count from the last committed token.
            self.depths[:count] = self.depths[index] - num_committed
            self.ancestors[:count, :count] = self.ancestors[np.ix_(index, index)]

    def _grow(self, total: int) -> None:
        size = max(total, 2 * len(self.depths))
        depths, ancestors = np.zeros(size, np.int64), np.zeros((size, size), np.bool_)
        depths[: self.pending] = self.depths[: self.pending]
        ancestors[: self.pending, : self.pending] = self.ancestors[: self.pending, : self.pending]
        self.depths, self.ancestors = depths, ancestors

    def context_needed(self, parents: Sequence[int]) -> int:
        """Tokens of the longest path, committed tokens included, if nodes with these `parents` were
        added."""
        depths = [int(depth) for depth in self.depths[: self.pending]]
        for parent in parents:
            depths.append(1 if parent == CACHED else depths[parent] + 1)
        return self.length + max(depths)

    def fill_mask(self, mask: BoolArray) -> None:
        """Marks in `mask` (count, extent) the slots to which the last `count` nodes attend. Before
        the call `mask` must be all False."""
        first = self.pending - len(mask)
        mask[:, : self.length] = True
        end = self.length + self.pending
        mask[:, self.length : end] = self.ancestors[first : self.pending, : self.pending]

    def positions(self, count: int) -> IntArray:
        """Positions of the last `count` nodes."""
        # The last committed token has position length - 1 and depth 0.
        return self.length - 1 + self.depths[self.pending - count : self.pending]

    def all_positions(self) -> IntArray:
        """Position of every slot in use: (length + pending,)."""
        return np.concatenate([np.arange(self.length), self.positions(self.pending)])


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of one pass, padded to `plan.width` queries per row.

    `tokens`, `positions` (batch, width). `full`, `near` (batch, width, extent): the slots that a
    query attends to, in layers with full attention and with a sliding window. `last_only`: only the
    last query's logits are needed.
    """

    tokens: IntArray
    positions: IntArray
    full: BoolArray
    near: BoolArray
    plan: SlotPlan
    last_only: bool


def batch_of(
    feeds: Sequence[Feed], rows: Sequence[Row], places: Sequence[int], window: int
) -> Batch:
    """The batch of these feeds, whose nodes are already in `rows`. `places`: the rows' numbers in
    the KVArena; `window` in tokens, 0 for none."""
    plan = _plan(feeds, rows, places)
    shape = (len(feeds), plan.width)
    tokens, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    full = np.zeros((*shape, plan.extent), np.bool_)
    near = full.copy() if window else full
    for i, (feed, row, count) in enumerate(zip(feeds, rows, plan.counts, strict=True)):
        tokens[i, :count] = feed.token_ids
        positions[i, :count] = row.positions(count)
        row.fill_mask(full[i, :count])
        full[i, count:, -1] = True  # a padded query attends to the last slot alone
        if window:
            # The window is over positions, not slots: siblings are at the same distance.
            slot_positions = row.all_positions()
            in_window = slot_positions[None, :] > positions[i, :count, None] - window
            used = len(slot_positions)
            near[i, :count, :used] = full[i, :count, :used] & in_window
            near[i, count:, -1] = True
    # The last tokens of several feeds may be at different indices.
    last_only = len(feeds) == 1 and feeds[0].last_only
    return Batch(tokens, positions, full, near, plan, last_only)


def _plan(feeds: Sequence[Feed], rows: Sequence[Row], places: Sequence[int]) -> SlotPlan:
    counts = tuple(len(feed.token_ids) for feed in feeds)
    # A feed's nodes are already the last nodes of its row.
    ends = [row.length + row.pending for row in rows]
    starts = tuple(end - count for end, count in zip(ends, counts, strict=True))
    # If counts differ, one slot past every row's end takes the padded queries' keys and values.
    extent = max(ends) + (1 if min(counts) < max(counts) else 0)
    return SlotPlan(tuple(places), starts, counts, max(counts), extent)
