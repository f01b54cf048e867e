"""KvView: the KV-cache rows that a pass over fixed shapes reads and writes, and its masks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.models.forward import Seen, TensorForward
from core.models.kv_cache import KVArena

__all__ = ["EXTENT", "KvView", "padded_extent"]

EXTENT = 256


def padded_extent(slots: int) -> int:
    """Slots that a pass over `slots` of them attends to: a multiple of EXTENT, so that few graphs
    serve all lengths, with at least one spare slot for padded tokens."""
    return -(-(slots + 1) // EXTENT) * EXTENT


@dataclass(frozen=True, slots=True)
class KvView:
    """`rows` of an arena and the first `extent` slots of each. `row_index` (rows, 1): the same rows
    on the arena's device. `vocab_size`: the model's own."""

    forward: TensorForward
    arena: KVArena
    rows: tuple[int, ...]
    row_index: torch.Tensor
    extent: int
    vocab_size: int

    @classmethod
    def of(
        cls, forward: TensorForward, arena: KVArena, rows: tuple[int, ...], extent: int, vocab: int
    ) -> KvView:
        """Copies the rows to the device now, so that a captured pass copies nothing."""
        row_index = torch.tensor(rows, device=forward.device)[:, None]
        return cls(forward, arena, rows, row_index, extent, vocab)

    def logits(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        visible: torch.Tensor,
    ) -> torch.Tensor:
        """One pass: float32 logits (rows, width, V) of tokens at positions, stored in slots (all
        (rows, width)); `visible` (rows, width, extent). Ids past the model's vocabulary are
        replaced by its last."""
        forward, extent = self.forward, self.extent
        mask = torch.zeros(visible.shape, dtype=forward.dtype, device=forward.device)
        mask = mask.masked_fill_(~visible, torch.finfo(forward.dtype).min)[:, None]

        def write(layer: int, k: torch.Tensor, v: torch.Tensor) -> Seen:
            return self.arena.write_at(layer, self.rows, (self.row_index, slots), extent, (k, v))

        ids = tokens.clamp(max=self.vocab_size - 1)
        return forward.over(ids, positions, (mask, mask), write).float()

    def text_logits(
        self, tokens: torch.Tensor, first: torch.Tensor, count: torch.Tensor
    ) -> torch.Tensor:
        """Logits (rows, 1, V) after the last of `count` (rows,) tokens (rows, width), which follow
        the `first` (rows,) tokens of each row. Padded tokens write to the last, spare slot."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        last = (count - 1)[:, None]
        positions = first[:, None] + torch.minimum(steps, last)
        slots = (first[:, None] + steps).masked_fill(steps > last, self.extent - 1)
        visible = self._slots <= positions[..., None]
        logits = self.logits(tokens, positions, slots, visible)
        return logits.gather(1, last[..., None].expand(-1, -1, logits.shape[2]))

    def node_logits(
        self,
        tokens: torch.Tensor,
        depths: torch.Tensor,
        places: range,
        first: torch.Tensor,
        ancestors: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (rows, width, V) of tree nodes (rows, width), `depths` (width,) below the token
        before slot `first` (rows,), stored at offsets `places` from `first`. `ancestors` (width,
        n): which of the first n offsets each node attends to; committed slots all are."""
        offsets = torch.arange(places.start, places.stop, device=tokens.device)
        positions = first[:, None] - 1 + depths
        offset = self._slots - first[:, None]
        size = ancestors.shape[1]
        marked = ancestors[:, offset.clamp(0, size - 1)].transpose(0, 1)  # (rows, width, extent)
        inside = ((offset >= 0) & (offset < size))[:, None]
        visible = (offset < 0)[:, None] | (inside & marked)
        return self.logits(tokens, positions, first[:, None] + offsets, visible)

    def move(self, first: torch.Tensor, places: torch.Tensor) -> None:
        """Copies the slots at offsets `places` (rows, n) from `first` (rows,) to the slots from
        `first` on: the accepted path becomes contiguous."""
        steps = torch.arange(places.shape[1], device=places.device)
        self.arena.move_at(self.row_index, first[:, None] + places, first[:, None] + steps)

    @property
    def _slots(self) -> torch.Tensor:
        return torch.arange(self.extent, device=self.row_index.device)
