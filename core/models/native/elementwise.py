"""Vector operations of a pass, and the barrier of its threads.

The order of every sum is independent of the rest of the batch: a node's logits are bitwise the same
alone or in a tree, in one request or in many, on one thread or on several.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# numba infers the types of these functions from their arguments.

from __future__ import annotations

import numpy as np

from core.models.native.attention import MAX_VECTORS, SlotRange, key_products, value_sums, vector
from core.models.native.compiling import (
    arrivals,
    arrive,
    as_float32,
    exact,
    give_way,
    inline,
    power_of_two,
    reassociate,
    round_like,
)
from core.models.native.kernel_args import BLOCK, HALF_BLOCK

__all__ = [
    "add_residual",
    "attend",
    "exp",
    "apply_gate",
    "head_of",
    "list_slots",
    "barrier_wait",
    "rms_norm",
    "rotate_head",
]

# e^x = 2^n e^r with |r| <= ln 2 / 2; the polynomial is from the Cephes library.
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# For x between these bounds, n is an exponent of float32 (-126 to 127).
LOWEST, HIGHEST = -87.0, 88.0
# KV slots of a tile of attention: with 64 dimensions in float32 a tile's keys take 16 KiB.
SLOTS = 64
# Polls of the barrier before a thread yields its core.
SPINS = 2000


@inline
def exp(x):
    """e^x to about two units in the last place."""
    x = min(max(x, np.float32(LOWEST)), np.float32(HIGHEST))
    n = np.floor(x * np.float32(LOG2_E) + np.float32(0.5))
    # ln 2 in two parts: the first has few bits, and its product with n is exact.
    r = x - n * np.float32(LN2_HIGH) - n * np.float32(LN2_LOW)
    p = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + np.float32(1.0)) * power_of_two(np.int32(n))


@reassociate
def rms_norm(x, weight, eps, y):
    """y = weight x / sqrt(mean(x^2) + eps), of one vector."""
    size, total = weight.shape[0], np.float32(0)
    for i in range(size):
        total += x[i] * x[i]
    # One division for the vector instead of one for each element.
    scale = np.float32(1) / np.sqrt(total / np.float32(size) + eps)
    for i in range(size):
        y[i] = x[i] * scale * weight[i]


@exact
def rotate_head(head, cos, sin, to):
    """Rotary embedding of a head (size,), written to `to`."""
    half = head.shape[0] // 2
    for i in range(half):
        # The first half of the sines is negated: (a, b) -> (a cos - b sin, b cos + a sin).
        to[i] = round_like(to, head[i] * cos[i] + head[i + half] * sin[i])
        to[i + half] = round_like(to, head[i + half] * cos[i + half] + head[i] * sin[i + half])


@reassociate
def attend(q, keys, values, bases, views, weights, to):
    """to = softmax(q k / sqrt(size)) v of one head for several tokens.

    q (tokens, size), flat; `bases` (tokens,): offset of each token's row of slots; `views`: the
    slots that each token attends to (tokens, extent), their counts, extent; `to`: (array, row
    stride). Slots are processed in tiles, each tile for all tokens while its keys or values are in
    the L1 cache.
    """
    seen, counts, extent = views
    # `weights` (tokens, stride): a row has `extent` elements and room for a vector, see
    # `key_products`.
    tokens, stride, most = bases.shape[0], extent + vector(), np.int64(0)
    size = q.shape[0] // tokens
    for t in range(tokens):
        most = max(most, counts[t])
    for begin in range(0, most, SLOTS):
        for t in range(tokens):
            # Each token has its own list of slots: one tile may be different slots for two tokens.
            slots = min(counts[t] - begin, SLOTS)
            if slots > 0:
                seen_at, at = t * extent + begin, t * stride + begin
                query, products = q[t * size : (t + 1) * size], weights[at : at + slots]
                query_key_products(query, keys, bases[t], seen[seen_at : seen_at + slots], products)
    scale = np.float32(1) / np.sqrt(np.float32(size))
    for t in range(tokens):
        softmax_inplace(weights[t * stride : t * stride + counts[t]], scale)
        # The output of a token that attends to no slot is 0.
        if counts[t] == 0:
            to[0][t * to[1] : t * to[1] + size] = 0
    for begin in range(0, most, SLOTS):
        for t in range(tokens):
            slots = min(counts[t] - begin, SLOTS)
            if slots > 0:
                seen_at, at = t * extent + begin, t * stride + begin
                output, shares = to[0][t * to[1] : t * to[1] + size], weights[at : at + slots]
                seen_slots = seen[seen_at : seen_at + slots]
                weighted_value_sum(output, values, bases[t], seen_slots, shares, begin)


@reassociate
def query_key_products(q, keys, base, seen, weights):
    """weights[j] = q k of slot seen[j]; the memory after `weights` has room for one more vector."""
    size, lanes = q.shape[0], vector()
    # Full vectors first, then the remaining dimensions one at a time.
    in_vectors, step = size // lanes * lanes, MAX_VECTORS * lanes
    for begin in range(0, in_vectors, step):
        count = min(MAX_VECTORS, (in_vectors - begin) // lanes)
        # `onto` is `begin`: the first dimensions overwrite the weights, later dimensions add.
        key_products(count, SlotRange(base, size, begin, begin), seen, weights, keys, q)
    for i in range(in_vectors, size):
        for j in range(seen.shape[0]):
            # In a head smaller than a vector, `key_products` has written nothing.
            before = weights[j] if i else np.float32(0)
            weights[j] = before + q[i] * as_float32(keys[base + seen[j] * size + i])


@reassociate
def weighted_value_sum(to, values, base, seen, weights, onto):
    """to += sum over j of weights[j] v of slot seen[j]; = instead of += if `onto` (the tile's first
    slot) is 0."""
    size, lanes = to.shape[0], vector()
    in_vectors, step = size // lanes * lanes, MAX_VECTORS * lanes
    for begin in range(0, in_vectors, step):
        count = min(MAX_VECTORS, (in_vectors - begin) // lanes)
        value_sums(count, SlotRange(base, size, begin, onto), seen, weights, values, to)
    for i in range(in_vectors, size):
        to[i] = to[i] if onto else np.float32(0)
        for j in range(seen.shape[0]):
            to[i] += weights[j] * as_float32(values[base + seen[j] * size + i])


@reassociate
def softmax_inplace(weights, scale):
    """weights = softmax(scale weights)."""
    highest, total, slots = np.float32(-np.inf), np.float32(0), weights.shape[0]
    for j in range(slots):
        # A positive scale does not change which weight is the largest.
        highest = max(highest, weights[j])
    for j in range(slots):
        # At most e^0: nothing overflows.
        weights[j] = exp((weights[j] - highest) * scale)
    for j in range(slots):
        total += weights[j]
    inverse = np.float32(1) / total
    for j in range(slots):
        weights[j] *= inverse


@exact
def barrier_wait(arrived, workers, stage):
    """Waits until every thread has reached this stage; returns the number of the next stage."""
    if workers > 1:
        arrive(arrived)
        polls = 0
        # The count is never reset: no thread can miss the end of a stage. Stage s ends at (s + 1) *
        # workers arrivals.
        while arrivals(arrived) < (stage + 1) * workers:
            polls += 1
            if polls > SPINS:  # a thread that has not arrived may need this core
                give_way()
    return stage + 1


@exact
def list_slots(mask, n, extent, out):
    """Lists the slots that are True for each token in a flat mask (n, extent). `out`: arrays for
    the ascending slots (n, extent) and their counts (n,). Returns both and the extent."""
    seen, counts = out
    for t in range(n):
        count = 0
        for slot in range(extent):
            if mask[t * extent + slot]:
                seen[t * extent + count] = slot
                count += 1
        counts[t] = count
    return seen, counts, extent


@exact
def head_of(projected, bias, norm, eps, head):
    """head = projected + bias, then RMSNorm unless `norm` is empty."""
    for i in range(head.shape[0]):
        head[i] = projected[i] + bias[i]
    if norm.shape[0]:
        rms_norm(head, norm, eps, head)


@exact
def add_residual(x, back, bias):
    """x += back + bias, of one vector."""
    for i in range(x.shape[0]):
        x[i] += back[i] + bias[i]


@exact
def apply_gate(wide, bias, active, part):
    """active = silu(gate) up, of one vector; a block of `wide` is half a block of gates and half a
    block of ups. `part`: (index of this thread, number of threads); the threads divide the
    blocks."""
    blocks = wide.shape[0] // BLOCK
    for b in range(blocks * part[0] // part[1], blocks * (part[0] + 1) // part[1]):
        at, middle, to = b * BLOCK, b * BLOCK + HALF_BLOCK, b * HALF_BLOCK
        gates, ups = wide[at:middle], wide[middle : middle + HALF_BLOCK]
        gate_bias, up_bias = bias[at:middle], bias[middle : middle + HALF_BLOCK]
        out = active[to : to + HALF_BLOCK]
        for i in range(HALF_BLOCK):
            gate = gates[i] + gate_bias[i]
            # silu(g) = g / (1 + e^-g).
            out[i] = gate / (np.float32(1) + exp(-gate)) * (ups[i] + up_bias[i])
