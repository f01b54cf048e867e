"""How numba compiles the native pass: processor features, intrinsics that numba lacks, and the
options of each kind of function."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pickle import PickleError
from types import MappingProxyType
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from core.models.native.kernel_args import HALF_BLOCK

__all__ = [
    "COMPILER_FAULTS",
    "LINE",
    "arrivals",
    "arrive",
    "entry",
    "exact",
    "reassociate",
    "give_way",
    "inline",
    "cached_entry",
    "cpu_features",
    "multiplies_pairs",
    "multiplies_tiles",
    "as_float32",
    "power_of_two",
    "registers",
    "round_like",
    "interleaves_weights",
    "internal_function",
    "llvm_intrinsic",
]

# Fast-math flags of all functions: fused multiply-add (`contract`), no NaN (`nnan`), no difference
# between 0 and -0 (`nsz`). These flags do not change the order of sums.
IN_ORDER = ("contract", "nnan", "nsz")
# For functions that only compiled code calls: without wrappers for Python, compiling takes a sixth
# less time.
INNER = MappingProxyType({"no_cpython_wrapper": True, "no_cfunc_wrapper": True})
# No compiled function allocates: arguments need no reference counting, which took a fifth of a pass
# of eight tokens.
UNCOUNTED = MappingProxyType({"_nrt": False})

# Errors of numba, and of a broken or read-only cache folder.
COMPILER_FAULTS = (
    NumbaError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    PickleError,
    RuntimeError,
    TypeError,
    ValueError,
)

F = TypeVar("F", bound=Callable[..., object])


def exact(function: F) -> F:
    """Compiles with sums in source order."""
    return _compile(function, IN_ORDER, **INNER)


def reassociate(function: F) -> F:
    """Compiles with reassociated (vectorized) sums, always the same way for one length."""
    return _compile(function, (*IN_ORDER, "reassoc"), **INNER)


def entry(function: F) -> F:
    """Compiles like `exact`, for Python to call."""
    return _compile(function, IN_ORDER)


class _FallbackCache(FunctionCache):
    """numba's cache on disk. A function that cannot be read or written is compiled again."""

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except COMPILER_FAULTS:
            self._remove_index()
            return None

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except COMPILER_FAULTS:
            self._remove_index()

    def _remove_index(self):
        """Removes the index, which may be broken or name a file that was not written."""
        with suppress(OSError):
            os.unlink(self._cache_file._index_path)


def cached_entry(function: F) -> F:
    """Compiles like `entry`, with a cache on disk if a folder can be written."""
    compiled: Any = entry(function)
    with suppress(OSError, RuntimeError):  # no folder can be written
        compiled._cache = _FallbackCache(function)
    return cast(F, compiled)


def inline(function: F) -> F:
    """Inlines a function into its callers; it is not compiled on its own."""
    inlined: Any = njit(inline="always")(function)
    return cast(F, inlined)


def _compile(function: F, math: tuple[str, ...], **options: bool) -> F:
    make: Any = njit
    # `nogil`: other threads run Python during a pass. `error_model`: a division by 0 gives
    # infinity, without a check.
    compiled = make(fastmath=set(math), nogil=True, error_model="numpy", **UNCOUNTED, **options)
    return cast(F, compiled(function))


LINE = 64
"""Bytes of a cache line."""
# Linux on x86-64: arch_prctl, its request for permission to use a register set, and the set's
# number.
SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18


@cache
def cpu_features() -> frozenset[str]:
    """CPU features that numba compiles for, which NUMBA_CPU_NAME, NUMBA_CPU_FEATURES and
    NUMBA_ENABLE_AVX may restrict. LLVM aborts on an intrinsic whose feature is missing."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(one[1:] for one in features.split(",") if one.startswith("+"))


@cache
def registers() -> tuple[int, int]:
    """(float32 lanes of a vector register, most tokens multiplied together without tiles).

    AVX2 has 16 registers of 8 lanes, AVX-512 has 32 registers of 16 lanes. With (16, 12)
    instead of (8, 6), passes of the bundled LLM over 6 to 24 tokens took 0.9 of the time on a
    Zen 4.
    """
    return (16, 12) if "avx512f" in cpu_features() else (8, 6)


@cache
def multiplies_pairs() -> bool:
    """Whether compiled code may use AVX512_BF16: two bfloat16 products added to a float32."""
    return {"avx512f", "avx512bf16"} <= cpu_features()


@cache
def multiplies_tiles() -> bool:
    """Whether compiled code may use AMX tiles of bfloat16. Linux grants a process permission on
    request, unless a thread's alternate signal stack is too small for the tiles' state."""
    if not {"amx-tile", "amx-bf16", "avx512f"} <= cpu_features() or sys.platform != "linux":
        return False
    status: int = ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA)
    return status == 0


@cache
def interleaves_weights() -> bool:
    """Whether 16-bit weights are interleaved (see `weight_formats`): half a block must be two
    vectors."""
    return 2 * registers()[0] == HALF_BLOCK


# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba infers the types of these functions from their arguments.


def llvm_intrinsic(module: Any, name: str, result: Any, arg_types: Sequence[Any]) -> Any:
    """Declares an intrinsic function of LLVM in a module, once."""
    return cgutils.get_or_insert_function(module, ir.FunctionType(result, arg_types), name)


def internal_function(module: Any, name: str, arg_types: Sequence[Any]) -> Any:
    """A new LLVM function without a result. Not inlined: one copy serves all callers, since copies
    take seconds more to compile."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arg_types), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function


@intrinsic
def as_float32(typing, storage_type):
    """A stored number as float32; a bfloat16 (uint16) is the upper half of that float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if storage_type != types.uint16:
            return arguments[0]
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.IntType(32)(16)), ir.FloatType())

    return types.float32(storage_type), generate


@intrinsic
def round_like(typing, like, x):
    """A float32 in the element type of array `like`; bfloat16 is rounded to nearest, ties to
    even."""
    like_dtype = like.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if like_dtype != types.uint16:
            return arguments[1]
        bits, one = ir.IntType(32), ir.IntType(32)(1)
        value = builder.bitcast(arguments[1], bits)
        # Adding 0x7FFF + the lowest remaining bit carries exactly if rounding goes up.
        odd = builder.and_(builder.lshr(value, bits(16)), one)
        nearest = builder.add(value, builder.add(odd, bits(0x7FFF)))
        return builder.trunc(builder.lshr(nearest, bits(16)), ir.IntType(16))

    return like_dtype(like, types.float32), generate


@intrinsic
def power_of_two(typing, n):
    """2^n as float32, for -126 <= n <= 127: n becomes the bits of the exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = ir.IntType(32)
        # Bias 127, 23 bits of mantissa.
        exponent = builder.shl(builder.add(arguments[0], bits(127)), bits(23))
        return builder.bitcast(exponent, ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def arrive(typing, arrived):
    """Counts one more arrival at the barrier."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        builder.atomic_rmw("add", place, ir.IntType(64)(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(arrived), generate


@intrinsic
def arrivals(typing, arrived):
    """The number of arrivals, read atomically."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(arrived), generate


@intrinsic
def give_way(typing):
    """Yields the core to another thread (sched_yield); does nothing on Windows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            call = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, call, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate
