"""Products of a few vectors with a blocked matrix, bound by memory bandwidth.

Each block of the matrix is read from memory once and multiplied with all vectors, in registers or
in AMX tiles. The order of every sum is fixed.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# numba infers the types of these functions from their arguments.

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.models.native.compiling import (
    LINE,
    as_float32,
    exact,
    inline,
    internal_function,
    llvm_intrinsic,
    registers,
    round_like,
)
from core.models.native.kernel_args import BLOCK, HALF_BLOCK, ProductArgs
from core.models.native.tiles import configure_tiles, multiply_tiles, release_tiles
from core.models.native.weight_formats import WeightFormat, broadcast, kind_of

__all__ = [
    "broad",
    "inputs_of",
    "most",
    "multiply",
    "split_bfloat16",
    "parts_of",
    "products",
    "select_operand",
]


STRETCH = 512
"""Inputs of a block that are multiplied at a time: 32 KiB of 16-bit weights. Passes with 256 or
1,024 were as fast or up to a tenth slower."""


@exact
def products(x, x_at, inputs, w, w_at, y, y_at, step, n, part, x_bf16):
    """y (n, step) = x (n, inputs) times w (blocks, inputs, BLOCK), whose blocks are divided
    among threads: `part` is (thread, threads). `w_at` counts weights. `x_bf16`: buffer for x as
    bfloat16, see `select_operand`."""
    parts, each, begin, x_step = parts_of(w), inputs_of(w), x_at, inputs
    if parts:
        begin, x_step = np.int64(0), parts * inputs // each
        split_bfloat16(x[x_at : x_at + n * inputs], inputs, parts, x_bf16)
    # From here on, counts are in elements of w; an element holds `each` weights.
    rows, inputs, w_at = select_operand(w, x, x_bf16), inputs // each, w_at // each
    blocks, tile = step // BLOCK, configure_tiles(w, next_token_count(n, w))
    for b in range(blocks * part[0] // part[1], blocks * (part[0] + 1) // part[1]):
        for i in range(0, inputs, STRETCH // each):
            size, from_w = min(STRETCH // each, inputs - i), w_at + (b * inputs + i) * BLOCK
            # Each call of `multiply` on this stretch (a walk) prefetches one share of the next
            # stretch.
            walks = (n + most(w) - 1) // most(w) * (BLOCK // width_of(next_token_count(n, w), w))
            ahead, pace = from_w + size * BLOCK, BLOCK // walks
            to, first = y_at + b * BLOCK, int(i == 0)
            stretch = ProductArgs(
                begin + i, x_step, from_w, to, step, size, first, ahead, pace, tile
            )
            multiply_stretch(rows, w, y, stretch, n)
    release_tiles(w)


@exact
def split_bfloat16(x, inputs, parts, to):
    """Rounds x (n, inputs), flat, to bfloat16; with three parts also the remainder of the first
    rounding, and the remainder of the second. The three parts sum to x. `to` (n, parts, inputs)."""
    for begin in range(0, x.shape[0], inputs):
        row, split = x[begin : begin + inputs], to[begin * parts : (begin + inputs) * parts]
        high, middle, low = split[:inputs], split[inputs : 2 * inputs], split[2 * inputs :]
        for i in range(inputs):
            # x = high + middle + low exactly: 3 x 8 bits of mantissa are float32's 24.
            high[i] = round_like(high, row[i])
        if parts == 3:
            for i in range(inputs):
                middle[i] = round_like(middle, row[i] - as_float32(high[i]))
            for i in range(inputs):
                low[i] = round_like(low, row[i] - as_float32(high[i]) - as_float32(middle[i]))


@exact
def multiply_stretch(x, w, y, at, n):
    """y += x w for all n vectors and one stretch of inputs; = instead of += if `at.first`."""
    ahead, t = at.ahead, 0
    while t < n:
        count = next_token_count(n - t, w)
        from_x, to = at.x + t * at.x_step, at.y + t * at.y_step
        width = width_of(count, w)
        for v in range(0, BLOCK, width):
            one = ProductArgs(
                from_x, at.x_step, at.w + v, to + v, at.y_step, at.inputs, at.first, ahead,
                at.pace, at.tile,
            )  # fmt: skip
            multiply(count, x, w, y, one)
            ahead += at.inputs * at.pace
        t += count


@inline
def next_token_count(remaining, w):
    """How many of the remaining tokens to multiply next."""
    if remaining <= most(w):
        return remaining
    # Two groups of nearly equal size, instead of a full group and a small group.
    if remaining <= 2 * most(w):
        return (remaining + 1) // 2
    return most(w)


@inline
def width_of(count, w):
    """Outputs computed at once for `count` tokens."""
    return BLOCK if count <= broad(w) else HALF_BLOCK


MAX_UNROLLED = 16
"""With at most this many accumulators, a loop that is unrolled twice fits the registers."""


def _format_field(name: str) -> Any:
    """A function of w for compiled code: a field of its WeightFormat, constant once compiled."""

    def field(typing, w):
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return ir.IntType(64)(getattr(kind_of(w.dtype), name))

        return types.int64(w), generate

    return intrinsic(field)


most = _format_field("most")
"""The most tokens that are multiplied together."""
broad = _format_field("broad")
"""Up to this many tokens are multiplied with a whole block of outputs at once."""
inputs_of = _format_field("inputs")
"""Weights that an element of w holds: 1, or more in formats with bfloat16 pairs."""
parts_of = _format_field("parts")
"""The number of bfloat16 parts into which x is split for w; 0: x stays float32."""


@intrinsic
def select_operand(typing, w, x, x_bf16):
    """The operand of w: x, or `x_bf16` if w is multiplied with bfloat16."""
    place = 2 if kind_of(w.dtype).parts else 1

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[place]  # no reference counting: see `compiling.UNCOUNTED`

    return (w, x, x_bf16)[place](w, x, x_bf16), generate


@intrinsic
def multiply(typing, tokens, x, w, y, at):
    """y[t] += sum over i of x[t, i] w[i]; = instead of += if `at.first`. `tokens`: the
    number of rows of x, 1 to `most`. Computes the outputs of one block, or of half a block if there
    are more than `broad` rows. `at`: a ProductArgs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = kind_of(signature.args[2].dtype)
        x, w, y = (
            context.make_array(signature.args[i])(context, builder, arguments[i]).data
            for i in (1, 2, 3)
        )
        x = builder.bitcast(x, kind.x_type.as_pointer())
        args = ProductArgs(*cgutils.unpack_tuple(builder, arguments[4]))
        begins = [builder.gep(*one) for one in ((x, [args.x]), (w, [args.w]), (y, [args.y]))]
        if kind.tiles:
            multiply_tiles(builder, kind, begins, arguments[0], args)
            return context.get_dummy_value()
        ahead = builder.gep(w, [args.ahead])
        counts = args.x_step, args.y_step, args.inputs, args.first, args.pace
        end = builder.append_basic_block("done")
        branches = builder.switch(arguments[0], end)
        for count in range(1, registers()[1] + 1):
            block = builder.append_basic_block(f"by_{count}")
            branches.add_case(ir.IntType(64)(count), block)
            with builder.goto_block(block):
                builder.call(_sums(builder.module, count, kind), [*begins, ahead, *counts])
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(types.int64, x, w, y, at), generate


