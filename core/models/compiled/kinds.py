"""How weights are kept, and how a vector of them is multiplied: a kind for each type of element.

float32; the upper 16 bits of one, which a bfloat16 is; or two bfloat16 of one output beside each
other, of one input and the next, which AVX512_BF16 multiplies as they are.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

__all__ = ["Kind", "kind_of", "spread"]


@dataclass(frozen=True, slots=True)
class Kind:
    """`kept`, `told`: LLVM's type of an element of w and of x; `inputs` that an element is for, of
    `align` bytes; with up to `broad` tokens a whole block is multiplied, with more half of one.
    `vector` (builder, place, lanes) loads so many elements to be multiplied, `added` (builder,
    sums, x, w) adds their products."""

    name: str
    kept: Any
    told: Any
    inputs: int
    align: int
    broad: int
    vector: Callable[[Any, Any, int], Any]
    added: Callable[[Any, Any, Any, Any], Any]


def kind_of(element: Any) -> Kind:
    """By numba's type of an element of w."""
    single, bits = ir.FloatType(), ir.IntType(32)
    if element == types.uint32:
        return Kind("pairs", bits, bits, 2, 4, 12, _loaded, _added_in_pairs)
    if element == types.uint16:
        return Kind("half", ir.IntType(16), single, 1, 2, 2, _widened, _added)
    return Kind("whole", single, single, 1, 4, 2, _loaded, _added)


def spread(builder: Any, one: Any, lanes: int) -> Any:
    """A vector of one number."""
    nothing = ir.Constant(ir.VectorType(one.type, lanes), ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(
        builder.insert_element(nothing, one, ir.IntType(32)(0)), nothing, first
    )


def _loaded(builder: Any, place: Any, lanes: int) -> Any:
    vector = ir.VectorType(place.type.pointee, lanes)
    return builder.load(builder.bitcast(place, vector.as_pointer()), align=4)


def _widened(builder: Any, place: Any, lanes: int) -> Any:
    """As float32."""
    half = ir.VectorType(ir.IntType(16), lanes)
    found = builder.load(builder.bitcast(place, half.as_pointer()), align=2)
    bits = ir.VectorType(ir.IntType(32), lanes)
    upper = builder.shl(builder.zext(found, bits), ir.Constant(bits, [16] * lanes))
    return builder.bitcast(upper, ir.VectorType(ir.FloatType(), lanes))


def _added(builder: Any, sums: Any, x: Any, w: Any) -> Any:
    name, taken = f"llvm.fma.v{sums.type.count}f32", [sums.type] * 3
    return builder.call(_known(builder, name, sums.type, taken), [x, w, sums])


def _added_in_pairs(builder: Any, sums: Any, x: Any, w: Any) -> Any:
    """The second input's product is added first. Numbers too small for a normal float32 are 0."""
    name, taken = "llvm.x86.avx512bf16.dpbf16ps.512", [sums.type, x.type, w.type]
    return builder.call(_known(builder, name, sums.type, taken), [sums, x, w])


def _known(builder: Any, name: str, result: Any, taken: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, taken), name)
