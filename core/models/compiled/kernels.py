"""Kernels: a Llama-like model's whole pass as machine code, which numba compiles when first asked.

All that is compiled stands in this one file: numba looks at no other when it decides whether what
it kept from an earlier start still holds.

Every sum is made in the same order whatever else the pass looks at, so a node's logits are the same
bits alone or in a tree, in one request or in many, on one thread or on several.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["BLOCK", "Asked", "Scratch", "Shape", "Weights", "run"]

LANES = 8
BLOCK = 32
"""Outputs of a matrix that lie beside one another in memory: four vectors of LANES numbers."""
HALF_BLOCK = 16
PATIENCE = 2000

# e^x = 2^n e^r with |r| <= ln 2 / 2; the polynomial is that of the Cephes library.
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)


class Shape(NamedTuple):
    """Sizes of the models, and where their parts begin in a layer's stretch of the weights.

    A member's matrices lie one behind another: of each layer queries, keys and values, the way back
    from attention, gates with what they let through, the way back from those; then the head. So do
    its vectors: of each layer both norms, those of heads, the biases of the four matrices; then the
    last norm. Sizes of outputs are padded to whole blocks.
    """

    members: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    size: int
    inner: int
    outputs: int
    vocabulary: int
    normed_heads: bool


class Weights(NamedTuple):
    """What a pass reads, each as one stretch of memory: `embedding` (members, vocabulary, hidden);
    `matrices` as float32 or as its upper 16 bits; `vectors`, `cos` and `sin` (positions, size), the
    first half of the sines negative, as float32; `windowed` (layers,)."""

    embedding: Any
    matrices: Any
    vectors: Any
    cos: Any
    sin: Any
    windowed: Any
    eps: Any


class Asked(NamedTuple):
    """What a pass looks at: n tokens, those of one member after those of another.

    `tokens`, `positions`, `rows`, `slots` (n,): where each lies in the arena; `first` (members + 1)
    where each member's begin; `full`, `near` (n, extent), flat: the slots each attends to, in layers
    that see everything and in those with a window; `wanted` (outputs,): whose logits are wanted.
    """

    tokens: Any
    positions: Any
    rows: Any
    slots: Any
    first: Any
    full: Any
    near: Any
    wanted: Any


class Scratch(NamedTuple):
    """What workers of one pass hand to one another, n rows of each, and a count of arrivals."""

    projected: Any
    attended: Any
    back: Any
    wide: Any
    active: Any
    arrived: Any


@intrinsic(prefer_literal=True)
def multiply(typing, tokens, vectors, x, x_at, x_step, w, w_at, y, y_at, y_step, inputs):  # type: ignore[no-untyped-def]
    """y[t, :vectors x LANES] = sum over i of x[t, i] w[i], for `tokens` rows, the sums in registers.

    `*_at`: where in the arrays to begin, `*_step`: from a row to the next, in elements. A weight of
    16 bits is the upper half of a float32, which is what a bfloat16 is.
    """
    shape = tokens.literal_value, vectors.literal_value, w.dtype == types.uint16
    place = types.intp
    signature = types.void(
        tokens, vectors, x, place, place, w, place, y, place, place, place
    )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begins = [
            builder.gep(
                context.make_array(signature.args[i])(context, builder, arguments[i]).data,
                [arguments[i + 1]],
            )
            for i in (2, 5, 7)
        ]
        steps = arguments[4], arguments[9], arguments[10]
        builder.call(_sums(builder.module, shape), [*begins, *steps])
        return context.get_dummy_value()

    return signature, generate


def _sums(module: Any, shape: tuple[int, int, bool]) -> Any:
    """The loop over inputs, in LLVM's words: so many tokens times so many vectors of outputs. A
    function of its own, since a copy wherever it is called would take seconds to compile."""
    count, wide, half = shape
    name = f"sums_{count}_{wide}_{'half' if half else 'whole'}"
    if name in module.globals:
        return module.globals[name]
    whole, single = ir.IntType(64), ir.FloatType()
    vector = ir.VectorType(single, LANES)
    kinds = (single, ir.IntType(16) if half else single, single)
    taken = [*(kind.as_pointer() for kind in kinds), whole, whole, whole]
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), taken), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    x, w, y, x_step, y_step, inputs = made.args
    entry = made.append_basic_block("entry")
    builder = ir.IRBuilder(entry)
    fused = cgutils.get_or_insert_function(
        module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{LANES}f32"
    )
    zero = ir.Constant(vector, [0.0] * LANES)
    rows = [builder.gep(x, [builder.mul(x_step, whole(t))]) for t in range(count)]
    loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
    builder.branch(loop)
    builder.position_at_end(loop)
    i = builder.phi(whole)
    sums = [[builder.phi(vector) for _ in range(wide)] for _ in range(count)]
    row = builder.gep(w, [builder.mul(i, whole(BLOCK))])
    weights = [_vector(builder, builder.gep(row, [whole(v * LANES)]), half) for v in range(wide)]
    grown = []
    for t in range(count):
        one = _spread(builder, builder.load(builder.gep(rows[t], [i])))
        grown.append([builder.call(fused, [one, weights[v], sums[t][v]]) for v in range(wide)])
    following = builder.add(i, whole(1))
    i.add_incoming(whole(0), entry)
    i.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, inputs), loop, end)
    builder.position_at_end(end)
    for t in range(count):
        to = builder.gep(y, [builder.mul(y_step, whole(t))])
        for v in range(wide):
            sums[t][v].add_incoming(zero, entry)
            sums[t][v].add_incoming(grown[t][v], loop)
            place = builder.gep(to, [whole(v * LANES)])
            builder.store(grown[t][v], builder.bitcast(place, vector.as_pointer())).align = 4
    builder.ret_void()
    return made


def _vector(builder: Any, place: Any, half: bool) -> Any:
    """LANES weights from memory, as float32."""
    kind = ir.IntType(16) if half else ir.FloatType()
    found = builder.load(builder.bitcast(place, ir.VectorType(kind, LANES).as_pointer()))
    found.align = 2 if half else 4
    if not half:
        return found
    bits = ir.VectorType(ir.IntType(32), LANES)
    upper = builder.shl(builder.zext(found, bits), ir.Constant(bits, [16] * LANES))
    return builder.bitcast(upper, ir.VectorType(ir.FloatType(), LANES))


def _spread(builder: Any, one: Any) -> Any:
    """A vector of one number."""
    nothing = ir.Constant(ir.VectorType(ir.FloatType(), LANES), ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(
        builder.insert_element(nothing, one, ir.IntType(32)(0)), nothing, first
    )


@intrinsic
def number(typing, kept):  # type: ignore[no-untyped-def]
    """A kept number as float32: one that is kept in 16 bits is the upper half of it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if kept != types.uint16:
            return arguments[0]
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.IntType(32)(16)), ir.FloatType())

    return types.float32(kept), generate


@intrinsic
def rounded(typing, like, x):  # type: ignore[no-untyped-def]
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
def power_of_two(typing, n):  # type: ignore[no-untyped-def]
    """2^n as float32, for -126 <= n <= 127: n becomes its exponent's bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = ir.IntType(32)
        exponent = builder.shl(builder.add(arguments[0], bits(127)), bits(23))
        return builder.bitcast(exponent, ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def arrive(typing, arrived):  # type: ignore[no-untyped-def]
    """Counts one worker more."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        builder.atomic_rmw("add", place, ir.IntType(64)(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(arrived), generate


@intrinsic
def arrivals(typing, arrived):  # type: ignore[no-untyped-def]
    """How many have arrived, as all workers see it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(arrived), generate


@intrinsic
def give_way(typing):  # type: ignore[no-untyped-def]
    """Lets another thread have this core, where the system has a call for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            call = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, call, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


EXACT = {"contract", "nnan", "nsz"}
"""Sums stay in their order."""
FREE = {"contract", "nnan", "nsz", "reassoc"}
"""Sums of a fixed length may be made in parts."""


@njit(fastmath=EXACT, nogil=True, error_model="numpy")
def products(x, x_at, inputs, w, w_at, y, y_at, step, n, part):  # type: ignore[no-untyped-def]
    """y (n, step) = x (n, inputs) times w (blocks, inputs, BLOCK), whose blocks are shared out:
    `part` is (worker, workers)."""
    blocks = step // BLOCK
    for b in range(blocks * part[0] // part[1], blocks * (part[0] + 1) // part[1]):
        wa, t = w_at + b * inputs * BLOCK, 0
        while t < n:
            left, xa, to = n - t, x_at + t * inputs, y_at + t * step + b * BLOCK
            if left == 1:
                multiply(1, 4, x, xa, inputs, w, wa, y, to, step, inputs)
                t += 1
            elif left == 2:
                multiply(2, 4, x, xa, inputs, w, wa, y, to, step, inputs)
                t += 2
            elif left == 3:
                for v in range(0, BLOCK, HALF_BLOCK):
                    multiply(3, 2, x, xa, inputs, w, wa + v, y, to + v, step, inputs)
                t += 3
            elif left == 4 or left == 7 or left == 8:
                for v in range(0, BLOCK, HALF_BLOCK):
                    multiply(4, 2, x, xa, inputs, w, wa + v, y, to + v, step, inputs)
                t += 4
            elif left == 5 or left == 9 or left == 10:
                for v in range(0, BLOCK, HALF_BLOCK):
                    multiply(5, 2, x, xa, inputs, w, wa + v, y, to + v, step, inputs)
                t += 5
            else:
                for v in range(0, BLOCK, HALF_BLOCK):
                    multiply(6, 2, x, xa, inputs, w, wa + v, y, to + v, step, inputs)
                t += 6


@njit(fastmath=EXACT, nogil=True, error_model="numpy", inline="always")
def exp(x):  # type: ignore[no-untyped-def]
    """e^x to about two units in the last place."""
    x = min(max(x, LOWEST), HIGHEST)
    n = np.floor(x * LOG2_E + np.float32(0.5))
    r = x - n * LN2_HIGH - n * LN2_LOW
    p = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + np.float32(1.0)) * power_of_two(np.int32(n))


