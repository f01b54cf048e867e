"""What a compiled pass is told, as tuples of flat arrays and whole numbers, which is what numba
takes without looking at each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "BLOCK",
    "HALF_BLOCK",
    "Asked",
    "Grown",
    "Layer",
    "Own",
    "Product",
    "Scratch",
    "Shape",
    "Told",
    "Weights",
]

BLOCK = 32
"""Outputs of a matrix that lie beside one another in memory."""
HALF_BLOCK = 16


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
    `matrices` as float32, as its upper 16 bits, plain or woven, or as some of these (`kinds`);
    `vectors`, `cos` and `sin` (positions, size), the first half of the sines negative, as float32;
    `windowed` (layers,).
    """

    embedding: Any
    matrices: Any
    vectors: Any
    cos: Any
    sin: Any
    windowed: Any
    eps: Any


class Layer(NamedTuple):
    """Where a layer's parts begin: its matrices `w` to `w_end`, its vectors `norm` to `v_end`; and
    the sizes of what products put out: `width` of attention, `qkv` and `back`, padded."""

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


class Asked(NamedTuple):
    """What a pass looks at: n tokens, those of one member after those of another.

    `tokens`, `positions`, `rows`, `slots` (n,): where each lies in the arena; `first` (members + 1)
    where each member's begin; `full`, `near` (n, extent), flat: the slots each attends to, in
    layers that see everything and in those with a window; `wanted` (outputs,): whose logits are
    wanted.
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


class Own(NamedTuple):
    """What each worker has to itself, for at least n tokens that see so many slots: `x`, `h` (n,
    hidden); `halved`, the bfloat16 that weights in pairs and tiles multiply, from the begin of a
    line of the caches on; `head`, `q`, `bases`, `weights` for the tokens that look together;
    `full`, `near`: the slots that each sees, in order (n, extent), and how many they are."""

    x: Any
    h: Any
    halved: Any
    head: Any
    q: Any
    bases: Any
    weights: Any
    full: Any
    near: Any


class Product(NamedTuple):
    """Some rows of x times some inputs of one block: where in x, w and y that begins, and how far
    it is from a row of x or y to the next; how many inputs; whether these are the first, else the
    product is added to what stands in y; from where on further weights are fetched meanwhile, and
    how many of them with each input; how many tokens' rows share a tile, if there are tiles. All
    counted in elements, which in `kinds` hold several weights or inputs in pairs and tiles."""

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


class Told(NamedTuple):
    """What n drafts are to be, those of one member after those of another.

    `seats` (n, 6): the member; its row of the arena; how many tokens the text has, and how many of
    them the row has read; where in `text` begin those that it lacks; how many tokens it may
    propose. `widths` (n, levels): children of each node, level
    by level, 0 beyond the draft's depth. `ends_at` (n + 1) where in `ends` each draft's tokens
    begin behind which nothing is drafted.

    Coupled drafts: `noise_at` (n, levels) where in `noise` that of each level begins, else -1, and
    the temperature `warmth` (n,). `heat` (n,): the calibration, which makes scores of utilities.
    `least` (n,): the least score of a node that may have children. `step_scores` (n, levels):
    `scores` of `core.length.base.Limits`, 0 where every level is drafted.
    """

    seats: Any
    text: Any
    widths: Any
    ends: Any
    ends_at: Any
    noise: Any
    noise_at: Any
    warmth: Any
    heat: Any
    least: Any
    step_scores: Any


class Grown(NamedTuple):
    """What n drafts have become. `nodes` (n, most, 3): token, parent, rank among its siblings.
    `fed` (n, most): the nodes that were fed, in order; `rows` (n, most + 1): whose logits lie
    where, the root's first, then theirs. `counts` (n, 3): nodes, fed ones, passes.

    While they grow: `places`, `scores`, `chances` (n, most) of the nodes; `frontier` (n, most): who
    is fed next, and how many they are, `width` (n,), at first tokens of the text; `ids` and
    `values` of a choice. `utilities` by which children are chosen, flat: of each row of logits
    (rows, outputs) if a draft is coupled, else of the last. `moments` (rows, 3): by the scores that
    these make their mean and variance; and their sum, no number if one of them is none.
    """

    nodes: Any
    fed: Any
    rows: Any
    counts: Any
    places: Any
    scores: Any
    chances: Any
    frontier: Any
    width: Any
    ids: Any
    values: Any
    utilities: Any
    moments: Any
