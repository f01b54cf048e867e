"""Products of a few vectors with a block of weights in AMX tiles, as LLVM IR. One instruction
multiplies up to 16 rows of 32 bfloat16 with 32 x 16 weights and accumulates in float32.

For a float32 model an input is split into three bfloat16 with 8 bits of mantissa each, in three
rows of a tile. Their products with a bfloat16 are exact in float32. Subnormal numbers count as 0,
and the first part of the largest float32 would be infinite. A row's order of summation does not
depend on the other rows of its tile.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba infers the types of these functions from their arguments.

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.models.native.compiling import LINE, internal_function, llvm_intrinsic
from core.models.native.kernel_args import BLOCK, ProductArgs
from core.models.native.weight_formats import TILE, WeightFormat, kind_of

__all__ = ["release_tiles", "configure_tiles", "multiply_tiles"]

# Uses of a core's eight tile registers: sums, for each tile of tokens and each half of a block's
# outputs; x, for each tile of tokens; weights, for each half of a block's outputs.
SUM_REGISTERS, ROW_REGISTERS, HALF_REGISTERS = ((0, 1), (2, 3)), (4, 5), (6, 7)
ROW = BLOCK * 4
"""Bytes of a block's outputs, and of its weights for two inputs; half of these bytes are a tile's
row."""


@intrinsic
def configure_tiles(typing, w, tokens):
    """Configures the tiles for groups of up to `tokens` tokens, if w is stored as tiles. Returns
    how many tokens share a tile, 0 without tiles."""
    kind = kind_of(w.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not kind.tiles:
            return _int64(0)
        count, one = arguments[1], _int64(1)
        fits = builder.icmp_signed("<=", count, _int64(kind.most // 2))
        # If the tokens do not fit in one tile, they are divided evenly between two tiles.
        half = builder.lshr(builder.add(count, one), one)
        tile = builder.select(fits, count, half)
        tile = builder.select(builder.icmp_signed(">", tile, one), tile, one)
        rows = builder.trunc(builder.mul(tile, _int64(kind.parts)), ir.IntType(8))
        # Byte 0: the palette. From byte 16 on, two bytes for each tile: the length of its rows in
        # bytes. From byte 48 on, one byte for each tile: its number of rows.
        blank = ir.Constant(ir.ArrayType(ir.IntType(8), 64), [1] + [0] * 63)
        config = cgutils.alloca_once(builder, blank.type)
        builder.store(blank, config)
        begin = builder.bitcast(config, _byte_pointer())
        for number in range(8):
            builder.store(_byte(LINE), builder.gep(begin, [_int64(16 + 2 * number)]))
            size = _byte(TILE) if number in HALF_REGISTERS else rows
            builder.store(size, builder.gep(begin, [_int64(48 + number)]))
        builder.call(_intrinsic(builder.module, "ldtilecfg", _byte_pointer()), [begin])
        return tile

    return types.int64(w, types.int64), generate


@intrinsic
def release_tiles(typing, w):
    """Releases the tiles, if w is stored as tiles: while they are configured, every context switch
    saves them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if kind_of(w.dtype).tiles:
            builder.call(_intrinsic(builder.module, "tilerelease"), [])
        return context.get_dummy_value()

    return types.void(w), generate


def multiply_tiles(
    builder: Any, kind: WeightFormat, begins: list[Any], tokens: Any, at: ProductArgs
) -> None:
    """`products.multiply` for weights stored as tiles; `begins`: pointers to x, w, y."""
    two = builder.icmp_signed(">", tokens, at.tile)
    arguments = [*begins, at.x_step, at.y_step, at.inputs, at.first, tokens, at.tile]
    with builder.if_else(two) as (then, otherwise):
        with then:
            builder.call(_product_of_tiles(builder.module, kind, 2), arguments)
        with otherwise:
            builder.call(_product_of_tiles(builder.module, kind, 1), arguments)


