"""Attention of one head over its slots as LLVM IR: q k and the weighted sum of values, in
registers. The order of every sum is fixed."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba infers the types of these functions from their arguments.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.models.native.compiling import internal_function, registers
from core.models.native.weight_formats import WeightFormat, broadcast, kind_of

__all__ = ["MAX_VECTORS", "SlotRange", "key_products", "vector", "value_sums"]

MAX_VECTORS = 8
"""Most vectors of a head's dimensions that one call processes."""


class SlotRange(NamedTuple):
    """`base`: offset of a head's slot 0 in keys or values; `size`: dimensions of a slot; `begin`:
    the first dimension to process; `onto`: 0 to overwrite the output, else the sums are added to
    it."""

    base: int
    size: int
    begin: int
    onto: int


@intrinsic
def vector(typing):
    """The number of float32 lanes of a vector register."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.IntType(64)(registers()[0])

    return types.int64(), generate


@intrinsic
def key_products(typing, count, part, seen, weights, keys, q):
    """weights[j] += q k of slot seen[j], over `count` vectors, 1 to MAX_VECTORS, from dimension
    `part.begin` on; = instead of += if `part.onto` is 0. `weights` has room for whole vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _dispatch(_emit_key_products, context, builder, signature, arguments)
        return context.get_dummy_value()

    return types.void(types.int64, part, seen, weights, keys, q), generate


@intrinsic
def value_sums(typing, count, part, seen, weights, values, to):
    """to += the sum over j of weights[j] v of slot seen[j], in `count` vectors, 1 to MAX_VECTORS,
    from dimension `part.begin` on; = instead of += if `part.onto` is 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _dispatch(_emit_value_sums, context, builder, signature, arguments)
        return context.get_dummy_value()

    return types.void(types.int64, part, seen, weights, values, to), generate


def _dispatch(
    emit: Callable[[Any, int, WeightFormat], Any],
    context: Any,
    builder: Any,
    signature: Any,
    arguments: Any,
) -> None:
    """Calls the function for this number of vectors; a function is generated for each number."""
    seen, weights, keys_or_values, operand = (
        context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (2, 3, 4, 5)
    )
    part = SlotRange(*cgutils.unpack_tuple(builder, arguments[1]))
    kind = kind_of(signature.args[4].dtype)
    # Slot 0 of this head, at the first dimension to process.
    begin = builder.gep(keys_or_values.data, [builder.add(part.base, part.begin)])
    slots = cgutils.unpack_tuple(builder, seen.shape)[0]
    operand_at = builder.gep(operand.data, [part.begin])
    call_args = [begin, part.size, seen.data, slots, weights.data, operand_at, part.onto]
    end = builder.append_basic_block("done")
    branches = builder.switch(arguments[0], end)
    # A constant count lets LLVM keep every accumulator in a register.
    for count in range(1, MAX_VECTORS + 1):
        block = builder.append_basic_block(f"of_{count}")
        branches.add_case(ir.IntType(64)(count), block)
        with builder.goto_block(block):
            builder.call(emit(builder.module, count, kind), call_args)
            builder.branch(end)
    builder.position_at_end(end)


class _SlotLoop:
    """An LLVM function that loops over a head's slots; its blocks are emitted by the caller."""

    def __init__(self, module: Any, name: str, kind: WeightFormat, count: int) -> None:
        self.int64, self.float32 = int64, float32 = ir.IntType(64), ir.FloatType()
        numbers, slots = float32.as_pointer(), ir.IntType(32).as_pointer()
        arg_types = [kind.w_type.as_pointer(), int64, slots, int64, numbers, numbers, int64]
        self.function = internal_function(module, name, arg_types)
        self.slot_0, self.size, self.seen, self.slots, self.weights, self.operand, self.onto = (
            self.function.args
        )
        self.kind, self.count, self.lanes = kind, count, registers()[0]
        self.vector = ir.VectorType(float32, self.lanes)
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)

    def block(self, name: str) -> Any:
        return self.function.append_basic_block(name)

    def vectors(self, builder: Any, j: Any) -> list[Any]:
        """Vectors of the j-th slot."""
        # `seen` is int32, half the memory of int64.
        slot = builder.sext(builder.load(builder.gep(self.seen, [j])), self.int64)
        place = builder.gep(self.slot_0, [builder.mul(slot, self.size)])
        return self.kind.vectors(builder, place, self.lanes, self.count)

    def operand_vectors(self, builder: Any) -> list[Any]:
        """Pointers to the query's, or the output's, vectors."""
        return [
            self.at(builder, self.operand, self.int64(v * self.lanes)) for v in range(self.count)
        ]

    def at(self, builder: Any, numbers: Any, j: Any) -> Any:
        """Pointer to the vector at index j."""
        return builder.bitcast(builder.gep(numbers, [j]), self.vector.as_pointer())

    def phis(self, builder: Any) -> list[Any]:
        return [builder.phi(self.vector) for _ in range(self.count)]


