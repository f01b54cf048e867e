"""What numba has no words for, in LLVM's: products in registers, numbers of 16 bits, counting by
several threads.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

import os
from functools import cache
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.models.compiled.described import BLOCK, HALF_BLOCK, Product

__all__ = [
    "BROAD",
    "arrivals",
    "arrive",
    "give_way",
    "most",
    "multiply",
    "number",
    "power_of_two",
    "registers",
    "rounded",
]

BROAD = 2
"""So few tokens are multiplied with a whole block."""


@cache
def registers() -> tuple[int, int]:
    """Numbers of a vector; and the most tokens that are multiplied together.

    Before AVX-512 there were 16 registers of 8 numbers, which six tokens' sums of half a block
    fill; with it there are 32 of 16. There 6 to 24 tokens of the bundled LLM took 0.9 of the time
    that they took with the others (medians of three interleaved runs on a Zen 4; more than 12 at
    once was not tried).
    """
    return (16, 12) if get_host_cpu_features().get("avx512f") else (8, 6)


@intrinsic
def most(typing):
    """The second of `registers`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.IntType(64)(registers()[1])

    return types.int64(), generate


@intrinsic
def multiply(typing, tokens, x, w, y, at):
    """y[t] = sum over i of x[t, i] w[i] for `tokens` rows, 1 to `most()`, and a block's outputs,
    above BROAD tokens half a block's; sums in registers.

    `at` is a Product. A weight of 16 bits is the upper half of a float32, which a bfloat16 is.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, w, y = (
            context.make_array(signature.args[i])(context, builder, arguments[i]).data
            for i in (1, 2, 3)
        )
        told = Product(*cgutils.unpack_tuple(builder, arguments[4]))
        begins = [builder.gep(*one) for one in ((x, [told.x]), (w, [told.w]), (y, [told.y]))]
        ahead = builder.gep(w, [told.ahead])
        counts = told.x_step, told.y_step, told.inputs, told.first, told.pace
        end = builder.append_basic_block("multiplied")
        chosen = builder.switch(arguments[0], end)
        for count in range(1, registers()[1] + 1):
            block = builder.append_basic_block(f"by_{count}")
            chosen.add_case(ir.IntType(64)(count), block)
            with builder.goto_block(block):
                sums = _sums(builder.module, count, signature.args[2].dtype == types.uint16)
                builder.call(sums, [*begins, ahead, *counts])
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(types.int64, x, w, y, at), generate


def _sums(module: Any, count: int, half: bool) -> Any:
    """The loop over inputs, in LLVM's words: so many tokens times vectors of outputs. A function of
    its own, since a copy wherever it is called would take seconds to compile."""
    lanes = registers()[0]
    wide = (BLOCK if count <= BROAD else HALF_BLOCK) // lanes
    name = f"sums_{count}_{wide}_{'half' if half else 'whole'}"
    if name in module.globals:
        return module.globals[name]
    whole, single = ir.IntType(64), ir.FloatType()
    kept = ir.IntType(16) if half else single
    taken = [*(kind.as_pointer() for kind in (single, kept, single, kept)), *[whole] * 5]
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), taken), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    x, w, y, ahead, x_step, y_step, inputs, first, pace = made.args
    entry = made.append_basic_block("entry")
    builder = ir.IRBuilder(entry)
    vector = ir.VectorType(single, lanes)
    fused = cgutils.get_or_insert_function(
        module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{lanes}f32"
    )
    rows = [builder.gep(x, [builder.mul(x_step, whole(t))]) for t in range(count)]
    places = [_places(builder, y, builder.mul(y_step, whole(t)), wide) for t in range(count)]
    fresh, zero = builder.icmp_signed("!=", first, whole(0)), ir.Constant(vector, [0.0] * lanes)
    before = [
        [builder.select(fresh, zero, builder.load(place, align=4)) for place in row]
        for row in places
    ]
    loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
    builder.branch(loop)
    builder.position_at_end(loop)
    i = builder.phi(whole)
    sums = [[builder.phi(vector) for _ in range(wide)] for _ in range(count)]
    row = builder.gep(w, [builder.mul(i, whole(BLOCK))])
    weights = [_vector(builder, builder.gep(row, [whole(v * lanes)]), half) for v in range(wide)]
    grown = []
    for t in range(count):
        one = _spread(builder, builder.load(builder.gep(rows[t], [i])))
        grown.append([builder.call(fused, [one, weights[v], sums[t][v]]) for v in range(wide)])
    _fetch(builder, builder.gep(ahead, [builder.mul(i, pace)]))
    following = builder.add(i, whole(1))
    i.add_incoming(whole(0), entry)
    i.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, inputs), loop, end)
    builder.position_at_end(end)
    for t in range(count):
        for v in range(wide):
            sums[t][v].add_incoming(before[t][v], entry)
            sums[t][v].add_incoming(grown[t][v], loop)
            builder.store(grown[t][v], places[t][v]).align = 4
    builder.ret_void()
    return made


def _places(builder: Any, y: Any, at: Any, wide: int) -> list[Any]:
    """Where so many vectors of outputs begin, one behind another."""
    lanes = registers()[0]
    kind = ir.VectorType(ir.FloatType(), lanes).as_pointer()
    steps = [builder.add(at, ir.IntType(64)(v * lanes)) for v in range(wide)]
    return [builder.bitcast(builder.gep(y, [step]), kind) for step in steps]


def _fetch(builder: Any, place: Any) -> Any:
    """Asks for what lies there, to be near the core soon: in its second cache, since the first has
    no room. A place that is not there does no harm."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    fetch = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [byte, *[flag] * 3]), "llvm.prefetch.p0"
    )
    for_reading, second, data = flag(0), flag(2), flag(1)
    builder.call(fetch, [builder.bitcast(place, byte), for_reading, second, data])


def _vector(builder: Any, place: Any, half: bool) -> Any:
    """A vector of weights from memory, as float32."""
    lanes = registers()[0]
    kind = ir.IntType(16) if half else ir.FloatType()
    found = builder.load(builder.bitcast(place, ir.VectorType(kind, lanes).as_pointer()))
    found.align = 2 if half else 4
    if not half:
        return found
    bits = ir.VectorType(ir.IntType(32), lanes)
    upper = builder.shl(builder.zext(found, bits), ir.Constant(bits, [16] * lanes))
    return builder.bitcast(upper, ir.VectorType(ir.FloatType(), lanes))


def _spread(builder: Any, one: Any) -> Any:
    """A vector of one number."""
    lanes = registers()[0]
    nothing = ir.Constant(ir.VectorType(ir.FloatType(), lanes), ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(
        builder.insert_element(nothing, one, ir.IntType(32)(0)), nothing, first
    )


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