def _product_of_tiles(module: Any, kind: WeightFormat, num_tiles: int) -> Any:
    """The function that multiplies `num_tiles` tiles of tokens, 1 or 2. The tiles share each load
    of weights."""
    name = f"tiles_{num_tiles}_{kind.name}"
    if name in module.globals:
        return module.globals[name]
    float32 = ir.FloatType()
    pointers = [one.as_pointer() for one in (kind.x_type, kind.w_type, float32)]
    function = internal_function(module, name, [*pointers, *[ir.IntType(64)] * 6])
    x, w, y, x_step, y_step, inputs, first, tokens, tile = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    # Sums go through memory: tiles cannot be added to y in registers.
    buffer = builder.alloca(ir.ArrayType(float32, 2 * TILE * BLOCK))
    buffer.align = LINE
    token_bytes = builder.mul(x_step, _int64(2 * kind.inputs))
    # Bytes from one row of a tile to the next: each part of a token is a row.
    row_bytes = builder.udiv(token_bytes, _int64(kind.parts))
    rows = [builder.bitcast(x, _byte_pointer())]
    rows.append(builder.gep(rows[0], [builder.mul(token_bytes, tile)]))
    sums = [number for pair in SUM_REGISTERS[:num_tiles] for number in pair]
    for number in sums:
        builder.call(_intrinsic(module, "tilezero", ir.IntType(8)), [_byte(number)])
    load = _intrinsic(module, "tileloadd64", ir.IntType(8), _byte_pointer(), ir.IntType(64))
    multiply = _intrinsic(module, "tdpbf16ps", ir.IntType(8), ir.IntType(8), ir.IntType(8))
    steps = builder.udiv(inputs, _int64(2 * TILE // kind.inputs))
    with cgutils.for_range(builder, steps) as loop:
        weights = builder.gep(
            builder.bitcast(w, _byte_pointer()),
            [builder.mul(loop.index, _int64(TILE * ROW))],
        )
        offset = builder.mul(loop.index, _int64(LINE))
        for half, number in enumerate(HALF_REGISTERS):
            begin = builder.gep(weights, [_int64(half * LINE)])
            builder.call(load, [_byte(number), begin, _int64(ROW)])
            # Each weight tile is used for all tokens before the next weight tile is loaded.
            for i in range(num_tiles):
                if half == 0:
                    begin = builder.gep(rows[i], [offset])
                    builder.call(load, [_byte(ROW_REGISTERS[i]), begin, row_bytes])
                operands = [SUM_REGISTERS[i][half], ROW_REGISTERS[i], number]
                builder.call(multiply, [_byte(one) for one in operands])
    begin = builder.bitcast(buffer, _byte_pointer())
    tile_bytes = builder.mul(tile, _int64(kind.parts * ROW))
    store = _intrinsic(module, "tilestored64", ir.IntType(8), _byte_pointer(), ir.IntType(64))
    for number in sums:
        to = builder.gep(begin, [_int64(number % 2 * LINE)])
        to = builder.gep(to, [tile_bytes]) if number in SUM_REGISTERS[1] else to
        builder.call(store, [_byte(number), to, _int64(ROW)])
    _sum_parts(builder, kind, begin, (y, y_step), tokens, first)
    builder.ret_void()
    return function


def _sum_parts(
    builder: Any, kind: WeightFormat, begin: Any, to: Any, tokens: Any, first: Any
) -> None:
    """Adds up each token's outputs over its bfloat16 parts, the largest part first; writes the
    totals to y if `first`, else adds them to y."""
    y, y_step = to
    vector = ir.VectorType(ir.FloatType(), TILE)
    zero = ir.Constant(vector, [0.0] * TILE)
    overwrites = builder.icmp_signed("!=", first, _int64(0))
    with cgutils.for_range(builder, tokens) as loop:
        token = builder.gep(begin, [builder.mul(loop.index, _int64(kind.parts * ROW))])
        for half in range(2):
            output = builder.gep(y, [builder.mul(loop.index, y_step)])
            output = builder.gep(output, [_int64(half * TILE)])
            output = builder.bitcast(output, vector.as_pointer())
            total = None
            for part in range(kind.parts):
                term = builder.gep(token, [_int64(part * ROW + half * LINE)])
                term = builder.load(builder.bitcast(term, vector.as_pointer()), align=LINE)
                total = term if total is None else builder.fadd(total, term)
            before = builder.select(overwrites, zero, builder.load(output, align=4))
            builder.store(builder.fadd(before, total), output).align = 4


def _intrinsic(module: Any, name: str, *arg_types: Any) -> Any:
    return llvm_intrinsic(module, f"llvm.x86.{name}", ir.VoidType(), arg_types)


def _int64(value: int) -> Any:
    return ir.IntType(64)(value)


def _byte(value: int) -> Any:
    return ir.IntType(8)(value)


def _byte_pointer() -> Any:
    return ir.IntType(8).as_pointer()
