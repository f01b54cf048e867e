"""HfModel: the LanguageModel of a decoder-only transformers model with softmax attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from core.errors import ContextLengthError, EngineError, UnsupportedModelError
from core.events import ModelInfo
from core.models.fastest import compiled_of, fastest
from core.models.forward import Forward, GeneralForward, MaskKind, TensorForward
from core.models.graphed import tensors_of
from core.models.kv_cache import KVArena
from core.models.layer_stream import LayerStream
from core.models.lean import LeanWeights
from core.models.lean_weights import adopt
from core.models.protocol import CACHED, Feed
from core.models.rows import Row, batch_of
from core.plurals import number_of

if TYPE_CHECKING:
    from core.models.native.forward import DraftResult, Ready
    from core.models.native.kernel_args import DraftBatch
    from core.models.native.workspace import DraftLimits

__all__ = ["HfModel", "feed_rows"]


class HfModel:
    """See LanguageModel. `module` is in eval mode on its device. `forward`: the pass to run; by
    default the fastest pass of `lean`, or, without `lean`, the pass of `module`."""

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
        # The loaded pass, while a pass with streamed layers replaces it; else None.
        self._resident_forward: Forward | None = None
        self.dtype = self._forward.dtype
        self.arena = KVArena(self._forward.shapes, self.dtype, self._forward.device)
        self._rows: list[Row | None] = []
        # Index in the Stack (core/models/stacking.py), and the number of its members.
        self._placement = (0, 1)
        self.stack: object | None = None

    # -- LanguageModel --

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def vocab_size(self) -> int:
        return self._info.vocab_size

    @cached_property
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
    def own_threads(self) -> bool:
        """Whether the pass runs on threads of its own instead of torch's."""
        # Read as an attribute, since importing the class of compiled passes needs numba.
        return bool(getattr(self._forward, "workers", 0))

    @property
    def can_stream_from_host(self) -> bool:
        """Whether `stream_from_host` is possible: the loaded pass is compiled and streams no
        layers."""
        compiled = compiled_of(self._resident_forward or self._forward)
        return compiled is not None and compiled.stream is None

    def stream_from_host(self, mbps: float) -> None:
        """Streams the layers from host memory at `mbps` (10^6 bytes/s) in later passes; 0 ends
        streaming. Raises UnsupportedModelError if `mbps` is above 0 and `can_stream_from_host` is
        false."""
        resident = self._resident_forward or self._forward
        compiled = compiled_of(resident)
        if mbps and not self.can_stream_from_host:
            raise UnsupportedModelError(
                "the LLM's layers cannot be streamed from memory here: a compiled pass on a CPU, "
                "loaded without --offload, is allowed"
            )
        self._forward = compiled.with_streamed_layers(mbps) if mbps and compiled else resident
        self._resident_forward = resident if mbps else None

    @property
    def kernels(self) -> Any:
        """The kernels of a compiled pass, else None."""
        compiled = compiled_of(self._forward)
        return None if compiled is None else compiled.kernels

    @property
    def stream(self) -> LayerStream | None:
        """The stream of the model's layers; None if they are not streamed."""
        stream: LayerStream | None = getattr(self._forward, "stream", None)
        return stream

    @property
    def weight_bytes(self) -> int:
        """See `Forward.weight_bytes`."""
        return self._forward.weight_bytes

    def rename(self, name: str) -> HfModel:
        """Changes the name in `info`; returns the model."""
        self._info = replace(self._info, name=name)
        return self

    def open_row(self) -> int:
        # The lowest free number, since the arena has a row for each number up to the largest.
        if None not in self._rows:
            self._rows.append(None)
        row = self._rows.index(None)
        self._rows[row] = Row()
        return row

    def close_row(self, row: int) -> None:
        # The slots keep their contents: masks hide them from the row's next user.
        self._rows[row] = None

    def length(self, row: int) -> int:
        return self._row(row).length

    def pending(self, row: int) -> int:
        return self._row(row).pending

    @torch.inference_mode()
    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        self.check(feeds)
        rows = self.add_nodes(feeds)
        places = [self.place(feed.row) for feed in feeds]
        batch = batch_of(feeds, rows, places, self.masks.window)
        self.arena.reserve(self.rows_held, batch.plan.extent)
        logits = self._forward.logits(batch, self.arena)
        # float32: transformers' `generate` processes logits in float32.
        if logits.shape[1] != batch.plan.width:  # the pass has computed the last logits only
            return [logits[0].float()]
        return [logits[i, feed_rows(feed)].float() for i, feed in enumerate(feeds)]

    @torch.inference_mode()
    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        state = self._row(row)
        # The path's nodes move to the slots right after the committed tokens; the nodes of `keep`
        # follow.
        order = [*nodes, *keep]
        if any(not 0 <= node < state.pending for node in order):
            raise EngineError(f"commit nodes are {order}: 0 to {state.pending - 1} are pending")
        self.arena.compact(self.place(row), state.length, [state.length + node for node in order])
        state.keep(len(nodes), keep)

    def pass_bytes(self, rows: int, width: int, extent: int) -> int:
        """Estimated bytes that a pass over `rows` rows of `width` tokens allocates, if the longest
        row has `extent` slots. Counts logits, copies of one layer's cache and a grown cache."""
        # `forward` copies the logits to float32: 4 bytes each.
        logits = rows * width * self.vocab_size * (4 + self.dtype.itemsize)
        cache = self.arena.copied_bytes(rows, extent)
        return logits + cache + self.arena.growth_bytes(self.rows_held, extent)

    # -- for passes that run outside `forward`: native drafting and CUDA graphs --

    @property
    def tensors(self) -> TensorForward | None:
        """The model's TensorForward; None if it has none or attention has a window."""
        return None if self.masks.window else tensors_of(self._forward)

    @property
    def is_compiled(self) -> bool:
        """Whether the pass is native code."""
        return compiled_of(self._forward) is not None

    @torch.inference_mode()
    def drafts(self, draft_batch: DraftBatch, limits: DraftLimits, ready: Ready) -> DraftResult:
        """See `CompiledForward.drafts`, for a model that is not stacked. Rows do not change: `note`
        records the fed tokens."""
        compiled = compiled_of(self._forward)
        assert compiled is not None, "only a compiled pass drafts in native code"
        self.arena.reserve(self.rows_held, limits.slots)
        return compiled.drafts(draft_batch, limits, ready, self.arena)

    def note(self, row: int, committed: int, parents: Sequence[int] = ()) -> None:
        """Records the tokens that a pass outside `forward` wrote to the row's slots: `committed`
        more tokens, then pending nodes with these parents. Raises EngineError if nodes are pending
        already."""
        state = self._row(row)
        if state.pending:
            raise EngineError(f"pending nodes are {state.pending}: none may be left behind")
        state.length += committed
        state.add(parents)

    # -- for Stack --

    @property
    def lean_weights(self) -> LeanWeights | None:
        """The weights as LeanWeights; None if the model was made without them."""
        return self._lean

    @property
    def rows_held(self) -> int:
        """The number of arena rows: this model's rows times the number of stack members."""
        return len(self._rows) * self._placement[1]

    def join(
        self,
        stack: object,
        arena: KVArena,
        placement: tuple[int, int],
        own: tuple[LeanWeights, Forward],
    ) -> None:
        """Switches to the stack's arena. `placement`: (index, number of members). `own`: views of
        the stack's weights, and a pass over these views. Raises EngineError if a row is open."""
        if any(row is not None for row in self._rows):
            raise EngineError(f"{self._info.name} has open rows: it cannot join a stack now")
        self.stack, self.arena, self._placement, self._rows = stack, arena, placement, []
        self._lean, self._forward = own
        if self._module is not None:
            # Else the module would keep a second copy of the weights alive.
            adopt(self._module, self._lean)

    def place(self, row: int) -> int:
        """The arena row that holds `row` of this model."""
        index, members = self._placement
        # The members' rows with the same number are adjacent in the arena.
        return row * members + index

    def add_nodes(self, feeds: Sequence[Feed]) -> list[Row]:
        """Adds the feeds' nodes to their rows; returns these rows."""
        rows = [self._row(feed.row) for feed in feeds]
        for feed, row in zip(feeds, rows, strict=True):
            row.add(feed.parents)
        return rows

    def check(self, feeds: Sequence[Feed]) -> None:
        """Raises ContextLengthError and EngineError, see `LanguageModel.forward`; changes
        nothing."""
        for feed in feeds:
            row = self._row(feed.row)
            for node, parent in enumerate(feed.parents, start=row.pending):
                if not CACHED <= parent < node:
                    raise EngineError.of(
                        f"parent of node {node}", parent, f"-1 to {node - 1} are there"
                    )
            # The cheap bound first: no path is longer than a chain of all nodes.
            if row.length + row.pending + len(feed.token_ids) <= self.context_length:
                continue
            if (needed := row.context_needed(feed.parents)) > self.context_length:
                raise ContextLengthError(
                    f"context of {self._info.name} is {number_of(self.context_length, 'token')}: "
                    f"{needed} were asked for"
                )

    def _row(self, row: int) -> Row:
        state = self._rows[row] if 0 <= row < len(self._rows) else None
        if state is None:
            raise EngineError.of("row", row, "it is not open")
        return state


def feed_rows(feed: Feed) -> slice:
    """The queries whose logits the feed asks for."""
    count = len(feed.token_ids)
    return slice(count - 1 if feed.last_only else 0, count)
