"""Forward: a model's pass over a Batch. GeneralForward is the pass of a transformers module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from core.models.kv_cache import ArenaCache, KVArena, LayerShape, ShapeProbe
from core.models.rows import Batch, BoolArray

__all__ = [
    "Forward",
    "GeneralForward",
    "MaskKind",
    "Masks",
    "KeysValues",
    "TensorForward",
    "Write",
    "additive",
    "cache_argument",
    "over_batch",
]


@dataclass(frozen=True, slots=True)
class MaskKind:
    """The form in which a transformers module takes attention masks.

    `window`: the sliding window in tokens, 0 for none. With `by_layer_type` the module takes a dict
    of a full and a sliding mask, else a single mask.
    """

    window: int = 0
    by_layer_type: bool = False


class Forward(Protocol):
    """A model's weights and the computation of a pass."""

    @property
    def device(self) -> torch.device:
        """Device of the logits."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, keys and values."""
        ...

    @property
    def shapes(self) -> Sequence[LayerShape]:
        """Shapes of the KV cache's layers."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        ...

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        """Logits (batch, width, V) in the model's dtype or float32. With `batch.last_only` a pass
        may return only the last query's logits: (batch, 1, V)."""
        ...


KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values (rows, heads, extent, head size) that a pass attends to."""
Write = Callable[[int, torch.Tensor, torch.Tensor], KeysValues]
"""Stores a layer's new keys and values (rows, heads, width, head size), given the layer's index;
returns KeysValues."""
Masks = tuple[torch.Tensor | None, torch.Tensor | None]
"""Masks added to attention scores, see `additive`: of layers with full attention, then of layers
with a sliding window. None: every slot is attended to."""


@runtime_checkable
class TensorForward(Forward, Protocol):
    """A pass over tensors without host decisions: a CUDA graph can capture it."""

    def reach(self, position: int) -> None:
        """Grows the rotary tables, if needed, to hold this position."""
        ...

    def over(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        masks: Masks,
        write: Write,
        *,
        last_only: bool = False,
    ) -> torch.Tensor:
        """Logits (rows, width, V) for tokens and positions (rows, width); with `last_only`, only
        the logits of each row's last query (rows, 1, V)."""
        ...


def over_batch(forward: TensorForward, batch: Batch, arena: KVArena) -> torch.Tensor:
    """An eager pass over a batch; see `Forward.logits`."""

    def write(layer: int, k: torch.Tensor, v: torch.Tensor) -> KeysValues:
        return arena.write(layer, batch.plan, k, v)

    # A host decision, which `over` must not make.
    forward.reach(int(batch.positions.max()))
    tokens, positions = (
        torch.from_numpy(part).to(forward.device) for part in (batch.tokens, batch.positions)
    )
    masks = _masks(batch, forward.dtype, forward.device)
    return forward.over(tokens, positions, masks, write, last_only=batch.last_only)


def _masks(batch: Batch, dtype: torch.dtype, device: torch.device) -> Masks:
    if batch.full.all() and batch.near.all():
        # Attention without a mask has a faster kernel.
        return None, None
    full = additive(batch.full, dtype, device)
    return full, full if batch.near is batch.full else additive(batch.near, dtype, device)


class GeneralForward:
    """See Forward. `module`: a decoder-only transformers module, in eval mode on its device."""

    def __init__(self, module: Any, masks: MaskKind) -> None:
        self._module = module
        self._masks = masks
        first = next(module.parameters())
        self.device: torch.device = first.device
        self.dtype: torch.dtype = first.dtype
        # Some modules lack the argument.
        self._keep_argument = "logits_to_keep" in inspect.signature(module.forward).parameters
        self._cache_argument = cache_argument(module)
        shapes = self._probe()
        # Layers that share another layer's cache are missing: they never call `ShapeProbe.update`.
        self._layers = sorted(shapes)
        self.shapes = [shapes[layer] for layer in self._layers]
        self._cache: ArenaCache | None = None

    @property
    def weight_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self._module.parameters())

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        if self._cache is None or self._cache.arena is not arena:
            self._cache = ArenaCache(arena, self._layers)
        self._cache.plan = batch.plan
        optional: dict[str, Any] = {}
        # Else the LM head would run for every token of a prompt.
        if self._keep_argument and batch.last_only:
            optional["logits_to_keep"] = 1
        optional[self._cache_argument] = self._cache
        output = self._module(
            input_ids=torch.from_numpy(batch.tokens).to(self.device),
            attention_mask=self._mask(batch.full, batch.near),
            position_ids=torch.from_numpy(batch.positions).to(self.device),
            use_cache=True,
            **optional,
        )
        logits: torch.Tensor = output.logits
        return logits

    def _mask(self, full: BoolArray, near: BoolArray) -> torch.Tensor | dict[str, torch.Tensor]:
        if self._masks.by_layer_type:
            return {
                "full_attention": additive(full, self.dtype, self.device),
                "sliding_attention": additive(near, self.dtype, self.device),
            }
        return additive(near, self.dtype, self.device)

    @torch.inference_mode()
    def _probe(self) -> dict[int, LayerShape]:
        probe = ShapeProbe()
        self._module(
            input_ids=torch.zeros((1, 1), dtype=torch.long, device=self.device),
            # One token that attends to itself.
            attention_mask=self._mask(*(2 * (np.ones((1, 1, 1), np.bool_),))),
            position_ids=torch.zeros((1, 1), dtype=torch.long, device=self.device),
            use_cache=True,
            **{self._cache_argument: probe},
        )
        return probe.shapes


def cache_argument(module: Any) -> str:
    """The name of the module's KV cache argument, which depends on the version of transformers."""
    parameters = inspect.signature(module.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def additive(visible: BoolArray, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A mask (batch, 1, width, extent) to add to attention scores: the dtype's minimum for hidden
    slots, else 0. transformers' `eager` and `sdpa` attention take this form."""
    hidden = torch.from_numpy(~visible[:, None]).to(device)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
    # Not -inf: softmax over no visible slot would be NaN.
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)
