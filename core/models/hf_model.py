"""HfModel: any decoder-only transformers model with softmax attention, behind LanguageModel.

Tree attention through 4-D masks and explicit position ids: a node sees the committed prefix, itself
and its ancestors; its position is committed length + depth. Sliding layers get a mask of their
own, by position. Knows nothing of drafts or verification.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from core.errors import ContextLengthError, EngineError
from core.events import ModelInfo
from core.models.kv_cache import ArenaCache, KVArena, ShapeProbe, SlotPlan
from core.models.language_model import Feed
from core.tree import ROOT

__all__ = ["HfModel", "MaskKind"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
FIRST_PENDING = 32


@dataclass(frozen=True, slots=True)
class MaskKind:
    """How a model wants its masks.

    `window` is the sliding window in tokens (0: none). `by_layer_type`: the model takes a dict of a
    full and a sliding mask; otherwise the window, if any, goes into the one mask.
    """

    window: int = 0
    by_layer_type: bool = False


@dataclass
class _Row:
    """One live request's context: `length` committed tokens, then pending nodes."""

    length: int = 0
    pending: int = 0
    depths: IntArray = field(default_factory=lambda: np.zeros(FIRST_PENDING, np.int64))
    seen: BoolArray = field(
        default_factory=lambda: np.zeros((FIRST_PENDING, FIRST_PENDING), np.bool_)
    )

    def add(self, parents: Sequence[int]) -> None:
        """Appends nodes; row i of `seen` marks node i and its ancestors."""
        total = self.pending + len(parents)
        if total > len(self.depths):
            self._grow(total)
        for i, parent in enumerate(parents, start=self.pending):
            if parent == ROOT:
                self.depths[i] = 1
                self.seen[i, :total] = False
            else:
                self.depths[i] = self.depths[parent] + 1
                self.seen[i, :total] = self.seen[parent, :total]
            self.seen[i, i] = True
        self.pending = total

    def keep(self, path: int, nodes: Sequence[int]) -> None:
        """`path` nodes became committed tokens; of the others only `nodes` stay pending."""
        self.length += path
        self.pending = count = len(nodes)
        if count:
            index = np.array(nodes, np.int64)
            self.depths[:count] = self.depths[index] - path
            self.seen[:count, :count] = self.seen[np.ix_(index, index)]

    def _grow(self, total: int) -> None:
        size = max(total, 2 * len(self.depths))
        depths, seen = np.zeros(size, np.int64), np.zeros((size, size), np.bool_)
        depths[: self.pending] = self.depths[: self.pending]
        seen[: self.pending, : self.pending] = self.seen[: self.pending, : self.pending]
        self.depths, self.seen = depths, seen

    def visible(self, count: int, extent: int) -> BoolArray:
        """(count, extent): which slots the last `count` pending nodes attend to."""
        mask = np.zeros((count, extent), np.bool_)
        mask[:, : self.length] = True
        end = self.length + self.pending
        mask[:, self.length : end] = self.seen[self.pending - count : self.pending, : self.pending]
        return mask

    def positions(self) -> IntArray:
        """Position of every slot in use."""
        pending = self.length + self.depths[: self.pending] - 1
        return np.concatenate([np.arange(self.length), pending])