def _sums(module: Any, count: int, kind: WeightFormat) -> Any:
    """An LLVM function that sums over inputs, for `count` tokens and a block or half a block of
    outputs."""
    lanes = registers()[0]
    num_vectors = (BLOCK if count <= kind.broad else HALF_BLOCK) // lanes
    name = f"sums_{count}_{num_vectors}_{kind.name}"
    if name in module.globals:
        return module.globals[name]
    function = _declare_sums(module, name, kind, optsize=count * num_vectors > MAX_UNROLLED)
    x, w, y, ahead, x_step, y_step, inputs, first, pace = function.args
    entry, int64 = function.append_basic_block("entry"), ir.IntType(64)
    builder = ir.IRBuilder(entry)
    vector = ir.VectorType(ir.FloatType(), lanes)
    # Pointers to the tokens' inputs and outputs; `sums` below has count x num_vectors accumulators.
    rows = [builder.gep(x, [builder.mul(x_step, int64(t))]) for t in range(count)]
    places = [_places(builder, y, builder.mul(y_step, int64(t)), num_vectors) for t in range(count)]
    overwrites = builder.icmp_signed("!=", first, int64(0))
    zero = ir.Constant(vector, [0.0] * lanes)
    before = [
        [builder.select(overwrites, zero, builder.load(place, align=4)) for place in row]
        for row in places
    ]
    loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
    builder.branch(loop)
    builder.position_at_end(loop)
    i = builder.phi(int64)
    sums = [[builder.phi(vector) for _ in range(num_vectors)] for _ in range(count)]
    totals = _add_products(builder, kind, rows, w, i, sums)
    _fetch_share(builder, kind, ahead, builder.mul(i, pace), num_vectors * lanes)
    following = builder.add(i, int64(1))
    i.add_incoming(int64(0), entry)
    i.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, inputs), loop, end)
    builder.position_at_end(end)
    for t in range(count):
        for v in range(num_vectors):
            sums[t][v].add_incoming(before[t][v], entry)
            sums[t][v].add_incoming(totals[t][v], loop)
            builder.store(totals[t][v], places[t][v]).align = 4
    builder.ret_void()
    return function


