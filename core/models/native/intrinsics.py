"""What numba has no words for, in LLVM's: numbers of 16 bits, counting by several threads."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

import os
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["arrivals", "arrive", "give_way", "number", "power_of_two", "rounded"]


@intrinsic
def number(typing, kept):
    """A kept number as float32: one that is kept in 16 bits is the upper half of it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if kept != types.uint16:
            return arguments[0]
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.IntType(32)(16)), ir.FloatType())

    return types.float32(kept), generate


@intrinsic
def rounded(typing, like, x):
    """A float32 as an array like this keeps it: to 16 bits it is rounded to the nearest even."""
    kept = like.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if kept != types.uint16:
            return arguments[1]
        bits, one = ir.IntType(32), ir.IntType(32)(1)
        found = builder.bitcast(arguments[1], bits)
        odd = builder.and_(builder.lshr(found, bits(16)), one)
        nearest = builder.add(found, builder.add(odd, bits(0x7FFF)))
        return builder.trunc(builder.lshr(nearest, bits(16)), ir.IntType(16))

    return kept(like, types.float32), generate


@intrinsic
def power_of_two(typing, n):
    """2^n as float32, for -126 <= n <= 127: n becomes its exponent's bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = ir.IntType(32)
        exponent = builder.shl(builder.add(arguments[0], bits(127)), bits(23))
        return builder.bitcast(exponent, ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def arrive(typing, arrived):
    """Counts one worker more."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        builder.atomic_rmw("add", place, ir.IntType(64)(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(arrived), generate


@intrinsic
def arrivals(typing, arrived):
    """How many have arrived, as all workers see it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(arrived), generate


@intrinsic
def give_way(typing):
    """Lets another thread have this core, where the system has a call for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            call = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, call, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate
