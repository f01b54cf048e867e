"""What a head makes of the slots that it sees: products with their keys, sums of their values, in
registers, in LLVM's words.

Slot after slot, for vectors of its numbers at once: every sum has one order, and none waits for
memory.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.models.compiled.kinds import Kind, kind_of, spread
from core.models.compiled.registers import registers

__all__ = ["AT_ONCE", "Part", "matched", "vector", "weighed"]

AT_ONCE = 4
"""The most vectors of a head's numbers."""


class Part(NamedTuple):
    """Where slot 0 of a head begins among keys or values, how many numbers a slot has, and from
    which of them on they are looked at."""

    base: int
    size: int
    begin: int


@intrinsic
def vector(typing):
    """Numbers of a vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.IntType(64)(registers()[0])

    return types.int64(), generate


@intrinsic
def matched(typing, count, part, seen, weights, keys, q):
    """weights[j] += q k of slot seen[j], over `count` vectors, 1 to AT_ONCE, from the part's
    `begin` on; where that is 0, = instead of +=."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _called(_matched, context, builder, signature, arguments)
        return context.get_dummy_value()

    return types.void(types.int64, part, seen, weights, keys, q), generate


@intrinsic
def weighed(typing, count, part, seen, weights, values, to):
    """to = the sum over j of weights[j] v of slot seen[j], in `count` vectors, 1 to AT_ONCE, from
    the part's `begin` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _called(_weighed, context, builder, signature, arguments)
        return context.get_dummy_value()

    return types.void(types.int64, part, seen, weights, values, to), generate


def _called(
    made: Callable[[Any, int, Kind], Any], context: Any, builder: Any, signature: Any, given: Any
) -> None:
    """A function of its own for each number of vectors, chosen by it: see `registers.multiply`."""
    seen, weights, kept, own = (
        context.make_array(signature.args[i])(context, builder, given[i]) for i in (2, 3, 4, 5)
    )
    part, kind = Part(*cgutils.unpack_tuple(builder, given[1])), kind_of(signature.args[4].dtype)
    begin = builder.gep(kept.data, [builder.add(part.base, part.begin)])
    slots = cgutils.unpack_tuple(builder, seen.shape)[0]
    told = builder.gep(own.data, [part.begin])
    taken = [begin, part.size, seen.data, slots, weights.data, told, part.begin]
    end = builder.append_basic_block("done")
    chosen = builder.switch(given[0], end)
    for count in range(1, AT_ONCE + 1):
        block = builder.append_basic_block(f"of_{count}")
        chosen.add_case(ir.IntType(64)(count), block)
        with builder.goto_block(block):
            builder.call(made(builder.module, count, kind), taken)
            builder.branch(end)
    builder.position_at_end(end)


class _Loop:
    """Over slots: a function of which the body for slot j is still to be written."""

    def __init__(self, module: Any, name: str, kind: Kind) -> None:
        self.whole, self.single = whole, single = ir.IntType(64), ir.FloatType()
        numbers, slots = single.as_pointer(), ir.IntType(32).as_pointer()
        taken = [kind.kept.as_pointer(), whole, slots, whole, numbers, numbers, whole]
        self.made = ir.Function(module, ir.FunctionType(ir.VoidType(), taken), name)
        self.made.linkage = "internal"
        self.made.attributes.add("noinline")
        self.kept, self.size, self.seen, self.slots, self.weights, self.own, self.begin = (
            self.made.args
        )
        self.entry = self.made.append_basic_block("entry")
        self.body, self.end = (self.made.append_basic_block(name) for name in ("body", "end"))
        self.kind, self.lanes = kind, registers()[0]
        self.kind_of_vector = ir.VectorType(single, self.lanes)

    def start(self, builder: Any) -> Any:
        """Into the body, if there is a slot at all; j there."""
        builder.cbranch(builder.icmp_signed(">", self.slots, self.whole(0)), self.body, self.end)
        builder.position_at_end(self.body)
        j = builder.phi(self.whole)
        j.add_incoming(self.whole(0), self.entry)
        return j

    def vectors(self, builder: Any, j: Any, count: int) -> list[Any]:
        """The first of the j-th slot's numbers."""
        slot = builder.sext(builder.load(builder.gep(self.seen, [j])), self.whole)
        place = builder.gep(self.kept, [builder.mul(slot, self.size)])
        steps = (builder.gep(place, [self.whole(v * self.lanes)]) for v in range(count))
        return [self.kind.vector(builder, step, self.lanes) for step in steps]

    def own_vectors(self, builder: Any, count: int) -> list[Any]:
        """Where the head's own numbers are, or come to be."""
        steps = (builder.gep(self.own, [self.whole(v * self.lanes)]) for v in range(count))
        return [builder.bitcast(step, self.kind_of_vector.as_pointer()) for step in steps]

    def again(self, builder: Any, j: Any) -> None:
        """On to the next slot, or to the end."""
        following = builder.add(j, self.whole(1))
        j.add_incoming(following, self.body)
        builder.cbranch(builder.icmp_signed("<", following, self.slots), self.body, self.end)
        builder.position_at_end(self.end)


def _matched(module: Any, count: int, kind: Kind) -> Any:
    name = f"matched_{count}_{kind.name}"
    if name in module.globals:
        return module.globals[name]
    loop = _Loop(module, name, kind)
    builder = ir.IRBuilder(loop.entry)
    own = [builder.load(place, align=4) for place in loop.own_vectors(builder, count)]
    first = builder.icmp_signed("==", loop.begin, loop.whole(0))
    j = loop.start(builder)
    keys = loop.vectors(builder, j, count)
    # Two sums, so that one need not wait for the other.
    sums = [builder.fmul(own[v], keys[v]) for v in range(min(count, 2))]
    for v in range(2, count):
        sums[v % 2] = kind.added(builder, sums[v % 2], own[v], keys[v])
    whole = sums[0] if count == 1 else builder.fadd(*sums)
    total = _added_up(builder, whole)
    place = builder.gep(loop.weights, [j])
    before = builder.select(first, ir.Constant(loop.single, 0.0), builder.load(place))
    builder.store(builder.fadd(before, total), place)
    loop.again(builder, j)
    builder.ret_void()
    return loop.made


def _added_up(builder: Any, vector: Any) -> Any:
    """The sum of a vector's numbers, half and half."""
    single, name = vector.type.element, f"llvm.vector.reduce.fadd.v{vector.type.count}f32"
    add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(single, [single, vector.type]), name
    )
    return builder.call(add, [ir.Constant(single, -0.0), vector], fastmath=("reassoc",))


def _weighed(module: Any, count: int, kind: Kind) -> Any:
    name = f"weighed_{count}_{kind.name}"
    if name in module.globals:
        return module.globals[name]
    loop = _Loop(module, name, kind)
    builder = ir.IRBuilder(loop.entry)
    places = loop.own_vectors(builder, count)
    zero = ir.Constant(loop.kind_of_vector, [0.0] * loop.lanes)
    j = loop.start(builder)
    sums = [builder.phi(loop.kind_of_vector) for _ in range(count)]
    weight = spread(builder, builder.load(builder.gep(loop.weights, [j])), loop.lanes)
    values = loop.vectors(builder, j, count)
    grown = [kind.added(builder, sums[v], weight, values[v]) for v in range(count)]
    loop.again(builder, j)
    for v in range(count):
        sums[v].add_incoming(zero, loop.entry)
        sums[v].add_incoming(grown[v], loop.body)
        whole = builder.phi(loop.kind_of_vector)
        whole.add_incoming(zero, loop.entry)
        whole.add_incoming(grown[v], loop.body)
        grown[v] = whole
    for v in range(count):
        builder.store(grown[v], places[v]).align = 4
    builder.ret_void()
    return loop.made
