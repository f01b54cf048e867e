"""Products of a few vectors with a matrix of blocks, at the pace at which memory brings it.

A matrix that no cache holds is read once, however many vectors there are: stretch by stretch, each
multiplied by all of them while the next is fetched, or in tiles, which are fast enough without.
Every sum keeps its order of inputs.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

import numpy as np

from core.models.native.compiling import exact, inlined
from core.models.native.intrinsics import number, rounded
from core.models.native.kernel_args import BLOCK, HALF_BLOCK, Product
from core.models.native.registers import broad, inputs_of, most, multiply, parts_of, taken
from core.models.native.tiles import release, settle

__all__ = ["parted", "products"]

STRETCH = 512
"""Inputs of a block that are multiplied at a time: 32 KiB of them, if they are kept in 16 bits."""


@exact
def products(x, x_at, inputs, w, w_at, y, y_at, step, n, part, halved):
    """y (n, step) = x (n, inputs) times w (blocks, inputs, BLOCK), whose blocks are shared out:
    `part` is (worker, workers). `w_at` counts weights. `halved`: room for the bfloat16 that x is
    made of, if those are what they are multiplied with."""
    parts, each, begin, x_step = parts_of(w), inputs_of(w), x_at, inputs
    if parts:
        begin, x_step = np.int64(0), parts * inputs // each
        parted(x[x_at : x_at + n * inputs], inputs, parts, halved)
    rows, inputs, w_at = taken(w, x, halved), inputs // each, w_at // each
    blocks, tile = step // BLOCK, settle(w, together(n, w))
    for b in range(blocks * part[0] // part[1], blocks * (part[0] + 1) // part[1]):
        for i in range(0, inputs, STRETCH // each):
            size, from_w = min(STRETCH // each, inputs - i), w_at + (b * inputs + i) * BLOCK
            # What lies behind this stretch, shared out among the walks through it.
            walks = (n + most(w) - 1) // most(w) * (BLOCK // width_of(together(n, w), w))
            ahead, pace = from_w + size * BLOCK, BLOCK // walks
            to, first = y_at + b * BLOCK, int(i == 0)
            stretch = Product(begin + i, x_step, from_w, to, step, size, first, ahead, pace, tile)
            multiplied(rows, w, y, stretch, n)
    release(w)


@exact
def parted(x, inputs, parts, to):
    """Each number of x (n, inputs), flat, as the nearest bfloat16, and if there are more parts what
    is left over as the nearest, and again; `to` (n, parts, inputs)."""
    for begin in range(0, x.shape[0], inputs):
        whole, own = x[begin : begin + inputs], to[begin * parts : (begin + inputs) * parts]
        high, middle, low = own[:inputs], own[inputs : 2 * inputs], own[2 * inputs :]
        for i in range(inputs):
            high[i] = rounded(high, whole[i])
        if parts == 3:
            for i in range(inputs):
                middle[i] = rounded(middle, whole[i] - number(high[i]))
            for i in range(inputs):
                low[i] = rounded(low, whole[i] - number(high[i]) - number(middle[i]))


@exact
def multiplied(x, w, y, at, n):
    """All n vectors times one stretch."""
    ahead, t = at.ahead, 0
    while t < n:
        count = together(n - t, w)
        from_x, to = at.x + t * at.x_step, at.y + t * at.y_step
        width = width_of(count, w)
        for v in range(0, BLOCK, width):
            one = Product(
                from_x, at.x_step, at.w + v, to + v, at.y_step, at.inputs, at.first, ahead,
                at.pace, at.tile,
            )  # fmt: skip
            multiply(count, x, w, y, one)
            ahead += at.inputs * at.pace
        t += count


@inlined
def together(left, w):
    """How many of those left come next, so that none are left that are few."""
    if left <= most(w):
        return left
    if left <= 2 * most(w):
        return (left + 1) // 2
    return most(w)


@inlined
def width_of(count, w):
    """Outputs that are made at once for so many tokens."""
    return BLOCK if count <= broad(w) else HALF_BLOCK
