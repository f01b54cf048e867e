"""Storage formats of weights and how each is multiplied: a `WeightFormat` for each element type.

Formats: float32; bfloat16, the upper 16 bits of a float32; interleaved bfloat16; bfloat16 in pairs.
One load of interleaved numbers gives two vectors of outputs by a shift and a mask. A pair has the
weights of two successive inputs for one output. AVX512_BF16 multiplies pairs directly, AMX in
tiles.

All pairs have the same memory layout. The array's type selects the instruction: uint32 AVX512_BF16,
int32 AMX with float32 activations, int64 AMX with bfloat16 activations. An int64 holds the pairs of
two outputs.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.np.numpy_support import from_dtype

from core.models.native.compiling import llvm_intrinsic, registers

__all__ = ["TILE", "WeightFormat", "kind_of", "kind_of_array", "broadcast", "interleave"]

Array = npt.NDArray[Any]

TILE = 16
"""Rows of a tile. Each row has 64 bytes: 16 float32 or 32 bfloat16."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """`w_type`, `x_type`: LLVM types of an element of w (weights) and of x (activations); an
    element holds `inputs` values. `align`: bytes of an element of w. `parts`: the number of
    bfloat16 into which x is split, 0 if it stays float32. `most`: the most tokens multiplied
    together. Up to `broad` tokens are multiplied with a whole block of outputs
    (`kernel_args.BLOCK`) at once, more tokens with half a block. `vectors` (builder, place, lanes,
    count) loads vectors of weights, `multiply_add` (builder, sums, x, w) accumulates; tiles have
    neither."""

    name: str
    w_type: Any
    x_type: Any
    inputs: int
    align: int
    parts: int
    most: int
    broad: int
    vectors: Callable[[Any, Any, int, int], list[Any]] | None = None
    multiply_add: Callable[[Any, Any, Any, Any], Any] | None = None

    @property
    def tiles(self) -> bool:
        """Whether AMX multiplies this format (`core.models.native.tiles`)."""
        return self.vectors is None


def kind_of(element: Any) -> WeightFormat:
    """The format of weights w, by numba's type of their elements."""
    float32, bits, most = ir.FloatType(), ir.IntType(32), registers()[1]
    # `w_type`, `x_type`, `inputs`, `align`, `parts`, `most`, `broad`.
    sixteen_bits = ir.IntType(16), float32, 1, 2, 0, most, 2
    if element == types.int64:
        return _in_tiles("rounded", ir.IntType(64), 4, 1)
    if element == types.int32:
        return _in_tiles("parted", bits, 2, 3)
    if element == types.uint32:
        return WeightFormat("pairs", bits, bits, 2, 4, 1, most, 12, _load_vectors, _dot_pairs)
    if element == types.int16:
        return WeightFormat("interleaved", *sixteen_bits, _load_interleaved, _multiply_add)
    if element == types.uint16:
        return WeightFormat("half", *sixteen_bits, _load_widened, _multiply_add)
    return WeightFormat("whole", float32, float32, 1, 4, 0, most, 2, _load_vectors, _multiply_add)


def kind_of_array(storage_type: type[Any]) -> WeightFormat:
    """The format of weights w, by numpy's type of their elements."""
    return kind_of(from_dtype(np.dtype(storage_type)))


def _in_tiles(name: str, element: Any, inputs: int, parts: int) -> WeightFormat:
    """Pairs for AMX: x is rounded to bfloat16 (`parts` 1) or split into three bfloat16 that sum to
    x. Tokens fill up to two tiles."""
    most = 2 * (TILE // parts)
    return WeightFormat(name, element, element, inputs, 2 * inputs, parts, most, most)


def broadcast(builder: Any, one: Any, lanes: int) -> Any:
    """Broadcasts a scalar to a vector."""
    # LLVM's idiom for a broadcast (insert at 0, shuffle with zeros) is one machine instruction.
    empty = ir.Constant(ir.VectorType(one.type, lanes), ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(
        builder.insert_element(empty, one, ir.IntType(32)(0)), empty, first
    )


def interleave(upper: Array, lanes: int) -> Array:
    """bfloat16 bits (..., outputs) as int16 for `_load_interleaved`: two vectors a and b of `lanes`
    outputs are stored as a0 b0 a1 b1 ..."""
    twos = upper.reshape(*upper.shape[:-1], -1, 2, lanes)
    return np.ascontiguousarray(twos.swapaxes(-1, -2)).reshape(upper.shape).view(np.int16)


def _load_vectors(builder: Any, place: Any, lanes: int, count: int) -> list[Any]:
    vector = ir.VectorType(place.type.pointee, lanes)
    # Aligned to an element only: KV slots, which this function loads too, may begin anywhere.
    steps = (builder.gep(place, [ir.IntType(64)(v * lanes)]) for v in range(count))
    return [builder.load(builder.bitcast(step, vector.as_pointer()), align=4) for step in steps]


def _load_widened(builder: Any, place: Any, lanes: int, count: int) -> list[Any]:
    """`count` vectors of `lanes` bfloat16, widened to float32."""
    # A bfloat16 is the upper half of a float32: widening is a zero extension and a shift.
    half, bits = (ir.VectorType(ir.IntType(size), lanes) for size in (16, 32))
    vectors = []
    for v in range(count):
        step = builder.gep(place, [ir.IntType(64)(v * lanes)])
        one = builder.load(builder.bitcast(step, half.as_pointer()), align=2)
        vectors.append(_upper(builder, builder.zext(one, bits)))
    return vectors


def _load_interleaved(builder: Any, place: Any, lanes: int, count: int) -> list[Any]:
    """Two interleaved vectors from one load, by a shift and a mask, as float32. `_load_widened`
    takes a load, an extension and a shift for each vector."""
    bits, float32s = (ir.VectorType(one, lanes) for one in (ir.IntType(32), ir.FloatType()))
    vectors = []
    for v in range(0, count, 2):
        step = builder.gep(place, [ir.IntType(64)(v * lanes)])
        two = builder.load(builder.bitcast(step, bits.as_pointer()), align=2)
        # The upper 16 bits are a number of the second vector, which needs no shift.
        second = builder.and_(two, ir.Constant(bits, [0xFFFF0000] * lanes))
        vectors += [_upper(builder, two), builder.bitcast(second, float32s)]
    return vectors


def _upper(builder: Any, vector: Any) -> Any:
    """Shifts the lower 16 bits up and reads them as float32."""
    shift = ir.Constant(vector.type, [16] * vector.type.count)
    float32s = ir.VectorType(ir.FloatType(), vector.type.count)
    return builder.bitcast(builder.shl(vector, shift), float32s)


def _multiply_add(builder: Any, sums: Any, x: Any, w: Any) -> Any:
    # Fused: one rounding for product and sum, on every processor alike.
    name, arg_types = f"llvm.fma.v{sums.type.count}f32", [sums.type] * 3
    return builder.call(llvm_intrinsic(builder.module, name, sums.type, arg_types), [x, w, sums])


def _dot_pairs(builder: Any, sums: Any, x: Any, w: Any) -> Any:
    """Adds a pair's two products to the sums, the second input's product first. Subnormal float32
    count as 0."""
    name, arg_types = "llvm.x86.avx512bf16.dpbf16ps.512", [sums.type, x.type, w.type]
    return builder.call(llvm_intrinsic(builder.module, name, sums.type, arg_types), [sums, x, w])