def _emit_key_products(module: Any, count: int, kind: WeightFormat) -> Any:
    """The function that `key_products` calls; it processes a vector of slots at a time. Past the
    end of `seen` the last slot is repeated, and the caller ignores the weights written there."""
    name = f"key_products_{count}_{kind.name}"
    if name in module.globals:
        return module.globals[name]
    loop = _SlotLoop(module, name, kind, count)
    entry, body, end = (loop.block(name) for name in ("entry", "body", "end"))
    int64, builder = loop.int64, ir.IRBuilder(entry)
    # The query stays in registers over all slots.
    query = [builder.load(place, align=4) for place in loop.operand_vectors(builder)]
    # The first part of a head overwrites `weights`, later parts add to them.
    overwrites = builder.icmp_signed("==", loop.onto, int64(0))
    last = builder.sub(loop.slots, int64(1))
    builder.cbranch(builder.icmp_signed(">", loop.slots, int64(0)), body, end)
    builder.position_at_end(body)
    j = builder.phi(int64)

    def product(k: int) -> Any:
        """Partial sums of q k of one slot: a vector still to be reduced."""
        index = builder.add(j, int64(k))
        index = builder.select(builder.icmp_signed("<", index, last), index, last)
        keys = loop.vectors(builder, index)
        # Two accumulators hide the latency of multiply-add.
        sums = [builder.fmul(query[v], keys[v]) for v in range(min(count, 2))]
        for v in range(2, count):
            sums[v % 2] = kind.multiply_add(builder, sums[v % 2], query[v], keys[v])
        return sums[0] if count == 1 else builder.fadd(*sums)

    # `lanes` slots give `lanes` vectors of partial sums, which become one vector of products.
    total = _sum_vectors(builder, product, range(loop.lanes))
    place = loop.at(builder, loop.weights, j)
    before = builder.select(overwrites, loop.zero, builder.load(place, align=4))
    builder.store(builder.fadd(before, total), place).align = 4
    following = builder.add(j, int64(loop.lanes))
    _add_incoming([j], ([int64(0)], entry), ([following], body))
    builder.cbranch(builder.icmp_signed("<", following, loop.slots), body, end)
    builder.position_at_end(end)
    builder.ret_void()
    return loop.function


