"""The native pass as one compiled function (`kernel`), layer by layer: attention half, gated half
(the MLP)."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# mypy: disable-error-code="var-annotated"
# numba infers the types of these functions from their arguments.

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from core.models.native.compiling import as_float32, cached_entry, inline, round_like
from core.models.native.elementwise import (
    add_residual,
    apply_gate,
    attend,
    barrier_wait,
    head_of,
    list_slots,
    rms_norm,
    rotate_head,
)
from core.models.native.kernel_args import BLOCK, LayerOffsets
from core.models.native.products import products

__all__ = [
    "ATTENTION_HALF",
    "GATED_HALF",
    "MAX_HEAD_TOKENS",
    "WHOLE_LAYERS",
    "attention_half",
    "embed",
    "gated_half",
    "kernel",
    "layout",
    "norm_rows",
    "source_hash_of",
    "stretch",
]


MAX_HEAD_TOKENS = 16
"""The largest number of tokens for which one head's attention is computed together."""
WHOLE_LAYERS, ATTENTION_HALF, GATED_HALF = 0, 1, 2
"""The parts that one call of the kernel runs; see `run`."""


@inline
def pad_to_block(size):
    """Rounds up to whole blocks."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


@inline
def stretch(array, at, size):
    """`size` elements of a flat array from `at` on."""
    return array[at : at + size]


@inline
def layout(shape, w_at, v_at):
    """Offsets of the layer whose matrices begin at `w_at` and vectors at `v_at`; see ModelSizes."""
    width, inner, back = shape.heads * shape.size, shape.inner, pad_to_block(shape.hidden)
    qkv = pad_to_block(width + 2 * shape.kv_heads * shape.size)
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
    return LayerOffsets(
        width, qkv, back, w_at, out, up, down, down + inner * back, v_at, after, q_norm, k_norm,
        qkv_bias, out_bias, up_bias, down_bias, down_bias + back,
    )  # fmt: skip


@inline
def norm_rows(shape, w, norm_at, count, x, h):
    """h = RMSNorm(x) by row."""
    hidden = shape.hidden
    norm = stretch(w.vectors, norm_at, hidden)
    for t in range(count):
        rms_norm(stretch(x, t * hidden, hidden), norm, w.eps, stretch(h, t * hidden, hidden))


@inline
def add_residual_rows(shape, w, bias_at, at, span, s, x):
    """x += s.back + bias: the residual connection."""
    first, count = span
    bias = stretch(w.vectors, bias_at, shape.hidden)
    for t in range(count):
        back = stretch(s.back, (first + t) * at.back, shape.hidden)
        add_residual(stretch(x, t * shape.hidden, shape.hidden), back, bias)


@inline
def store_kv(shape, w, at, inputs, span, s, layer_row, store, head):
    """Writes keys and values to their slots. Every thread writes all of them, with the same bits,
    which saves a barrier."""
    keys, values, slots = store
    size, normed_size = shape.size, shape.size if shape.normed_heads else 0
    norm, none = stretch(w.vectors, at.k_norm, normed_size), stretch(w.vectors, at.k_norm, 0)
    for t in range(span[0], span[0] + span[1]):
        angle = inputs.positions[t] * size
        for j in range(shape.kv_heads):
            # Arena (layers, rows, heads, slots, size), flat.
            row = (layer_row + inputs.rows[t]) * shape.kv_heads + j
            to = (row * slots[1] + inputs.slots[t]) * size
            key = (shape.heads + j) * size
            # A row of `projected`: all query heads, all key heads, all value heads.
            value = key + shape.kv_heads * size
            projected = stretch(s.projected, t * at.qkv + key, size)
            head_of(projected, stretch(w.vectors, at.qkv_bias + key, size), norm, w.eps, head)
            cos, sin = stretch(w.cos, angle, size), stretch(w.sin, angle, size)
            rotate_head(head, cos, sin, stretch(keys, to, size))
            projected = stretch(s.projected, t * at.qkv + value, size)
            head_of(projected, stretch(w.vectors, at.qkv_bias + value, size), none, w.eps, head)
            cached = stretch(values, to, size)
            for i in range(size):
                cached[i] = round_like(cached, head[i])


@inline
def attend_heads(shape, w, at, inputs, span, s, layer_row, store, views, workspace, part):
    """Attention of this thread's share of the (head, token) pairs."""
    keys, values, slots = store
    head, q, bases, weights = workspace.head, workspace.q, workspace.bases, workspace.weights
    seen, counts, extent = views
    size, heads = shape.size, shape.heads
    norm = stretch(w.vectors, at.q_norm, size if shape.normed_heads else 0)
    items = span[1] * heads
    item, end = items * part[0] // part[1], items * (part[0] + 1) // part[1]
    while item < end:
        # Heads are the outer loop: tokens of one head share keys and values in the CPU's cache.
        j, first = item // span[1], span[0] + item % span[1]
        tokens = min(end - item, span[0] + span[1] - first, MAX_HEAD_TOKENS)
        query = j * size
        for i in range(tokens):
            t = first + i
            angle = inputs.positions[t] * size
            projected = stretch(s.projected, t * at.qkv + query, size)
            head_of(projected, stretch(w.vectors, at.qkv_bias + query, size), norm, w.eps, head)
            cos, sin = stretch(w.cos, angle, size), stretch(w.sin, angle, size)
            rotate_head(head, cos, sin, stretch(q, i * size, size))
            row = (layer_row + inputs.rows[t]) * shape.kv_heads
            # Grouped queries: heads / kv_heads query heads read one KV head.
            bases[i] = (row + j * shape.kv_heads // heads) * slots[1] * size
        token_views = (seen[first * extent :], counts[first:], extent)
        to = (s.attended[first * at.width + query :], at.width)
        attend(q[: tokens * size], keys, values, bases[:tokens], token_views, weights, to)
        item += tokens


@inline
def apply_gates(shape, w, at, span, s, part):
    """active = silu(gate) up, of this thread's blocks."""
    up = 2 * shape.inner
    bias = stretch(w.vectors, at.up_bias, up)
    for t in range(span[0], span[0] + span[1]):
        active = stretch(s.active, t * shape.inner, shape.inner)
        apply_gate(stretch(s.wide, t * up, up), bias, active, part)


@inline
def attention_half(shape, w, at, inputs, span, s, rows, store, views, workspace, part, stage):
    """s.back = attention(RMSNorm(x)); `rows`: the layer's first row in the arena."""
    x, h, x_bf16 = workspace.x, workspace.h, workspace.x_bf16
    first, count = span
    # Every thread norms all rows into its own `h`, which saves a barrier.
    norm_rows(shape, w, at.norm, count, x, h)
    products(
        h, np.int64(0), shape.hidden, w.matrices, at.w,
        s.projected, first * at.qkv, at.qkv, count, part, x_bf16,
    )  # fmt: skip
    # Every thread reads the QKV outputs of all threads.
    stage = barrier_wait(s.arrived, part[1], stage)
    store_kv(shape, w, at, inputs, span, s, rows, store, workspace.head)
    attend_heads(shape, w, at, inputs, span, s, rows, store, views, workspace, part)
    stage = barrier_wait(s.arrived, part[1], stage)
    products(
        s.attended, first * at.width, at.width, w.matrices, at.out,
        s.back, first * at.back, at.back, count, part, x_bf16,
    )  # fmt: skip
    return barrier_wait(s.arrived, part[1], stage)


@inline
def gated_half(shape, w, at, span, s, workspace, part, stage):
    """s.back = MLP(RMSNorm(x))."""
    x, h, x_bf16 = workspace.x, workspace.h, workspace.x_bf16
    (first, count), up = span, 2 * shape.inner
    norm_rows(shape, w, at.after, count, x, h)
    products(
        h, np.int64(0), shape.hidden, w.matrices, at.up,
        s.wide, first * up, up, count, part, x_bf16,
    )  # fmt: skip
    # No barrier is needed: a thread gates the blocks that it has multiplied, and a block has both
    # gate and up of its units.
    apply_gates(shape, w, at, span, s, part)
    stage = barrier_wait(s.arrived, part[1], stage)
    products(
        s.active, first * shape.inner, shape.inner, w.matrices, at.down,
        s.back, first * at.back, at.back, count, part, x_bf16,
    )  # fmt: skip
    return barrier_wait(s.arrived, part[1], stage)


@inline
def embed(shape, w, member, tokens, x):
    """x = embeddings of the tokens of a member (a model of the stack)."""
    for t in range(tokens.shape[0]):
        # `embedding` (members, V, hidden), flat.
        token = member * shape.vocabulary + tokens[t]
        row = stretch(w.embedding, token * shape.hidden, shape.hidden)
        for i in range(shape.hidden):
            x[t * shape.hidden + i] = as_float32(row[i])


@inline
def begin_residual(shape, w, inputs, member, span, s, x, steps, w_at, v_at):
    """x = a member's embeddings in the first call of a pass. In later calls with one half of a
    layer: x += the product that the previous call left in `s.back`."""
    zero = np.int64(0)
    if steps[0] == 0 and steps[2] != GATED_HALF:
        embed(shape, w, member, stretch(inputs.tokens, span[0], span[1]), x)
    elif steps[2] == GATED_HALF:
        at = layout(shape, w_at, v_at)
        add_residual_rows(shape, w, at.out_bias, at, span, s, x)
    elif steps[2] == ATTENTION_HALF:
        # The previous call ended with the MLP of the previous layer. That layer's vectors begin one
        # layer's length earlier; the length is `v_end` of a layout at 0.
        at = layout(shape, w_at, v_at - layout(shape, zero, zero).v_end)
        add_residual_rows(shape, w, at.down_bias, at, span, s, x)


@inline
def run_layers(shape, w, inputs, span, s, store, views, workspace, part, steps, w_at, v_at, stage):
    """The layers of `steps` for one member's tokens; returns the offsets after these layers, and
    the barrier's stage. `views`: the slots that tokens attend to in layers with full attention, and
    in layers with a window."""
    half = steps[2]
    for layer in range(steps[0], min(steps[1], shape.layers)):
        at, rows = layout(shape, w_at, v_at), layer * store[2][0]
        seen = views[1] if w.windowed[layer] else views[0]
        if half != GATED_HALF:
            stage = attention_half(
                shape, w, at, inputs, span, s, rows, store, seen, workspace, part, stage
            )
        if half == WHOLE_LAYERS:
            add_residual_rows(shape, w, at.out_bias, at, span, s, workspace.x)
        if half != ATTENTION_HALF:
            stage = gated_half(shape, w, at, span, s, workspace, part, stage)
        if half == WHOLE_LAYERS:
            add_residual_rows(shape, w, at.down_bias, at, span, s, workspace.x)
        w_at, v_at = at.w_end, at.v_end
    return w_at, v_at, stage


@inline
def run_head(shape, w, inputs, span, logits, begin, workspace, part, w_at, v_at):
    """One member's rows of `logits`, from row `begin` on; returns the row after them."""
    hidden, end = shape.hidden, span[0] + span[1]
    norm = stretch(w.vectors, v_at, hidden)
    # `logits_indices` is ascending, and tokens are grouped by member: from `begin` on the indices
    # are this member's.
    row = begin
    while row < inputs.logits_indices.shape[0] and inputs.logits_indices[row] < end:
        x = stretch(workspace.x, (inputs.logits_indices[row] - span[0]) * hidden, hidden)
        rms_norm(x, norm, w.eps, stretch(workspace.h, (row - begin) * hidden, hidden))
        row += 1
    products(
        workspace.h, np.int64(0), hidden, w.matrices, w_at,
        logits, begin * shape.outputs, shape.outputs, row - begin, part, workspace.x_bf16,
    )  # fmt: skip
    return row


@inline
def run_members(shape, w, inputs, store, s, logits, steps, workspace, part):
    """See `run` below."""
    n = inputs.tokens.shape[0]
    extent = inputs.full.shape[0] // n
    # The slots are listed once for all layers of a call, but in every thread, which saves a
    # barrier.
    all_seen = near_seen = list_slots(inputs.full, n, extent, workspace.full)
    if inputs.near.shape[0]:
        near_seen = list_slots(inputs.near, n, extent, workspace.near)
    views = (all_seen, near_seen)
    # Always int64: numba would compile every callee again for another type.
    zero = np.int64(0)
    stage, num_outputs, w_at = zero, zero, zero
    # `w.matrices` begins with the matrices of the first step, `w.vectors` with the vectors of layer
    # 0.
    v_at = steps[0] * layout(shape, zero, zero).v_end
    for m in range(shape.members):
        span = (inputs.first[m], inputs.first[m + 1] - inputs.first[m])
        begin_residual(shape, w, inputs, m, span, s, workspace.x, steps, w_at, v_at)
        w_at, v_at, stage = run_layers(
            shape, w, inputs, span, s, store, views, workspace, part, steps, w_at, v_at, stage
        )
        if steps[1] > shape.layers:
            num_outputs = run_head(
                shape, w, inputs, span, logits, num_outputs, workspace, part, w_at, v_at
            )
            w_at, v_at = w_at + shape.hidden * shape.outputs, v_at + shape.hidden
    # Logits are complete before any thread returns.
    barrier_wait(s.arrived, part[1], stage)


@cache
def kernel() -> Callable[..., None]:
    """The compiled pass; see `run` below."""
    compiled_kernel: Callable[..., None] = _compile_kernel(source_hash_of(Path(__file__).parent))
    return compiled_kernel


def source_hash_of(folder: Path) -> int:
    """A hash of all sources in a folder, for a cached function to close over. numba's disk cache
    checks that function's file and the values that it closes over, but no other file."""
    return zlib.crc32(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py"))))


def _compile_kernel(source_hash: int) -> Any:
    @cached_entry
    def run(shape, w, inputs, store, s, logits, steps, workspace, part):
        """One thread's part of a pass; `part`: its index and the number of threads. `shape`:
        ModelSizes; `w`: PackedWeights; `s`: SharedBuffers; `workspace`: this thread's Workspace.
        `store`: keys and values (layers, rows, heads, slots, size), to which new keys and values
        are added, and (rows, slots). `logits` (logits_indices, outputs) is the result.

        `steps`: (first, end, half). The steps are the layers, then the head. A pass of one model
        may be several calls over successive steps: `w.matrices` then begins with the matrices of
        the call's first step, and the residual stream stays in the workspace. With ATTENTION_HALF
        and GATED_HALF a call ends with that half's product in `s.back`; the caller adds the
        products of the other ranks to `s.back`, and the next call begins by adding `s.back` to the
        residual stream. The head's call is then an ATTENTION_HALF."""
        _ = source_hash
        run_members(shape, w, inputs, store, s, logits, steps, workspace, part)

    return run
