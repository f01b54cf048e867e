"""HfModel: a decoder-only transformers model with softmax attention, behind LanguageModel.

Tree attention: a node sees the committed prefix, itself and its ancestors; its position is
committed length + depth. Sliding layers see by position. Knows nothing of drafts or verification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from core.errors import ContextLengthError, EngineError
from core.events import ModelInfo
from core.models.fastest import compiled_of, drafted, fastest
from core.models.forward import Forward, GeneralForward, MaskKind, TensorForward
from core.models.fusing import adopt
from core.models.graphed import tensors_of
from core.models.kv_cache import KVArena
from core.models.language_model import Feed
from core.models.lean import LeanWeights
from core.models.rows import Row, batch_of
from core.tree import ROOT

if TYPE_CHECKING:
    from core.models.compiled.described import Told
    from core.models.compiled.forward import Drafted, Ready
    from core.models.compiled.scratch import Room

__all__ = ["HfModel", "feed_rows"]


class HfModel:
    """See LanguageModel. `module` is in eval mode on its device; with `lean` the pass is that of
    core/models/lean.py, and there need be no module. The arena grows as rows need it."""

    def __init__(
        self, module: Any, info: ModelInfo, masks: MaskKind, lean: LeanWeights | None = None
    ) -> None:
        self._module = module
        self._info = info
        self.masks = masks
        self._lean = lean
        self._forward: Forward = (
            GeneralForward(module, masks) if lean is None else fastest(lean, masks)
        )
        self.dtype = self._forward.dtype
        self.arena = KVArena(self._forward.shapes, self.dtype, self._forward.device)
        self._rows: list[Row | None] = []
        self._berth = (0, 1)
        self.stack: object | None = None

    # -- what is asked of a LanguageModel --

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def vocab_size(self) -> int:
        return self._info.vocab_size

    @property
    def context_length(self) -> int:
        return self._info.context_length

    @property
    def device(self) -> torch.device:
        return self._forward.device

    @property
    def slots(self) -> int:
        return self.arena.slots

    @property
    def lean(self) -> bool:
        """Whether its pass is the lean one."""
        return self._lean is not None

    @property
    def own_threads(self) -> bool:
        """Whether its pass has threads of its own, apart from torch's."""
        return bool(getattr(self._forward, "workers", 0))

    @property
    def weight_bytes(self) -> int:
        """What the parameters take, each tied one once."""
        return self._forward.weight_bytes

    def renamed(self, name: str) -> HfModel:
        """The same model under another name."""
        self._info = replace(self._info, name=name)
        return self

    def open_row(self) -> int:
        if None not in self._rows:
            self._rows.append(None)
        row = self._rows.index(None)
        self._rows[row] = Row()
        return row

    def close_row(self, row: int) -> None:
        self._rows[row] = None

    def length(self, row: int) -> int:
        return self._row(row).length

    def pending(self, row: int) -> int:
        """Nodes fed and not yet committed."""
        return self._row(row).pending

    @torch.inference_mode()
    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        self.check(feeds)
        rows = self.enter(feeds)
        places = [self.place(feed.row) for feed in feeds]
        batch = batch_of(feeds, rows, places, self.masks.window)
        self.arena.reserve(self.rows_held, batch.plan.extent)
        logits = self._forward.logits(batch, self.arena)
        if logits.shape[1] != batch.plan.width:  # only the last token's logits were computed
            return [logits[0].float()]
        return [logits[i, feed_rows(feed)].float() for i, feed in enumerate(feeds)]

    @torch.inference_mode()
    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        state = self._row(row)
        moved = [*nodes, *keep]
        if any(not 0 <= node < state.pending for node in moved):
            raise EngineError(f"commit nodes are {moved}: 0 to {state.pending - 1} are pending")
        self.arena.compact(self.place(row), state.length, [state.length + node for node in moved])
        state.keep(len(nodes), keep)

    # -- what passes that are made elsewhere ask of it --

    @property
    def tensors(self) -> TensorForward | None:
        """Its pass over tensors alone, if it has one and sees all of a text."""
        return None if self.masks.window else tensors_of(self._forward)

    @property
    def compiled(self) -> bool:
        """Whether its pass is machine code."""
        return compiled_of(self._forward) is not None

    @torch.inference_mode()
    def drafts(self, told: Told, room: Room, ready: Ready) -> Drafted:
        """See `CompiledForward.drafts`: the pass is compiled and has one member. Rows stay as they
        are: `note` tells them."""
        return drafted(self._forward, (told, room, ready), (self.arena, self.rows_held))

    def note(self, row: int, committed: int, parents: Sequence[int] = ()) -> None:
        """Somebody has stored so many more committed tokens in the row's slots, and nodes under
        these parents behind them. Nothing may be pending."""
        state = self._row(row)
        if state.pending:
            raise EngineError(f"pending nodes are {state.pending}: none may be left behind")
        state.length += committed
        state.add(parents)

    # -- what a stack asks of its members --

    @property
    def lean_weights(self) -> LeanWeights | None:
        """The lean pass's, None where it has another."""
        return self._lean

    @property
    def rows_held(self) -> int:
        """Rows of the arena that its own take, the members' beside them counted in."""
        return len(self._rows) * self._berth[1]

    def join(
        self,
        stack: object,
        arena: KVArena,
        berth: tuple[int, int],
        own: tuple[LeanWeights, Forward],
    ) -> None:
        """Works from now on with weights, and a pass over them, that are a part of the stack's, in
        its arena: `berth` is which member of how many. No row may be open."""
        if any(row is not None for row in self._rows):
            raise EngineError(f"{self._info.name} has open rows: it cannot join a stack now")
        self.stack, self.arena, self._berth, self._rows = stack, arena, berth, []
        self._lean, self._forward = own
        if self._module is not None:
            adopt(self._module, self._lean)

    def place(self, row: int) -> int:
        """Where one of its rows lies in the arena."""
        which, members = self._berth
        return row * members + which

    def enter(self, feeds: Sequence[Feed]) -> list[Row]:
        """Adds the feeds' nodes to their rows, which it returns."""
        rows = [self._row(feed.row) for feed in feeds]
        for feed, row in zip(feeds, rows, strict=True):
            row.add(feed.parents)
        return rows

    def check(self, feeds: Sequence[Feed]) -> None:
        """Raises what `forward` would; adds nothing."""
        for feed in feeds:
            self._check(feed)

    def _row(self, row: int) -> Row:
        state = self._rows[row] if 0 <= row < len(self._rows) else None
        if state is None:
            raise EngineError(f"row is {row}: it is not open")
        return state

    def _check(self, feed: Feed) -> None:
        row = self._row(feed.row)
        for node, parent in enumerate(feed.parents, start=row.pending):
            if not ROOT <= parent < node:
                raise EngineError(f"parent of node {node} is {parent}: -1 to {node - 1} are there")
        if row.length + row.pending + len(feed.token_ids) <= self.context_length:
            return
        # Nodes share positions: only now is the exact depth worth computing.
        deepest = row.deepest(feed.parents)
        if deepest > self.context_length:
            raise ContextLengthError(
                f"context of {self._info.name} is {self.context_length} tokens: "
                f"{deepest} were asked for"
            )


def feed_rows(feed: Feed) -> slice:
    """The rows of a padded pass's logits that belong to the feed."""
    count = len(feed.token_ids)
    return slice(count - 1 if feed.last_only else 0, count)
