"""LeanForward: the pass of Llama-like models in few torch calls, with one projection for QKV and
one for gate and up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F

from core.models.forward import MaskKind, Masks, Write, over_batch
from core.models.kv_cache import KVArena, LayerShape
from core.models.layer_ops import Norm, Projection, Rotation, attend, rotate, row_major
from core.models.layer_stream import LayerStream
from core.models.rows import Batch

__all__ = [
    "MATRICES",
    "LeanForward",
    "LeanLayer",
    "LeanWeights",
    "layer_bytes",
    "map_tensors",
    "member_weights",
    "with_matrices",
]


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """One layer's weights; matrices are (inputs, outputs), possibly as transposed views. Head norms
    and biases are None if the model has none."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None
    sliding: bool


@dataclass(frozen=True, slots=True)
class LeanWeights:
    """A Llama-like model: `embedding` (V, hidden); `head` (hidden, V), or (hidden, n) for the first
    n token ids only; `inverse` (head size / 2,), float32: rotary frequencies; `rope_scale`: factor
    of cosines and sines. In the weights of a Stack (core/models/stacking.py) all tensors but
    `inverse` have a leading dimension of members."""

    embedding: torch.Tensor
    layers: tuple[LeanLayer, ...]
    norm: torch.Tensor
    head: torch.Tensor
    inverse: torch.Tensor
    rope_scale: float
    eps: float
    heads: int
    kv_heads: int
    head_size: int

    @property
    def is_tied(self) -> bool:
        """Whether the head shares the embedding's memory."""
        return self.head.data_ptr() == self.embedding.data_ptr()

    @property
    def bytes(self) -> int:
        """Bytes of the parameters; a tied head counts once."""
        tensors = [self.embedding, self.norm, *([] if self.is_tied else [self.head])]
        for layer in self.layers:
            parts = (getattr(layer, name) for name in layer.__slots__ if name != "sliding")
            tensors += [part for part in parts if part is not None]
        return sum(tensor.nbytes for tensor in tensors)


def map_tensors(
    models: Sequence[LeanWeights], combine: Callable[[list[torch.Tensor]], torch.Tensor]
) -> LeanWeights:
    """Combines each parameter of models of one shape: `combine` takes the parameter of each model.
    `inverse` and all values that are no tensors are the first model's."""
    first = models[0]
    embedding = combine([one.embedding for one in models])
    # A tied head stays a view of the embedding.
    outputs = first.head.shape[-1]
    tied_head = embedding.transpose(-2, -1)[..., :outputs]
    head = tied_head if first.is_tied else combine([one.head for one in models])
    layers = []
    for same in zip(*(one.layers for one in models), strict=True):
        parts = {f.name: [getattr(layer, f.name) for layer in same] for f in fields(LeanLayer)}
        by_field: dict[str, Any] = {
            n: combine(p) if isinstance(p[0], torch.Tensor) else p[0] for n, p in parts.items()
        }
        layers.append(LeanLayer(**by_field))
    norm = combine([one.norm for one in models])
    return replace(first, embedding=embedding, head=head, layers=tuple(layers), norm=norm)


def member_weights(weights: LeanWeights, member: int) -> LeanWeights:
    """One model's part of stacked weights, as views."""
    return map_tensors([weights], lambda parts: parts[0][member])


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Norm
    qkv: Projection
    q_norm: Norm | None
    k_norm: Norm | None
    out: Projection
    post_norm: Norm
    gate_up: Projection
    down: Projection
    windowed: bool


