"""The kernel: a Llama-like model's whole pass as one function of machine code, which numba compiles
when it is first asked for, in some seconds, and keeps for the next start.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from core.models.native.compiling import entry, kept
from core.models.native.elementwise import listed, meet, normed
from core.models.native.layers import (
    attention_half,
    embedded,
    gated_half,
    layout,
    stretch,
)
from core.models.native.products import products

__all__ = ["kernel", "stamp"]


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
