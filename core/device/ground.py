"""Ground: the rows that a pass over fixed shapes stands on, and what its queries see of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.models.forward import Seen, TensorForward
from core.models.kv_cache import KVArena

__all__ = ["EXTENT", "Ground", "up_to"]

EXTENT = 256


def up_to(slots: int) -> int:
    """How many slots a pass looks at that uses so many, and one more for what is padded."""
    return -(-(slots + 1) // EXTENT) * EXTENT


@dataclass(frozen=True, slots=True)
class Ground:
    """`rows` of an arena, in each of which `extent` slots are looked at; `at` (rows, 1) are the
    same rows where the arena lies. `vocab_size` is the model's own."""

    forward: TensorForward
    arena: KVArena
    rows: tuple[int, ...]
    at: torch.Tensor
    extent: int
    vocab_size: int

    @classmethod
    def of(
        cls, forward: TensorForward, arena: KVArena, rows: tuple[int, ...], extent: int, vocab: int
    ) -> Ground:
        """Its tensors made, so that nothing is moved while a pass runs."""
        at = torch.tensor(rows, device=forward.device)[:, None]
        return cls(forward, arena, rows, at, extent, vocab)

    def over(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        seen: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (rows, width, V), float32, of tokens at positions, kept in slots (rows, width);
        `seen` (rows, width, extent). A token that the model does not know is its last."""
        forward, extent = self.forward, self.extent
        mask = torch.zeros(seen.shape, dtype=forward.dtype, device=forward.device)
        mask = mask.masked_fill_(~seen, torch.finfo(forward.dtype).min)[:, None]

        def write(layer: int, k: torch.Tensor, v: torch.Tensor) -> Seen:
            return self.arena.write_at(layer, self.rows, (self.at, slots), extent, (k, v))

        known = tokens.clamp(max=self.vocab_size - 1)
        return forward.over(known, positions, (mask, mask), write).float()

    def text(self, tokens: torch.Tensor, first: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """Logits (rows, 1, V) after the last of `count` (rows,) tokens (rows, width), which follow
        the `first` (rows,) ones of each row. What is padded writes the last slot."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        last = (count - 1)[:, None]
        positions = first[:, None] + torch.minimum(steps, last)
        slots = (first[:, None] + steps).masked_fill(steps > last, self.extent - 1)
        seen = self._slots <= positions[..., None]
        logits = self.over(tokens, positions, slots, seen)
        return logits.gather(1, last[..., None].expand(-1, -1, logits.shape[2]))

    def nodes(
        self,
        tokens: torch.Tensor,
        depths: torch.Tensor,
        places: range,
        first: torch.Tensor,
        sees: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (rows, width, V) of tree nodes (rows, width): `depths` (width,) below the token
        before slot `first` (rows,), kept in the slots `places` behind it. `sees` (width, n) marks
        which of the first n of these slots a node attends to."""
        behind = torch.arange(places.start, places.stop, device=tokens.device)
        positions = first[:, None] - 1 + depths
        place = self._slots - first[:, None]
        size = sees.shape[1]
        marked = sees[:, place.clamp(0, size - 1)].transpose(0, 1)  # (rows, width, extent)
        inside = ((place >= 0) & (place < size))[:, None]
        seen = (place < 0)[:, None] | (inside & marked)
        return self.over(tokens, positions, first[:, None] + behind, seen)

    def move(self, first: torch.Tensor, places: torch.Tensor) -> None:
        """Copies the slots `places` (rows, n) behind `first` (rows,) to those from `first` on."""
        steps = torch.arange(places.shape[1], device=places.device)
        self.arena.move_at(self.at, first[:, None] + places, first[:, None] + steps)

    @property
    def _slots(self) -> torch.Tensor:
        return torch.arange(self.extent, device=self.at.device)