@njit(fastmath=FREE, nogil=True, error_model="numpy")
def normed(x, weight, eps, y):  # type: ignore[no-untyped-def]
    """y = weight x / sqrt(mean(x^2) + eps), of one vector."""
    size, total = weight.shape[0], np.float32(0)
    for i in range(size):
        total += x[i] * x[i]
    by = np.float32(1) / np.sqrt(total / np.float32(size) + eps)
    for i in range(size):
        y[i] = x[i] * by * weight[i]


@njit(fastmath=EXACT, nogil=True, error_model="numpy")
def turned(head, cos, sin, to):  # type: ignore[no-untyped-def]
    """A head (size,), turned by its position."""
    half = head.shape[0] // 2
    for i in range(half):
        to[i] = rounded(to, head[i] * cos[i] + head[i + half] * sin[i])
        to[i + half] = rounded(to, head[i + half] * cos[i + half] + head[i] * sin[i + half])


@njit(fastmath=FREE, nogil=True, error_model="numpy")
def attended(q, keys, values, base, seen, weights, to):  # type: ignore[no-untyped-def]
    """to = softmax(q k / sqrt(size)) v over the slots that are seen."""
    size = q.shape[0]
    scale, most = np.float32(1) / np.sqrt(np.float32(size)), np.float32(-np.inf)
    for j in range(seen.shape[0]):
        at = base + seen[j] * size
        k, total = keys[at : at + size], np.float32(0)
        for i in range(size):
            total += q[i] * number(k[i])
        weights[j] = total * scale
        most = max(most, weights[j])
    for j in range(seen.shape[0]):
        weights[j] = exp(weights[j] - most)
    total = np.float32(0)
    for i in range(size):
        to[i] = np.float32(0)
    for j in range(seen.shape[0]):
        at = base + seen[j] * size
        v, weight = values[at : at + size], weights[j]
        total += weight
        for i in range(size):
            to[i] += weight * number(v[i])
    for i in range(size):
        to[i] /= total


@njit(nogil=True, error_model="numpy")
def meet(arrived, workers, stage):  # type: ignore[no-untyped-def]
    """Waits until every worker has come this far; the stage that follows."""
    if workers > 1:
        arrive(arrived)
        looks = 0
        while arrivals(arrived) < (stage + 1) * workers:
            looks += 1
            if looks > PATIENCE:  # another may wait for this core
                give_way()
    return stage + 1


@njit(nogil=True, error_model="numpy")
def listed(mask, n, extent, seen, counts):  # type: ignore[no-untyped-def]
    """The slots that each token attends to, in order."""
    for t in range(n):
        count = 0
        for slot in range(extent):
            if mask[t * extent + slot]:
                seen[t * extent + count] = slot
                count += 1
        counts[t] = count


