"""Argument structs of the native kernels: named tuples of arrays and numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "BLOCK",
    "HALF_BLOCK",
    "BatchInputs",
    "DraftOutputs",
    "LayerOffsets",
    "Workspace",
    "ProductArgs",
    "SharedBuffers",
    "ModelSizes",
    "DraftBatch",
    "PackedWeights",
]

BLOCK = 32
"""Width of a block of weights: the outputs that are contiguous in memory for one input. This width
is two vectors of sixteen float32 or four of eight. Blocks of 64 were no faster."""
HALF_BLOCK = 16
"""Gate and up outputs alternate by half blocks: a block has the gates and ups of 16 MLP units."""


class ModelSizes(NamedTuple):
    """Sizes of one model, or of `members` models of one shape. `size`: head size; `inner`: MLP
    units; `outputs`: outputs of the LM head; `normed_heads`: whether query and key heads have
    norms.

    A member's matrices are stored one after another: for each layer QKV, attention output, gate and
    up interleaved, down; then the LM head. Its vectors are stored likewise: for each layer both
    norms, the norms of query and key heads, the biases of the four matrices; then the last norm.
    Outputs are padded to whole blocks, MLP units to half blocks.
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


class PackedWeights(NamedTuple):
    """A model's weights, each a flat array: `embedding` (members, vocabulary, hidden); `matrices`
    in one of the formats of `weight_formats`; `vectors`, and `cos` and `sin` (positions, size), as
    float32, the first half of each row of sines negated. `windowed` (layers,): whether a layer has
    a sliding window. `eps`: of the norms."""

    # `embedding`: float32, or bfloat16 in uint16. Matrices and biases are padded with 0: padded
    # outputs are 0.
    embedding: Any
    matrices: Any
    vectors: Any
    cos: Any
    sin: Any
    windowed: Any
    eps: Any


class LayerOffsets(NamedTuple):
    """Offsets of one layer's matrices, from `w` (QKV) to `w_end`, and of its vectors, from `norm`
    (the norm before attention) to `v_end`; `after`: the norm between attention and MLP. Lengths of
    rows: `width` of attended values, `qkv` of QKV outputs, `back` of the outputs of attention and
    MLP; `qkv` and `back` are padded to blocks."""

    width: int
    qkv: int
    back: int
    w: int
    out: int
    up: int
    down: int
    w_end: int
    norm: int
    after: int
    q_norm: int
    k_norm: int
    qkv_bias: int
    out_bias: int
    up_bias: int
    down_bias: int
    v_end: int


class BatchInputs(NamedTuple):
    """The n tokens of one pass, grouped by member.

    `tokens`, `positions` (n,); `rows`, `slots` (n,): each token's place in the KV arena; `first`
    (members + 1,): where each member's tokens begin; `full`, `near` (n, extent), flat: masks of the
    slots that each token attends to, in layers with full attention and in layers with a sliding
    window; `near` is empty if no layer has a window; `logits_indices`: ascending indices of the
    tokens whose logits are computed.
    """

    # int64, but `full` and `near` bool. numba compiles the kernels again for any other element
    # type, here and below.
    tokens: Any
    positions: Any
    rows: Any
    slots: Any
    first: Any
    full: Any
    near: Any
    logits_indices: Any


class SharedBuffers(NamedTuple):
    """Activations shared by a pass's threads, flat: `projected` (n, qkv), `attended` (n, width),
    `back` (n, back), `wide` (n, 2 inner): gate and up outputs, `active` (n, inner); see
    LayerOffsets. `arrived` (1,): the barrier's count."""

    # float32, `arrived` int64.
    projected: Any
    attended: Any
    back: Any
    wide: Any
    active: Any
    arrived: Any


class Workspace(NamedTuple):
    """One thread's buffers, for up to n tokens that attend to `extent` slots. `x`, `h` (n, hidden):
    residual stream and normed input; `x_bf16`: activations as bfloat16, aligned to cache lines;
    `head` (size,), `q` (t, size), `bases` (t,), `weights` (t, extent + lanes of a vector):
    attention of one head for up to t = `layers.MAX_HEAD_TOKENS` tokens (`bases`: see
    `elementwise.attend`); `full`, `near`: (slots (n, extent), counts (n,)) of
    `elementwise.list_slots`."""

    # float32, but `x_bf16` uint16, `bases` and counts int64, slots int32.
    x: Any
    h: Any
    x_bf16: Any
    head: Any
    q: Any
    bases: Any
    weights: Any
    full: Any
    near: Any


class ProductArgs(NamedTuple):
    """One step of y = x w: some rows of x times `inputs` rows of one block of w. `x`, `w`, `y`:
    offsets; `x_step`, `y_step`: row strides; `first`: 1 to overwrite y, 0 to add to y; `ahead`,
    `pace`: offset of the weights to prefetch, and their number per input; `tile`: tokens that share
    an AMX tile. Offsets and strides count elements: in some formats of `weight_formats` an element
    of `w` or `x` holds several numbers."""

    x: int
    x_step: int
    w: int
    y: int
    y_step: int
    inputs: int
    first: int
    ahead: int
    pace: int
    tile: int


class DraftBatch(NamedTuple):
    """n draft requests, grouped by member.

    `requests` (n, 6): member; row of the KV arena; length of the text; number of its tokens in the
    KV cache; offset in `text` of the remaining tokens; size of the vocabulary to propose from.
    `widths` (n, levels): children of each node by level, 0 past the draft's depth. `ends_at` (n +
    1,): where each draft's end-of-text tokens begin in `ends`; nodes with these tokens get no
    children.

    Coupled drafts: `noise_at` (n, levels): offset of a level's Gumbel noise in `noise`, -1 for
    other drafts; `temperature` (n,): the sampling temperature.

    `calibration_temperature` (n,): a score is the softmax of the utilities
    (`drafting.compute_utilities`) divided by this temperature. `min_score` (n,): the least score of
    a node that may have children. `step_scores` (n, levels): the least total path score of a
    level's parents, 0 to draft every level."""

    # int64.
    requests: Any
    text: Any
    widths: Any
    ends: Any
    ends_at: Any
    # `noise` is float64, `noise_at` int64.
    noise: Any
    noise_at: Any
    # float32, as torch divides logits.
    temperature: Any
    calibration_temperature: Any
    # float64.
    min_score: Any
    step_scores: Any


class DraftOutputs(NamedTuple):
    """n drafts of at most `most` nodes, filled level by level. `nodes` (n, most, 3): token,
    parent, rank among siblings. `fed` (n, most): the nodes that were fed, in order; `rows` (n, most
    + 1): the row of logits of the root and of each fed node. `counts` (n, 3): nodes, fed nodes,
    passes.

    State between passes: `places` (each fed node's index in `fed`), `scores`, `path_scores` (n,
    most) by node; `frontier` (n, most) and its size `width` (n,): nodes to feed next; before level
    0 `width` is the number of unread tokens. `ids`, `values`: the best tokens after one node, and
    their utilities. `utilities`, flat: (rows of logits, outputs) if a draft is coupled, else of the
    last row only. `moments` (rows of logits, 3): the utilities' mean and variance under the scores,
    and the utilities' sum, NaN if one utility is NaN."""

    # Tokens, indices and counts are int64; scores, utilities and moments float64.
    nodes: Any
    fed: Any
    rows: Any
    counts: Any
    places: Any
    scores: Any
    path_scores: Any
    frontier: Any
    width: Any
    ids: Any
    values: Any
    utilities: Any
    moments: Any
