"""Packing: LeanWeights to the native pass's memory layout.

If all matrices are exact in bfloat16, they are stored in 16 bits, whatever their dtype: half the
memory traffic, no rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from core.models.layer_ops import cos_sin_table
from core.models.lean import MATRICES, LeanLayer, LeanWeights, member_weights
from core.models.native.compiling import (
    LINE,
    interleaves_weights,
    multiplies_pairs,
    multiplies_tiles,
    registers,
)
from core.models.native.kernel_args import BLOCK, HALF_BLOCK, ModelSizes, PackedWeights
from core.models.native.weight_formats import TILE, interleave, kind_of_array

__all__ = [
    "Array",
    "bits",
    "empty_aligned",
    "is_half",
    "pack_layer",
    "pack_weights",
    "rotation_tables",
    "round_up",
    "shape_of",
    "storage_type_of",
]

Array = npt.NDArray[Any]


def shape_of(weights: LeanWeights) -> ModelSizes:
    """Sizes of one model or of stacked models."""
    members = _members(weights)
    one = members[0]
    layer = one.layers[0]
    return ModelSizes(
        members=len(members),
        layers=len(one.layers),
        hidden=one.embedding.shape[1],
        heads=one.heads,
        kv_heads=one.kv_heads,
        size=one.head_size,
        inner=round_up(layer.gate_up.shape[1] // 2, HALF_BLOCK),
        outputs=round_up(one.head.shape[1], BLOCK),
        vocabulary=len(one.embedding),
        normed_heads=layer.q_norm is not None,
    )


def pack_weights(
    weights: LeanWeights,
    *,
    windowed: Sequence[bool],
    positions: int,
    head_type: type[Any] | None = None,
) -> PackedWeights:
    """Packs one model, or stacked models. `windowed`: for each layer, whether it has the sliding
    window; `positions`: length of the rotary tables. With `head_type` only the head's matrix is
    packed, in this element type: the matrices of the layers are streamed."""
    shape, members = shape_of(weights), _members(weights)
    cos, sin = rotation_tables(weights, positions)
    if head_type is not None:
        blocks = _blocks(weights.head, head_type)
        matrices = empty_aligned(blocks.size, head_type)
        matrices[:] = blocks.reshape(-1)
    else:
        # All matrices or none are in 16 bits: a kernel is compiled for one format of weights.
        layers = [layer for one in members for layer in one.layers]
        half = all(is_half(one.head) for one in members) and all(
            is_half(getattr(layer, name)) for layer in layers for name in MATRICES
        )
        matrices = _pack_matrices(members, shape, storage_type_of(weights, half))
    return PackedWeights(
        embedding=bits(weights.embedding).reshape(-1),
        matrices=matrices,
        vectors=np.concatenate([part for one in members for part in _vectors(one, shape)]),
        cos=cos,
        sin=sin,
        windowed=np.array(windowed),
        eps=np.float32(weights.eps),
    )


def storage_type_of(weights: LeanWeights, half: bool) -> type[Any]:
    """Element type of weights (see `weight_formats`). `half`: whether all weights are exact in
    bfloat16. AVX512_BF16 is used only for bfloat16 models: it rounds activations to bfloat16."""
    if not half:
        return np.float32
    shape, is_bfloat16 = shape_of(weights), weights.embedding.dtype == torch.bfloat16
    # Inputs of QKV, gate and up, and the head; of the attention output; of down.
    inputs = shape.hidden, shape.heads * shape.size, shape.inner
    # A tile has 16 rows of pairs: 32 inputs.
    if multiplies_tiles() and all(count % (2 * TILE) == 0 for count in inputs):
        return np.int64 if is_bfloat16 else np.int32
    if multiplies_pairs() and is_bfloat16 and all(count % 2 == 0 for count in inputs):
        return np.uint32
    return np.int16 if interleaves_weights() else np.uint16


def _pack_matrices(
    members: Sequence[LeanWeights], shape: ModelSizes, storage_type: type[Any]
) -> Array:
    """All matrices of all members; packed one at a time, to bound the memory of copies."""
    qkv = round_up((shape.heads + 2 * shape.kv_heads) * shape.size, BLOCK)
    back = round_up(shape.hidden, BLOCK)
    # The number of weights of a layer: inputs times padded outputs of QKV, gate and up, attention
    # output, down.
    layer = shape.hidden * (qkv + 2 * shape.inner)
    layer += (shape.heads * shape.size + shape.inner) * back
    entries = shape.members * (shape.layers * layer + shape.hidden * shape.outputs)
    # With pairs or tiles, an element holds several weights.
    storage = empty_aligned(entries // kind_of_array(storage_type).inputs, storage_type)
    at = 0
    for matrix in (matrix for one in members for matrix in _ordered_matrices(one, shape)):
        blocks = _blocks(matrix, storage_type)
        storage[at : at + blocks.size] = blocks.reshape(-1)
        at += blocks.size
    assert at == len(storage), (at, len(storage))
    return storage


def pack_layer(layer: LeanLayer, shape: ModelSizes, storage_type: type[Any]) -> Array:
    """A layer's matrices in the order that ModelSizes describes, flat."""
    matrices = _matrices_of_layer(layer, shape)
    return np.concatenate([_blocks(one, storage_type).reshape(-1) for one in matrices])