class LeanForward:
    """See `core.models.forward.TensorForward`."""

    def __init__(
        self,
        weights: LeanWeights,
        masks: MaskKind,
        stream: LayerStream | None = None,
        output: Callable[[torch.Tensor, torch.Tensor | None], Projection] = Projection,
    ) -> None:
        """`stream`: the matrices of an offloaded model's layers, which in `weights` are on the
        device `meta`. `output`: makes the projections into the residual stream."""
        self._weights, self._output = weights, output
        self.stream = stream
        # With one mask for all layers, every layer has the window.
        self._windowed = bool(masks.window) and not masks.by_layer_type
        self._layers: Iterable[_Layer] = (
            [self._layer(layer) for layer in weights.layers]
            if stream is None
            else _Streamed(stream, weights.layers, self._layer)
        )
        self._norm = Norm(weights.norm, weights.eps)
        self._head = Projection(row_major(weights.head), None)
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        shape = LayerShape(weights.kv_heads, weights.head_size, weights.head_size)
        self.shapes = [shape] * len(weights.layers)
        self._rotation = Rotation(weights.inverse, weights.rope_scale, self.dtype)

    @property
    def weight_bytes(self) -> int:
        # `row_major` may have copied the head.
        is_view = self._head.matrix.data_ptr() == self._weights.head.data_ptr()
        return self._weights.bytes + (0 if is_view else self._head.matrix.nbytes)

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        return over_batch(self, batch, arena)

    def reach(self, position: int) -> None:
        self._rotation.reach(position)

    def over(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        masks: Masks,
        write: Write,
        *,
        last_only: bool = False,
    ) -> torch.Tensor:
        w = self._weights
        rows, width = tokens.shape
        cos_sin = self._rotation.at(positions.reshape(-1))
        full, near = masks
        # (rows x width, hidden): only attention distinguishes rows.
        x = w.embedding[tokens.reshape(-1)]
        for i, layer in enumerate(self._layers):
            q, k, v = (
                # (rows, heads, width, head size), for attention.
                part.view(rows, width, -1, w.head_size).transpose(1, 2)
                for part in self._heads(layer, x, cos_sin)
            )
            keys, values = write(i, k, v)
            mask = near if layer.windowed else full
            attention = attend(q, keys, values, mask)
            x = layer.out.residual(x, attention.transpose(1, 2).reshape(len(x), -1))
            # SwiGLU: down(silu(gate) up).
            gate, up = layer.gate_up.times(layer.post_norm(x)).chunk(2, -1)
            x = layer.down.residual(x, F.silu(gate).mul_(up))
        if last_only:
            x = x.view(rows, width, -1)[:, -1]
        logits = self._head.times(self._norm(x))
        return logits.view(rows, -1, logits.shape[1])

    def _heads(
        self, layer: _Layer, x: torch.Tensor, cos_sin: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries and keys, rotated by position, and values: (tokens, heads, head size)."""
        w = self._weights
        qkv = layer.qkv.times(layer.input_norm(x)).view(len(x), -1, w.head_size)
        qk = qkv[:, : w.heads + w.kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            # Qwen 3 norms each head of queries and keys before the rotation.
            qk = torch.cat((layer.q_norm(qk[:, : w.heads]), layer.k_norm(qk[:, w.heads :])), 1)
        qk = rotate(qk, cos_sin)
        return qk[:, : w.heads], qk[:, w.heads :], qkv[:, w.heads + w.kv_heads :]

    def _layer(self, layer: LeanLayer) -> _Layer:
        eps = self._weights.eps
        return _Layer(
            input_norm=Norm(layer.input_norm, eps),
            qkv=Projection(layer.qkv, layer.qkv_bias),
            # Over the head size: one weight for all heads.
            q_norm=None if layer.q_norm is None else Norm(layer.q_norm, eps),
            k_norm=None if layer.k_norm is None else Norm(layer.k_norm, eps),
            out=self._output(layer.out, layer.out_bias),
            post_norm=Norm(layer.post_norm, eps),
            gate_up=Projection(layer.gate_up, layer.gate_up_bias),
            down=self._output(layer.down, layer.down_bias),
            windowed=layer.sliding or self._windowed,
        )


@dataclass(frozen=True)
class _Streamed:
    """The layers of a model whose matrices are streamed; iterating is one pass over them."""

    stream: LayerStream
    layers: Sequence[LeanLayer]
    operations: Callable[[LeanLayer], _Layer]

    def __iter__(self) -> Iterator[_Layer]:
        for layer, data in self.stream:
            yield self.operations(with_matrices(self.layers[layer], data))


# The parts of a layer that are streamed.
MATRICES = ("qkv", "out", "gate_up", "down")


def layer_bytes(layer: LeanLayer) -> torch.Tensor:
    """The matrices' memory (uint8), concatenated, for `with_matrices`."""
    matrices = (getattr(layer, name) for name in MATRICES)
    # Matrices stored as (outputs, inputs) are transposed views of contiguous matrices.
    flat = [m.flatten() if m.is_contiguous() else m.t().flatten() for m in matrices]
    return torch.cat(flat).view(torch.uint8)


def with_matrices(layer: LeanLayer, data: torch.Tensor) -> LeanLayer:
    """The layer with matrices that are views of `data`, with unchanged strides."""
    views: dict[str, Any] = {}
    at = 0
    for name in MATRICES:
        matrix: torch.Tensor = getattr(layer, name)
        # No values of the matrix are read: in a stream the matrix is on the device `meta`.
        part = data[at : at + matrix.nbytes].view(matrix.dtype)
        views[name] = part.as_strided(matrix.shape, matrix.stride())
        at += matrix.nbytes
    return replace(layer, **views)