def _declare_sums(module: Any, name: str, kind: WeightFormat, *, optsize: bool) -> Any:
    pointers = (kind.x_type, kind.w_type, ir.FloatType(), kind.w_type)
    parameters = [*(one.as_pointer() for one in pointers), *[ir.IntType(64)] * 5]
    function = internal_function(module, name, parameters)
    if optsize:
        # Else LLVM unrolls the loop beyond the registers: a pass over 11 tokens of a 0.5 B model
        # took 67 ms instead of 36.
        function.attributes.add("optsize")
    return function


def _add_products(
    builder: Any, kind: WeightFormat, rows: list[Any], w: Any, i: Any, sums: list[list[Any]]
) -> list[list[Any]]:
    """The sums of all tokens plus the products of input `i`."""
    lanes, num_vectors = registers()[0], len(sums[0])
    weights = kind.vectors(
        builder, builder.gep(w, [builder.mul(i, ir.IntType(64)(BLOCK))]), lanes, num_vectors
    )
    totals = []
    for row, own in zip(rows, sums, strict=True):
        one = broadcast(builder, builder.load(builder.gep(row, [i]), align=kind.align), lanes)
        totals.append(
            [kind.multiply_add(builder, own[v], one, weights[v]) for v in range(num_vectors)]
        )
    return totals


def _fetch_share(builder: Any, kind: WeightFormat, ahead: Any, at: Any, outputs: int) -> None:
    """Prefetches weights of the next stretch, a cache line at a time."""
    for step in range(0, outputs, LINE // kind.align):
        _fetch(builder, builder.gep(ahead, [builder.add(at, ir.IntType(64)(step))]))


def _places(builder: Any, y: Any, at: Any, num_vectors: int) -> list[Any]:
    """Pointers to `num_vectors` consecutive vectors of outputs."""
    lanes = registers()[0]
    kind = ir.VectorType(ir.FloatType(), lanes).as_pointer()
    steps = [builder.add(at, ir.IntType(64)(v * lanes)) for v in range(num_vectors)]
    return [builder.bitcast(builder.gep(y, [step]), kind) for step in steps]


def _fetch(builder: Any, place: Any) -> Any:
    """Prefetches into the L2 cache, since L1 is full. An invalid address is ignored."""
    # Three tokens of a 0.5 B model took 48 ms with prefetches into L1, 29 to 31 with L2.
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    arg_types = [byte, *[flag] * 3]
    fetch = llvm_intrinsic(builder.module, "llvm.prefetch.p0", ir.VoidType(), arg_types)
    for_reading, second, data = flag(0), flag(2), flag(1)
    builder.call(fetch, [builder.bitcast(place, byte), for_reading, second, data])
