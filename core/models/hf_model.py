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
from core.models.fastest import compiled_of, fastest, kernels_of, run_drafts, stream_from_host
from core.models.forward import Forward, GeneralForward, MaskKind, TensorForward
from core.models.fusing import adopt
from core.models.graphed import tensors_of
from core.models.kv_cache import KVArena
from core.models.layer_stream import LayerStream
from core.models.lean import LeanWeights
from core.models.protocol import Feed
from core.models.rows import Row, batch_of
from core.trees.tree import ROOT

if TYPE_CHECKING:
    from core.models.native.forward import DraftResult, Ready
    from core.models.native.kernel_args import DraftBatch
    from core.models.native.workspace import DraftLimits

__all__ = ["HfModel", "feed_rows"]


class HfModel:
    """See LanguageModel. `module` is in eval mode on its device; with `lean` weights the fastest
    pass of core/models/fastest.py runs, and `module` may be None; `forward`: the pass to run
    instead. The KV arena grows on demand."""

    def __init__(
        self,
        module: Any,
        info: ModelInfo,
        masks: MaskKind,
        lean: LeanWeights | None = None,
        forward: Forward | None = None,
    ) -> None:
        self._module = module
        self._info = info
        self.masks = masks
        self._lean = lean
        self._forward: Forward = forward or (
            GeneralForward(module, masks) if lean is None else fastest(lean, masks)
        )
        # While layers are streamed from memory, the pass as it was loaded.
        self._resident_forward: Forward | None = None
        self.dtype = self._forward.dtype
        self.arena = KVArena(self._forward.shapes, self.dtype, self._forward.device)
        self._rows: list[Row | None] = []
        # (index among the members of its stack, their number).
        self._placement = (0, 1)
        self.stack: object | None = None

    # -- LanguageModel --

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def vocab_size(self) -> int:
        return self._info.vocab_size

    @property
    def num_embeddings(self) -> int:
        return len(self.embeddings)

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
    def embeddings(self) -> torch.Tensor:
        """The input embeddings, (vocabulary, d)."""
        table: torch.Tensor = self._module.get_input_embeddings().weight
        return table

    @property
    def lean(self) -> bool:
        """Whether the pass runs on LeanWeights, not through the transformers module."""
        return self._lean is not None

    @property
    def own_threads(self) -> bool:
        """Whether the pass runs on threads of its own instead of torch's."""
        return bool(getattr(self._forward, "workers", 0))

    def stream_from_host(self, mbps: float) -> None:
        """From the next pass on layers are copied from memory at this rate, as if they did not fit;
        0: as the model was loaded. Raises UnsupportedModelError."""
        resident = self._resident_forward or self._forward
        self._forward = stream_from_host(resident, mbps) if mbps else resident
        self._resident_forward = resident if mbps else None

    @property
    def kernels(self) -> Any:
        """See `kernels_of`."""
        return kernels_of(self._forward)

    @property
    def stream(self) -> LayerStream | None:
        """Of an offloaded model the stream of its layers."""
        found: LayerStream | None = getattr(self._forward, "stream", None)
        return found

    @property
    def weight_bytes(self) -> int:
        """Bytes of the parameters, tied ones counted once."""
        return self._forward.weight_bytes

    def rename(self, name: str) -> HfModel:
        """Changes the name in `info`; returns itself."""
        self._info = replace(self._info, name=name)
        return self

    def open_row(self) -> int:
        # Numbers of closed rows are used again: the arena has a row for each number.
        if None not in self._rows:
            self._rows.append(None)
        row = self._rows.index(None)
        self._rows[row] = Row()
        return row

    def close_row(self, row: int) -> None:
        # The slots keep their contents; the next row of this number starts with length 0 and hides
        # them.
        self._rows[row] = None

    def length(self, row: int) -> int:
        return self._row(row).length

    def pending(self, row: int) -> int:
        """See LanguageModel."""
        return self._row(row).pending

    @torch.inference_mode()
    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        # Everything that can be refused is refused before any row changes.
        self.check(feeds)
        rows = self.enter(feeds)
        places = [self.place(feed.row) for feed in feeds]
        batch = batch_of(feeds, rows, places, self.masks.window)
        # Before the pass, which reads views of the arena.
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
        # The KV has moved; now the bookkeeping follows.
        state.keep(len(nodes), keep)

    # -- for passes that run outside `forward`: native drafting and CUDA graphs --

    @property
    def tensors(self) -> TensorForward | None:
        """The pass over tensors alone, None if there is none or attention has a window."""
        return None if self.masks.window else tensors_of(self._forward)

    @property
    def is_compiled(self) -> bool:
        """Whether the pass is native code."""
        return compiled_of(self._forward) is not None

    @torch.inference_mode()
    def drafts(self, draft_batch: DraftBatch, limits: DraftLimits, ready: Ready) -> DraftResult:
        """See `CompiledForward.drafts`, for a model that is not stacked. Rows do not change: `note`
        records what was fed."""
        return run_drafts(self._forward, (draft_batch, limits, ready), (self.arena, self.rows_held))

    def note(self, row: int, committed: int, parents: Sequence[int] = ()) -> None:
        """Records what a pass outside `forward` wrote to the row's slots: `committed` more tokens,
        then pending nodes with these parents. Nothing may be pending before."""
        state = self._row(row)
        if state.pending:
            raise EngineError(f"pending nodes are {state.pending}: none may be left behind")
        state.length += committed
        state.add(parents)

    # -- for Stack --

    @property
    def lean_weights(self) -> LeanWeights | None:
        """None if the pass runs through the transformers module."""
        return self._lean

    @property
    def rows_held(self) -> int:
        """Rows of the arena that its rows take, with those of the other members of its stack."""
        return len(self._rows) * self._placement[1]

    def join(
        self,
        stack: object,
        arena: KVArena,
        placement: tuple[int, int],
        own: tuple[LeanWeights, Forward],
    ) -> None:
        """Switches to `own`, views of the stack's weights and a pass over them, and to the stack's
        arena. `placement`: (index, number of members). No row may be open."""
        if any(row is not None for row in self._rows):
            raise EngineError(f"{self._info.name} has open rows: it cannot join a stack now")
        self.stack, self.arena, self._placement, self._rows = stack, arena, placement, []
        self._lean, self._forward = own
        if self._module is not None:
            # Else the module would keep the member's weights alive beside the stack's.
            adopt(self._module, self._lean)

    def place(self, row: int) -> int:
        """The arena's row of one of its rows: members alternate."""
        which, members = self._placement
        # Rows of one number are adjacent: a pass of all members reads a contiguous view.
        return row * members + which

    def enter(self, feeds: Sequence[Feed]) -> list[Row]:
        """Adds the feeds' nodes to their rows; returns these rows."""
        rows = [self._row(feed.row) for feed in feeds]
        for feed, row in zip(feeds, rows, strict=True):
            row.add(feed.parents)
        return rows

    def check(self, feeds: Sequence[Feed]) -> None:
        """Raises the errors that `forward` would; changes nothing."""
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
        # A bound without walking the tree: if all nodes were one chain.
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