class HfModel:
    """See LanguageModel. `module` is in eval mode on its device; the arena grows as rows need
    it."""

    def __init__(self, module: Any, info: ModelInfo, masks: MaskKind) -> None:
        self._module = module
        self._info = info
        self._masks = masks
        self._device: torch.device = next(module.parameters()).device
        self.dtype = next(module.parameters()).dtype
        # Both optional arguments are looked up, not assumed: older models lack one or the other.
        accepted = inspect.signature(module.forward).parameters
        self._keep_argument = "logits_to_keep" in accepted
        shapes = self._probe()
        self.arena = KVArena([shapes[i] for i in sorted(shapes)], self.dtype, self._device)
        self._cache = ArenaCache(self.arena, sorted(shapes))
        self._rows: list[_Row | None] = []

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
        return self._device

    @property
    def slots(self) -> int:
        return self.arena.slots

    @property
    def parts(self) -> tuple[Any, ModelInfo, MaskKind]:
        """What it was made of: `HfModel(*parts)` is another, with rows of its own."""
        return self._module, self._info, self._masks

    @property
    def weight_bytes(self) -> int:
        """What the parameters take, each tied one once."""
        return sum(parameter.nbytes for parameter in self._module.parameters())

    def renamed(self, name: str) -> HfModel:
        """The same model under another name."""
        self._info = replace(self._info, name=name)
        return self

    def open_row(self) -> int:
        if None not in self._rows:
            self._rows.append(None)
        row = self._rows.index(None)
        self._rows[row] = _Row()
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
        for feed in feeds:
            self._check(feed)
        for feed in feeds:
            self._row(feed.row).add(feed.parents)
        plan = self._plan(feeds)
        self.arena.reserve(len(self._rows), plan.extent)
        self._cache.plan = plan
        logits = self._pass(feeds, plan)
        if logits.shape[1] != plan.width:  # only the last token's logits were computed
            return [logits[0].float()]
        return [logits[i, feed_rows(feed)].float() for i, feed in enumerate(feeds)]

    @torch.inference_mode()
    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        state = self._row(row)
        moved = [*nodes, *keep]
        if any(not 0 <= node < state.pending for node in moved):
            raise EngineError(f"commit nodes are {moved}: 0 to {state.pending - 1} are pending")
        self.arena.compact(row, state.length, [state.length + node for node in moved])
        state.keep(len(nodes), keep)

    # -- one pass --

    def _row(self, row: int) -> _Row:
        state = self._rows[row] if 0 <= row < len(self._rows) else None
        if state is None:
            raise EngineError(f"row is {row}: it is not open")
        return state

    def _check(self, feed: Feed) -> None:
        row = self._row(feed.row)
        deepest = row.length + row.pending + len(feed.token_ids)
        if deepest > self.context_length:
            # Nodes share positions: only now is the exact depth worth computing.
            depths = [int(d) for d in row.depths[: row.pending]]
            for parent in feed.parents:
                depths.append(1 if parent == ROOT else depths[parent] + 1)
            if row.length + max(depths) > self.context_length:
                raise ContextLengthError(
                    f"context of {self._info.name} is {self.context_length} tokens: "
                    f"{row.length + max(depths)} were asked for"
                )

    def _plan(self, feeds: Sequence[Feed]) -> SlotPlan:
        counts = tuple(len(feed.token_ids) for feed in feeds)
        states = [self._row(feed.row) for feed in feeds]
        ends = [state.length + state.pending for state in states]
        starts = tuple(end - count for end, count in zip(ends, counts, strict=True))
        # One slot past every row's end takes what padded queries write.
        extent = max(ends) + (1 if min(counts) < max(counts) else 0)
        return SlotPlan(tuple(feed.row for feed in feeds), starts, counts, max(counts), extent)

    def _pass(self, feeds: Sequence[Feed], plan: SlotPlan) -> torch.Tensor:
        shape = (len(feeds), plan.width)
        tokens, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        full = np.zeros((*shape, plan.extent), np.bool_)
        near = full.copy() if self._masks.window else full
        for i, (feed, count) in enumerate(zip(feeds, plan.counts, strict=True)):
            row = self._row(feed.row)
            slots = row.positions()
            tokens[i, :count] = feed.token_ids
            positions[i, :count] = slots[-count:]
            full[i, :count] = row.visible(count, plan.extent)
            full[i, count:, -1] = True  # a padded query attends to the scratch slot alone
            if self._masks.window:
                reach = slots[None, :] > slots[-count:, None] - self._masks.window
                near[i, :count, : len(slots)] = full[i, :count, : len(slots)] & reach
                near[i, count:, -1] = True
        optional: dict[str, Any] = {}
        if self._keep_argument and len(feeds) == 1 and feeds[0].last_only:
            optional["logits_to_keep"] = 1
        output = self._module(
            input_ids=torch.from_numpy(tokens).to(self.device),
            attention_mask=self._mask(full, near),
            position_ids=torch.from_numpy(positions).to(self.device),
            past_key_values=self._cache,
            use_cache=True,
            **optional,
        )
        logits: torch.Tensor = output.logits
        return logits

    def _mask(self, full: BoolArray, near: BoolArray) -> torch.Tensor | dict[str, torch.Tensor]:
        if self._masks.by_layer_type:
            return {
                "full_attention": self._additive(full),
                "sliding_attention": self._additive(near),
            }
        return self._additive(near)

    def _additive(self, visible: BoolArray) -> torch.Tensor:
        # Added to the attention scores: every attention implementation takes this form.
        hidden = torch.from_numpy(~visible[:, None]).to(self.device)
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(hidden, torch.finfo(self.dtype).min)

    @torch.inference_mode()
    def _probe(self) -> dict[int, Any]:
        probe = ShapeProbe()
        self._module(
            input_ids=torch.zeros((1, 1), dtype=torch.long, device=self.device),
            attention_mask=self._mask(*(2 * (np.ones((1, 1, 1), np.bool_),))),
            position_ids=torch.zeros((1, 1), dtype=torch.long, device=self.device),
            past_key_values=probe,
            use_cache=True,
        )
        return probe.shapes


def feed_rows(feed: Feed) -> slice:
    """The rows of a padded pass's logits that belong to the feed."""
    count = len(feed.token_ids)
    return slice(count - 1 if feed.last_only else 0, count)
