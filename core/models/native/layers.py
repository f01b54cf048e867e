"""The native pass as one compiled function (`kernel`), layer by layer: attention half, gated half.
numba compiles it when it is first needed, in some seconds, and caches it for the next start.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from core.models.native.compiling import entry, inlined, kept, number, rounded
from core.models.native.elementwise import (
    added,
    attended,
    gated,
    head_of,
    listed,
    meet,
    normed,
    turned,
)
from core.models.native.kernel_args import BLOCK, Layer
from core.models.native.products import products

__all__ = [
    "TOGETHER",
    "attention_half",
    "embedded",
    "gated_half",
    "kernel",
    "layout",
    "normed_rows",
    "stamp",
    "stretch",
]

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba types these functions, by what they are called with.


TOGETHER = 16
"""Tokens of which a head is looked at beside one another."""


@inlined
def padded(size):
    """Up to whole blocks."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


@inlined
def stretch(array, at, size):
    """So much of a flat array."""
    return array[at : at + size]


@inlined
def layout(shape, w_at, v_at):
    """Where the parts of the layer begin whose matrices and vectors begin here; see Shape."""
    width, inner, back = shape.heads * shape.size, shape.inner, padded(shape.hidden)
    qkv = padded(width + 2 * shape.kv_heads * shape.size)
    out = w_at + shape.hidden * qkv
    up = out + width * back
    down = up + shape.hidden * 2 * inner
    after = v_at + shape.hidden
    q_norm = after + shape.hidden
    k_norm = q_norm + shape.size
    qkv_bias = k_norm + shape.size
    out_bias = qkv_bias + qkv
    up_bias = out_bias + back
    down_bias = up_bias + 2 * inner
    return Layer(
        width, qkv, back, w_at, out, up, down, down + inner * back, v_at, after, q_norm, k_norm,
        qkv_bias, out_bias, up_bias, down_bias, down_bias + back,
    )  # fmt: skip


@inlined
def normed_rows(shape, w, norm_at, count, x, h):
    """h = x, each row normed."""
    hidden = shape.hidden
    norm = stretch(w.vectors, norm_at, hidden)
    for t in range(count):
        normed(stretch(x, t * hidden, hidden), norm, w.eps, stretch(h, t * hidden, hidden))


@inlined
def added_rows(shape, w, bias_at, at, span, s, x):
    """x += what a product brought back."""
    first, count = span
    bias = stretch(w.vectors, bias_at, shape.hidden)
    for t in range(count):
        back = stretch(s.back, (first + t) * at.back, shape.hidden)
        added(stretch(x, t * shape.hidden, shape.hidden), back, bias)


@inlined
def keep(shape, w, at, asked, span, s, layer_row, store, head):
    """Keys and values go to their slots. Every worker writes all of them, all the same, so that
    nobody waits for them."""
    keys, values, slots = store
    size, normed_size = shape.size, shape.size if shape.normed_heads else 0
    norm, none = stretch(w.vectors, at.k_norm, normed_size), stretch(w.vectors, at.k_norm, 0)
    for t in range(span[0], span[0] + span[1]):
        turn = asked.positions[t] * size
        for j in range(shape.kv_heads):
            row = (layer_row + asked.rows[t]) * shape.kv_heads + j
            to = (row * slots[1] + asked.slots[t]) * size
            key = (shape.heads + j) * size
            value = key + shape.kv_heads * size
            projected = stretch(s.projected, t * at.qkv + key, size)
            head_of(projected, stretch(w.vectors, at.qkv_bias + key, size), norm, w.eps, head)
            cos, sin = stretch(w.cos, turn, size), stretch(w.sin, turn, size)
            turned(head, cos, sin, stretch(keys, to, size))
            projected = stretch(s.projected, t * at.qkv + value, size)
            head_of(projected, stretch(w.vectors, at.qkv_bias + value, size), none, w.eps, head)
            kept = stretch(values, to, size)
            for i in range(size):
                kept[i] = rounded(kept, head[i])


