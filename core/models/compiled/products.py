"""Products of a few vectors with a matrix of blocks, at the pace at which memory brings it.

A matrix that no cache holds is read once, however many vectors there are: stretch by stretch, each
multiplied by all of them while the next is fetched. Every sum keeps its order of inputs.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

import numpy as np

from core.models.compiled.compiling import exact, inlined
from core.models.compiled.described import BLOCK, HALF_BLOCK, Product
from core.models.compiled.machine import rounded
from core.models.compiled.registers import broad, inputs_of, most, multiply, taken

__all__ = ["products"]

STRETCH = 512
"""Inputs of a block that are multiplied at a time: 32 KiB of them, if they are kept in 16 bits."""


@exact
def products(x, x_at, inputs, w, w_at, y, y_at, step, n, part, halved):
    """y (n, step) = x (n, inputs) times w (blocks, inputs, BLOCK), whose blocks are shared out:
    `part` is (worker, workers). `w_at` counts weights. `halved`: if they are kept in pairs, room
    for x rounded to bfloat16, which then is what they are multiplied with."""
    each, begin = inputs_of(w), x_at
    if each > 1:
        begin = np.int64(0)
        for i in range(n * inputs):
            halved[i] = rounded(halved, x[x_at + i])
    rows, inputs, w_at = taken(w, x, halved), inputs // each, w_at // each
    blocks = step // BLOCK
    for b in range(blocks * part[0] // part[1], blocks * (part[0] + 1) // part[1]):
        for i in range(0, inputs, STRETCH // each):
            size, from_w = min(STRETCH // each, inputs - i), w_at + (b * inputs + i) * BLOCK
            # What lies behind this stretch, shared out among the walks through it.
            walks = (n + most() - 1) // most() * (BLOCK // width_of(together(n), w))
            ahead, pace = from_w + size * BLOCK, BLOCK // walks
            to, first = y_at + b * BLOCK, int(i == 0)
            stretch = Product(begin + i, inputs, from_w, to, step, size, first, ahead, pace)
            multiplied(rows, w, y, stretch, n)


@exact
def multiplied(x, w, y, at, n):
    """All n vectors times one stretch."""
    ahead, t = at.ahead, 0
    while t < n:
        count = together(n - t)
        from_x, to = at.x + t * at.x_step, at.y + t * at.y_step
        width = width_of(count, w)
        for v in range(0, BLOCK, width):
            one = Product(
                from_x, at.x_step, at.w + v, to + v, at.y_step, at.inputs, at.first, ahead, at.pace
            )
            multiply(count, x, w, y, one)
            ahead += at.inputs * at.pace
        t += count


@inlined
def together(left):
    """How many of those left come next, so that none are left that are few."""
    if left <= most():
        return left
    if left <= 2 * most():
        return (left + 1) // 2
    return most()


@inlined
def width_of(count, w):
    """Outputs that are made at once for so many tokens."""
    return BLOCK if count <= broad(w) else HALF_BLOCK