@njit(fastmath=EXACT, nogil=True, error_model="numpy")
def head_of(projected, bias, norm, eps, head):  # type: ignore[no-untyped-def]
    """One head of one token: its part of the projection with its bias, normed if there is one."""
    for i in range(head.shape[0]):
        head[i] = projected[i] + bias[i]
    if norm.shape[0]:
        normed(head, norm, eps, head)


@njit(fastmath=EXACT, nogil=True, error_model="numpy")
def added(x, back, bias):  # type: ignore[no-untyped-def]
    """x += back + bias, of one vector."""
    for i in range(x.shape[0]):
        x[i] += back[i] + bias[i]


@njit(fastmath=EXACT, nogil=True, error_model="numpy")
def gated(wide, bias, active, part):  # type: ignore[no-untyped-def]
    """active = silu(gate) up, of one vector; a block of `wide` holds half a block of each."""
    blocks = wide.shape[0] // BLOCK
    for b in range(blocks * part[0] // part[1], blocks * (part[0] + 1) // part[1]):
        at, middle, to = b * BLOCK, b * BLOCK + HALF_BLOCK, b * HALF_BLOCK
        gates, ups = wide[at:middle], wide[middle : middle + HALF_BLOCK]
        gate_bias, up_bias = bias[at:middle], bias[middle : middle + HALF_BLOCK]
        out = active[to : to + HALF_BLOCK]
        for i in range(HALF_BLOCK):
            gate = gates[i] + gate_bias[i]
            out[i] = gate / (np.float32(1) + exp(-gate)) * (ups[i] + up_bias[i])


@njit(nogil=True, error_model="numpy")
def padded(size):  # type: ignore[no-untyped-def]
    """Up to whole blocks."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


@njit(nogil=True, error_model="numpy", inline="always")
def stretch(array, at, size):  # type: ignore[no-untyped-def]
    """So much of a flat array."""
    return array[at : at + size]


@njit(fastmath=EXACT, nogil=True, error_model="numpy", cache=True)
def run(shape, w, asked, keys, values, slots, s, logits, part):  # type: ignore[no-untyped-def]
    """The pass, as one of several workers (`part`: which, of how many): keys and values
    (layers, rows, heads, slots, size) get what is new, and `logits` (wanted, outputs) what was
    wanted. `slots`: rows and slots of the arena."""
    n, extent = asked.tokens.shape[0], asked.full.shape[0] // asked.tokens.shape[0]
    hidden, size, heads, kv_heads = shape.hidden, shape.size, shape.heads, shape.kv_heads
    width, inner = heads * size, shape.inner
    wide_qkv, wide_back, wide_up = padded(width + 2 * kv_heads * size), padded(hidden), 2 * inner
    seen, counts = np.empty(n * extent, np.int32), np.empty(n, np.int64)
    listed(asked.full, n, extent, seen, counts)
    near, near_counts = seen, counts
    if asked.near.shape[0]:
        near, near_counts = np.empty(n * extent, np.int32), np.empty(n, np.int64)
        listed(asked.near, n, extent, near, near_counts)
    head, q = np.empty(size, np.float32), np.empty(size, np.float32)
    attention = np.empty(extent, np.float32)
    x, h = np.empty(n * hidden, np.float32), np.empty(n * hidden, np.float32)
    # All of one type: each other makes numba compile what it is handed to once more.
    zero = np.int64(0)
    stage, done, w_at, v_at = zero, zero, zero, zero
    head_norm = size if shape.normed_heads else zero
    for m in range(shape.members):
        first = asked.first[m]
        count = asked.first[m + 1] - first
        for t in range(count):
            row = stretch(w.embedding, (m * shape.vocabulary + asked.tokens[first + t]) * hidden, hidden)
            for i in range(hidden):
                x[t * hidden + i] = number(row[i])
        for layer in range(shape.layers):
            # Where the parts of this layer begin.
            out_at = w_at + hidden * wide_qkv
            up_at = out_at + width * wide_back
            down_at = up_at + hidden * wide_up
            after_at = v_at + hidden
            q_at = after_at + hidden
            k_at = q_at + size
            qkv_bias = k_at + size
            out_bias = qkv_bias + wide_qkv
            up_bias = out_bias + wide_back
            down_bias = up_bias + wide_up
            q_norm, k_norm, v_norm = (
                stretch(w.vectors, q_at, head_norm), stretch(w.vectors, k_at, head_norm),
                stretch(w.vectors, k_at, zero),
            )
            norm, after = stretch(w.vectors, v_at, hidden), stretch(w.vectors, after_at, hidden)
            for t in range(count):
                normed(stretch(x, t * hidden, hidden), norm, w.eps, stretch(h, t * hidden, hidden))
            products(h, zero, hidden, w.matrices, w_at, s.projected, first * wide_qkv, wide_qkv, count, part)
            stage = meet(s.arrived, part[1], stage)
            # Every worker writes all keys and values, all the same, so that nobody waits for them.
            layer_at = layer * slots[0]
            for t in range(first, first + count):
                turn = asked.positions[t] * size
                cos, sin = stretch(w.cos, turn, size), stretch(w.sin, turn, size)
                for j in range(kv_heads):
                    to = (((layer_at + asked.rows[t]) * kv_heads + j) * slots[1] + asked.slots[t]) * size
                    at = (heads + j) * size
                    head_of(stretch(s.projected, t * wide_qkv + at, size), stretch(w.vectors, qkv_bias + at, size), k_norm, w.eps, head)
                    turned(head, cos, sin, stretch(keys, to, size))
                    at += kv_heads * size
                    head_of(stretch(s.projected, t * wide_qkv + at, size), stretch(w.vectors, qkv_bias + at, size), v_norm, w.eps, head)
                    v = stretch(values, to, size)
                    for i in range(size):
                        v[i] = rounded(v, head[i])
            for item in range(count * heads * part[0] // part[1], count * heads * (part[0] + 1) // part[1]):
                t, j = first + item // heads, item % heads
                at, turn = j * size, asked.positions[t] * size
                head_of(stretch(s.projected, t * wide_qkv + at, size), stretch(w.vectors, qkv_bias + at, size), q_norm, w.eps, head)
                turned(head, stretch(w.cos, turn, size), stretch(w.sin, turn, size), q)
                base = ((layer_at + asked.rows[t]) * kv_heads + j * kv_heads // heads) * slots[1] * size
                look, looks = (near, near_counts) if w.windowed[layer] else (seen, counts)
                attended(q, keys, values, base, stretch(look, t * extent, looks[t]), attention, stretch(s.attended, t * width + at, size))
            stage = meet(s.arrived, part[1], stage)
            products(s.attended, first * width, width, w.matrices, out_at, s.back, first * wide_back, wide_back, count, part)
            stage = meet(s.arrived, part[1], stage)
            bias = stretch(w.vectors, out_bias, hidden)
            for t in range(count):
                mine, to = stretch(x, t * hidden, hidden), stretch(h, t * hidden, hidden)
                added(mine, stretch(s.back, (first + t) * wide_back, hidden), bias)
                normed(mine, after, w.eps, to)
            products(h, zero, hidden, w.matrices, up_at, s.wide, first * wide_up, wide_up, count, part)
            bias = stretch(w.vectors, up_bias, wide_up)
            for t in range(first, first + count):
                gated(stretch(s.wide, t * wide_up, wide_up), bias, stretch(s.active, t * inner, inner), part)
            stage = meet(s.arrived, part[1], stage)
            products(s.active, first * inner, inner, w.matrices, down_at, s.back, first * wide_back, wide_back, count, part)
            stage = meet(s.arrived, part[1], stage)
            bias = stretch(w.vectors, down_bias, hidden)
            for t in range(count):
                added(stretch(x, t * hidden, hidden), stretch(s.back, (first + t) * wide_back, hidden), bias)
            w_at = down_at + inner * wide_back
            v_at = down_bias + wide_back
        begin = done
        while done < asked.wanted.shape[0] and asked.wanted[done] < first + count:
            from_x = stretch(x, (asked.wanted[done] - first) * hidden, hidden)
            normed(from_x, stretch(w.vectors, v_at, hidden), w.eps, stretch(h, (done - begin) * hidden, hidden))
            done += 1
        products(h, zero, hidden, w.matrices, w_at, logits, begin * shape.outputs, shape.outputs, done - begin, part)
        w_at += hidden * shape.outputs
        v_at += hidden
    meet(s.arrived, part[1], stage)