def empty_aligned(entries: int, storage_type: type[Any]) -> Array:
    """An uninitialized array that begins at a cache line: a tile's row across two lines takes six
    times as long to load."""
    size = np.dtype(storage_type).itemsize
    padded = np.empty(entries + LINE // size, storage_type)
    # Number of elements up to the next cache line.
    begin = -padded.ctypes.data % LINE // size
    return padded[begin : begin + entries]


def rotation_tables(weights: LeanWeights, positions: int) -> tuple[Array, Array]:
    """Cosines and signed sines (positions, head size), flat."""
    cos, sin = cos_sin_table(weights.inverse, weights.rope_scale, positions)
    return cos.numpy().reshape(-1), sin.numpy().reshape(-1)


def bits(tensor: torch.Tensor) -> Array:
    """The same memory as a numpy array, bfloat16 as uint16."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _members(weights: LeanWeights) -> list[LeanWeights]:
    if weights.embedding.dim() == 2:
        return [weights]
    return [member_weights(weights, m) for m in range(len(weights.embedding))]


def _ordered_matrices(weights: LeanWeights, shape: ModelSizes) -> Iterator[torch.Tensor]:
    for layer in weights.layers:
        yield from _matrices_of_layer(layer, shape)
    yield weights.head


def _matrices_of_layer(layer: LeanLayer, shape: ModelSizes) -> Iterator[torch.Tensor]:
    yield layer.qkv
    yield layer.out
    yield _interleave_gates(layer.gate_up, shape.inner)
    # Padded MLP units have gate and up 0: the padded rows of `down` are multiplied by 0.
    pad = shape.inner - layer.down.shape[0]
    yield torch.nn.functional.pad(layer.down, (0, 0, 0, pad))


def _vectors(weights: LeanWeights, shape: ModelSizes) -> list[Array]:
    """Norms and biases in the order that ModelSizes describes; zeros in place of vectors that the
    model does not have."""
    # One layout for all models; the kernel skips head norms if the model has none.
    zeros = torch.zeros(shape.size)
    vectors = []
    for layer in weights.layers:
        vectors += [_as_float32(layer.input_norm), _as_float32(layer.post_norm)]
        vectors += [_as_float32(zeros if n is None else n) for n in (layer.q_norm, layer.k_norm)]
        vectors += _biases(layer, shape)
    return [*vectors, _as_float32(weights.norm)]


def _biases(layer: LeanLayer, shape: ModelSizes) -> list[Array]:
    up = layer.gate_up_bias
    gate_bias = None if up is None else _interleave_gates(up, shape.inner)
    sizes = [
        (layer.qkv_bias, layer.qkv.shape[1]),
        (layer.out_bias, shape.hidden),
        (gate_bias, 2 * shape.inner),
        (layer.down_bias, shape.hidden),
    ]
    return [_bias(bias, round_up(size, BLOCK)) for bias, size in sizes]


def _bias(bias: torch.Tensor | None, size: int) -> Array:
    values = np.zeros(size, np.float32)
    if bias is not None:
        values[: len(bias)] = _as_float32(bias)
    return values


def _interleave_gates(gate_up: torch.Tensor, inner: int) -> torch.Tensor:
    """Alternates half blocks of gate and up outputs."""
    # Then the thread that multiplies a block has both factors of its MLP units, see
    # `elementwise.apply_gate`.
    pad = (0, inner - gate_up.shape[-1] // 2)
    parts = [torch.nn.functional.pad(part, pad) for part in gate_up.chunk(2, -1)]
    halves = [part.reshape(*part.shape[:-1], -1, HALF_BLOCK) for part in parts]
    return torch.cat(halves, -1).flatten(-2)


def _blocks(matrix: torch.Tensor, storage_type: type[Any]) -> Array:
    """A matrix (inputs, outputs) as (blocks, inputs, BLOCK), interleaved if int16. With pairs
    or tiles: pairs of inputs in the order (blocks, inputs / 2, BLOCK), a pair's first input in the
    lower 16 bits."""
    half = storage_type is not np.float32
    # As 16 bits: numpy has no bfloat16.
    entries = bits(matrix.detach().to(torch.bfloat16 if half else torch.float32).contiguous())
    inputs, outputs = entries.shape
    padded = np.pad(entries, ((0, 0), (0, round_up(outputs, BLOCK) - outputs)))
    blocks = padded.reshape(inputs, -1, BLOCK).swapaxes(0, 1)
    if kind_of_array(storage_type).inputs > 1:
        # (blocks, inputs / 2, BLOCK, 2): the two inputs of an output are adjacent, 32 bits.
        pairs = blocks.reshape(len(blocks), inputs // 2, 2, BLOCK).swapaxes(-1, -2)
        return np.ascontiguousarray(pairs).reshape(len(blocks), inputs // 2, -1).view(storage_type)
    return (
        interleave(blocks, registers()[0])
        if storage_type is np.int16
        else np.ascontiguousarray(blocks)
    )


def is_half(matrix: torch.Tensor) -> bool:
    """Whether every weight is exact in bfloat16."""
    if matrix.dtype == torch.bfloat16:
        return True
    return bool(torch.equal(matrix, matrix.bfloat16().float()))


def _as_float32(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().float().numpy()
    return array


def round_up(size: int, to: int) -> int:
    """The smallest multiple of `to` that is not below `size`."""
    return -(-size // to) * to