@inlined
def look(shape, w, at, asked, span, s, layer_row, store, views, own, part):
    """Attention of those heads of those tokens that are this worker's."""
    keys, values, slots = store
    head, q, bases, weights = own.head, own.q, own.bases, own.weights
    seen, counts, extent = views
    size, heads = shape.size, shape.heads
    norm = stretch(w.vectors, at.q_norm, size if shape.normed_heads else 0)
    items = span[1] * heads
    item, end = items * part[0] // part[1], items * (part[0] + 1) // part[1]
    while item < end:
        # Head by head, tokens beside one another: what they see stays near meanwhile.
        j, first = item // span[1], span[0] + item % span[1]
        tokens = min(end - item, span[0] + span[1] - first, TOGETHER)
        query = j * size
        for i in range(tokens):
            t = first + i
            turn = asked.positions[t] * size
            projected = stretch(s.projected, t * at.qkv + query, size)
            head_of(projected, stretch(w.vectors, at.qkv_bias + query, size), norm, w.eps, head)
            cos, sin = stretch(w.cos, turn, size), stretch(w.sin, turn, size)
            turned(head, cos, sin, stretch(q, i * size, size))
            row = (layer_row + asked.rows[t]) * shape.kv_heads
            bases[i] = (row + j * shape.kv_heads // heads) * slots[1] * size
        mine = (seen[first * extent :], counts[first:], extent)
        to = (s.attended[first * at.width + query :], at.width)
        attended(q[: tokens * size], keys, values, bases[:tokens], mine, weights, to)
        item += tokens


@inlined
def let_through(shape, w, at, span, s, part):
    """What the gates let through, of this worker's blocks."""
    up = 2 * shape.inner
    bias = stretch(w.vectors, at.up_bias, up)
    for t in range(span[0], span[0] + span[1]):
        active = stretch(s.active, t * shape.inner, shape.inner)
        gated(stretch(s.wide, t * up, up), bias, active, part)


@inlined
def attention_half(shape, w, at, asked, span, s, rows, store, views, own, part, stage):
    """x += attention of x normed; `rows`: where the layer's begin in the arena."""
    x, h, halved = own.x, own.h, own.halved
    first, count = span
    normed_rows(shape, w, at.norm, count, x, h)
    products(
        h, np.int64(0), shape.hidden, w.matrices, at.w,
        s.projected, first * at.qkv, at.qkv, count, part, halved,
    )  # fmt: skip
    stage = meet(s.arrived, part[1], stage)
    keep(shape, w, at, asked, span, s, rows, store, own.head)
    look(shape, w, at, asked, span, s, rows, store, views, own, part)
    stage = meet(s.arrived, part[1], stage)
    products(
        s.attended, first * at.width, at.width, w.matrices, at.out,
        s.back, first * at.back, at.back, count, part, halved,
    )  # fmt: skip
    stage = meet(s.arrived, part[1], stage)
    added_rows(shape, w, at.out_bias, at, span, s, x)
    return stage


@inlined
def gated_half(shape, w, at, span, s, own, part, stage):
    """x += what the gates let through of x normed."""
    x, h, halved = own.x, own.h, own.halved
    (first, count), up = span, 2 * shape.inner
    normed_rows(shape, w, at.after, count, x, h)
    products(
        h, np.int64(0), shape.hidden, w.matrices, at.up,
        s.wide, first * up, up, count, part, halved,
    )  # fmt: skip
    let_through(shape, w, at, span, s, part)
    stage = meet(s.arrived, part[1], stage)
    products(
        s.active, first * shape.inner, shape.inner, w.matrices, at.down,
        s.back, first * at.back, at.back, count, part, halved,
    )  # fmt: skip
    stage = meet(s.arrived, part[1], stage)
    added_rows(shape, w, at.down_bias, at, span, s, x)
    return stage


@inlined
def embedded(shape, w, member, tokens, x):
    """x = the tokens' embeddings, which are a member's."""
    for t in range(tokens.shape[0]):
        token = member * shape.vocabulary + tokens[t]
        row = stretch(w.embedding, token * shape.hidden, shape.hidden)
        for i in range(shape.hidden):
            x[t * shape.hidden + i] = number(row[i])


# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# numba types these functions, by what they are called with.


@cache
def kernel(keep: bool) -> Callable[..., None]:
    """The pass; see `run` below. `keep`: for the next start too, which not every place allows."""
    found: Callable[..., None] = _made(stamp(Path(__file__).parent), kept if keep else entry)
    return found


def stamp(folder: Path) -> int:
    """Of all that is compiled. numba keeps what it made for as long as one file is what it was, and
    looks at no other; but it does look at what a function is closed over."""
    return zlib.crc32(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py"))))


def _made(stamped: int, compiled: Callable[[Any], Any]) -> Any:
    @compiled
    def run(shape, w, asked, store, s, logits, own, part):
        """The pass, as one of several workers (`part`: which, of how many). `store`: keys and
        values (layers, rows, heads, slots, size), which get what is new, and how many rows and
        slots there are; `logits` (wanted, outputs) gets what was wanted; `own` is the worker's."""
        _ = stamped
        n, hidden = asked.tokens.shape[0], shape.hidden
        extent = asked.full.shape[0] // n
        all_seen = near_seen = listed(asked.full, n, extent, own.full)
        if asked.near.shape[0]:
            near_seen = listed(asked.near, n, extent, own.near)
        # All of one type: for each other numba would compile what they are handed to once more.
        zero = np.int64(0)
        stage, done, w_at, v_at = zero, zero, zero, zero
        for m in range(shape.members):
            first, count = asked.first[m], asked.first[m + 1] - asked.first[m]
            span = (first, count)
            embedded(shape, w, m, stretch(asked.tokens, first, count), own.x)
            for layer in range(shape.layers):
                at, rows = layout(shape, w_at, v_at), layer * store[2][0]
                views = near_seen if w.windowed[layer] else all_seen
                stage = attention_half(
                    shape, w, at, asked, span, s, rows, store, views, own, part, stage
                )
                stage = gated_half(shape, w, at, span, s, own, part, stage)
                w_at, v_at = at.w_end, at.v_end
            begin = done
            norm = stretch(w.vectors, v_at, hidden)
            while done < asked.wanted.shape[0] and asked.wanted[done] < first + count:
                mine = stretch(own.x, (asked.wanted[done] - first) * hidden, hidden)
                normed(mine, norm, w.eps, stretch(own.h, (done - begin) * hidden, hidden))
                done += 1
            products(
                own.h, zero, hidden, w.matrices, w_at,
                logits, begin * shape.outputs, shape.outputs, done - begin, part, own.halved,
            )  # fmt: skip
            w_at, v_at = w_at + hidden * shape.outputs, v_at + hidden
        meet(s.arrived, part[1], stage)

    return run