def _sum_vectors(builder: Any, vector: Callable[[int], Any], indices: range) -> Any:
    """Horizontal sums of `lanes` vectors in one vector: element j is the sum of vector j's
    elements, always in the same order. Adds two vectors at a time: no lane is idle."""
    if len(indices) == 1:
        return vector(indices[0])
    each = len(indices) // 2
    two = [_sum_vectors(builder, vector, half) for half in (indices[:each], indices[each:])]
    # A vector made from `each` vectors consists of blocks; every block holds one partial sum of
    # each of these vectors. Two blocks are added at a time, at first within 128 bits: moving data
    # farther takes longer.
    apart = 2 if each == 1 else 1
    lanes = two[0].type.count
    lower = [block for block in range(lanes // each) if block // apart % 2 == 0]
    halves = (_blocks(builder, two, blocks, each) for blocks in (lower, [b + apart for b in lower]))
    return builder.fadd(*halves)


def _blocks(builder: Any, two: list[Any], blocks: list[int], each: int) -> Any:
    """These blocks of two vectors, alternating between the two."""
    lanes = two[0].type.count
    at = [v * lanes + block * each + i for block in blocks for v in (0, 1) for i in range(each)]
    return builder.shuffle_vector(*two, ir.Constant(ir.VectorType(ir.IntType(32), lanes), at))


def _emit_value_sums(module: Any, count: int, kind: WeightFormat) -> Any:
    """The function that `value_sums` calls. With few vectors, even and odd slots have separate
    accumulators: a multiply-add does not wait for the previous one."""
    name = f"value_sums_{count}_{kind.name}"
    if name in module.globals:
        return module.globals[name]
    loop = _SlotLoop(module, name, kind, count)
    entry, body, remainder, last, end = (
        loop.block(name) for name in ("entry", "body", "remainder", "last", "end")
    )
    int64, builder = loop.int64, ir.IRBuilder(entry)
    # Twice as many accumulators must still fit the registers.
    sides = 2 if count <= MAX_VECTORS // 2 else 1
    places, zeros = loop.operand_vectors(builder), [loop.zero] * count
    overwrites = builder.icmp_signed("==", loop.onto, int64(0))
    before = [
        builder.select(overwrites, loop.zero, builder.load(place, align=4)) for place in places
    ]

    def add_slot(j: Any, sums: list[Any]) -> list[Any]:
        weight = builder.load(builder.gep(loop.weights, [j]))
        one, values = broadcast(builder, weight, loop.lanes), loop.vectors(builder, j)
        return [kind.multiply_add(builder, sums[v], one, values[v]) for v in range(count)]

    # Number of slots in the unrolled loop; with two sides, the last of an odd number of slots
    # remains.
    even = builder.and_(loop.slots, int64(-sides))
    builder.cbranch(builder.icmp_signed(">", even, int64(0)), body, remainder)
    builder.position_at_end(body)
    j, sums = builder.phi(int64), [loop.phis(builder) for _ in range(sides)]
    totals = [add_slot(builder.add(j, int64(side)), sums[side]) for side in range(sides)]
    following = builder.add(j, int64(sides))
    builder.cbranch(builder.icmp_signed("<", following, even), body, remainder)
    initial = [before, zeros][:sides]
    _add_incoming([j], ([int64(0)], entry), ([following], body))
    for side in range(sides):
        _add_incoming(sums[side], (initial[side], entry), (totals[side], body))
    builder.position_at_end(remainder)
    so_far = [loop.phis(builder) for _ in range(sides)]
    for side in range(sides):
        _add_incoming(so_far[side], (initial[side], entry), (totals[side], body))
    builder.cbranch(builder.icmp_signed("<", even, loop.slots), last, end)
    builder.position_at_end(last)
    with_last = add_slot(even, so_far[0])
    builder.branch(end)
    builder.position_at_end(end)
    sums_out = loop.phis(builder)
    _add_incoming(sums_out, (so_far[0], remainder), (with_last, last))
    # The sums of even and odd slots are added last, in a fixed order.
    for other in so_far[1:]:
        sums_out = [builder.fadd(*two) for two in zip(sums_out, other, strict=True)]
    for one, place in zip(sums_out, places, strict=True):
        builder.store(one, place).align = 4
    builder.ret_void()
    return loop.function


def _add_incoming(phis: list[Any], *arguments: tuple[list[Any], Any]) -> None:
    """Sets each phi's value for each predecessor block."""
    for values, block in arguments:
        for phi, value in zip(phis, values, strict=True):
            phi.add_incoming(value, block)
