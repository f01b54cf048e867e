"""Texts as flat arrays, and the search for earlier occurrences of a text's end.

Hash chains, as in LZ77 compressors: each position links to the latest earlier position in its hash
bucket.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.drafters.compiling import jit

__all__ = [
    "LONGEST_MATCH",
    "MATCH_CLASSES",
    "NO_POSITIONS",
    "SEPARATOR",
    "MAX_CANDIDATES",
    "TextIndex",
    "add_tokens",
    "find_tree",
    "likeliest_nodes",
    "match_class",
    "new_index",
]

# Lengths of the n-grams that are hashed; the second length is searched only if the first has no
# match.
ORDERS = (3, 1)
LONGEST_MATCH = 32
"""The most tokens of a match that are compared."""
MAX_CANDIDATES = 64
"""The most positions of one hash that are compared, the latest first."""
SEPARATOR = -1
"""Separates two texts; no token has this id."""
BUCKETS = 1 << 15
# A polynomial hash modulo 2^31 - 1: a product with FACTOR, 2^13 - 1, fits int64.
FACTOR, PRIME = 8191, 2147483647
# Nodes less probable than this are left out.
MIN_NODE_PROBABILITY = 0.01
NO_POSITIONS = (0, 0)


class TextIndex(NamedTuple):
    """`tokens` (capacity): a ring of token ids. `previous` (len(ORDERS), capacity): for each
    position, the latest earlier position in the same hash bucket, or -1. `heads` (len(ORDERS),
    buckets): the latest position of each bucket, or -1. `written` (1): the number of tokens added
    so far, which is the next position."""

    tokens: np.ndarray
    previous: np.ndarray
    heads: np.ndarray
    written: np.ndarray


def new_index(capacity: int, buckets: int = BUCKETS) -> TextIndex:
    """An empty index of the last `capacity` tokens. `buckets`: a power of two."""
    return TextIndex(
        np.full(capacity, SEPARATOR, np.int64),
        np.full((len(ORDERS), capacity), -1, np.int64),
        np.full((len(ORDERS), buckets), -1, np.int64),
        np.zeros(1, np.int64),
    )


@jit
def _hash_of(tokens: np.ndarray, last: int, count: int) -> int:
    """The hash of the `count` tokens of a ring that end at the position `last`."""
    code = 0
    for back in range(count):
        # Token t counts as t + 2 in the hash, and SEPARATOR as 1.
        code = (code * FACTOR + tokens[(last - back) % tokens.shape[0]] - SEPARATOR + 1) % PRIME
    return code


@jit
def add_tokens(index: TextIndex, token_ids: np.ndarray) -> None:
    """Appends tokens; once the ring is full, the oldest tokens are overwritten."""
    capacity, mask = index.tokens.shape[0], index.heads.shape[1] - 1
    for token in token_ids:
        at = index.written[0]
        index.tokens[at % capacity] = token
        for order in range(len(ORDERS)):
            if at + 1 < ORDERS[order]:
                continue
            bucket = _hash_of(index.tokens, at, ORDERS[order]) & mask
            index.previous[order, at % capacity] = index.heads[order, bucket]
            index.heads[order, bucket] = at
        index.written[0] = at + 1


@jit
def _find_matches(
    index: TextIndex,
    tail: np.ndarray,
    skipped: tuple[int, int],
    ends: np.ndarray,
    lengths: np.ndarray,
    found: int,
) -> int:
    """Finds the latest positions at which the end of `tail`, a text's last tokens, occurs. From
    index `found` on, writes the position of each match's last token into `ends` and the match's
    length into `lengths`. Returns the number of matches, including the first `found`. Matches that
    end at the positions [skipped[0], skipped[1]) are left out."""
    capacity, mask, count = index.tokens.shape[0], index.heads.shape[1] - 1, index.written[0]
    size, before = tail.shape[0], found
    for order in range(len(ORDERS)):
        if size < ORDERS[order]:
            continue
        at = index.heads[order, _hash_of(tail, size - 1, ORDERS[order]) & mask]
        for _ in range(MAX_CANDIDATES):
            # Positions before `count - capacity` are overwritten.
            if at < 0 or at < count - capacity or found == ends.shape[0]:
                break
            # Compared backwards from the match's end: a bucket may also hold other n-grams.
            length = 0
            while (
                length < min(LONGEST_MATCH, size)
                and at - length >= max(0, count - capacity)
                and index.tokens[(at - length) % capacity] == tail[size - 1 - length]
            ):
                length += 1
            # A match that ends at the last token written has no continuation.
            left_out = at + 1 >= count or skipped[0] <= at < skipped[1]
            if length >= ORDERS[order] and not left_out:
                ends[found], lengths[found] = at, length
                found += 1
            at = index.previous[order, at % capacity]
        if found > before:
            break
    return found


@jit
def find_tree(
    own: TextIndex,
    earlier: TextIndex,
    tail: np.ndarray,
    skipped: tuple[int, int],
    depth: int,
    weights: np.ndarray,
    matches: np.ndarray,
    nodes: np.ndarray,
) -> tuple[int, int, float]:
    """Builds a tree of at most `depth` levels: the tokens that followed occurrences of the end of
    `tail` in the run's `own` text and in `earlier` texts. Matches in `earlier` that end at the
    positions [skipped[0], skipped[1]) are left out.

    A match adds `weights[its length]` to the weight of each node on its path. Fills `nodes` (rows
    of token, parent, weight) until it is full. Returns the number of nodes, the length of the
    longest match, and the sum of the matches' weights. `matches` (2, n) is scratch; at most n
    matches are used.
    """
    ends, lengths = matches[0], matches[1]
    num_own = _find_matches(own, tail, NO_POSITIONS, ends, lengths, 0)
    num_matches = _find_matches(earlier, tail, skipped, ends, lengths, num_own)
    count, longest, total = 0, 0, 0.0
    for match in range(num_matches):
        longest = max(longest, lengths[match])
    for match in range(num_matches):
        index = own if match < num_own else earlier
        capacity, last = index.tokens.shape[0], index.written[0]
        weight = weights[lengths[match]]
        total += weight
        parent, first = -1, ends[match] + 1
        for step in range(depth):
            at = first + step
            if match < num_own:
                # Near the text's end, the tokens after the match are assumed to repeat.
                at = first + step % (last - first)
            elif at >= last or index.tokens[at % capacity] == SEPARATOR:
                break
            token = index.tokens[at % capacity]
            node = -1
            # A child's number is higher than its parent's.
            for other in range(parent + 1, count):
                if nodes[other, 1] == parent and nodes[other, 0] == token:
                    node = other
                    break
            if node < 0:
                if count == nodes.shape[0]:
                    break
                node, count = count, count + 1
                nodes[node, 0], nodes[node, 1], nodes[node, 2] = token, parent, 0.0
            nodes[node, 2] += weight
            parent = node
    return count, longest, total


MATCH_CLASSES = 8


@jit
def match_class(length: int) -> int:
    """The class of a match length: 0, 1, 2, 3, 4, 5-8, 9-16, 17 and more tokens."""
    if length <= 4:
        return length
    return 5 if length <= 8 else 6 if length <= 16 else 7


@jit
def likeliest_nodes(
    nodes: np.ndarray,
    count: int,
    total: float,
    match: int,
    rates: np.ndarray,
    ends: np.ndarray,
    chain: bool,
    int_scratch: np.ndarray,
    float_scratch: np.ndarray,
    rows: np.ndarray,
) -> int:
    """Selects the likeliest of the `count` nodes that `find_tree` found, parents first. `total` and
    `match`: the sum of weights and the longest match's length, from `find_tree`.

    A node's score is its share of its parent's weight, times `rates[match_class(n)]`, where n is
    the length of the match that ends with the parent. A node whose token is in `ends` gets no
    children; with `chain` every node gets at most one child. Fills `rows` with (token, parent,
    score, rank, n, share) until it is full; returns the number of rows filled. `int_scratch`
    (3, nodes + 1) and `float_scratch` (2, nodes) are scratch.
    """
    depths, places, children = int_scratch[0], int_scratch[1], int_scratch[2]
    chances, scores = float_scratch[0], float_scratch[1]
    # `children` is indexed by parent + 1: the root is parent -1.
    children[0] = 0
    for node in range(count):
        depths[node], places[node], children[node + 1] = 0, -1, 0
        parent = int(nodes[node, 1])
        above, chance = total, 1.0
        if parent >= 0:
            depths[node] = depths[parent] + 1
            above, chance = nodes[parent, 2], chances[parent]
            for end in ends:
                if nodes[parent, 0] == end:
                    chance = 0.0
        rate = rates[match_class(match + depths[node])]
        scores[node] = rate * nodes[node, 2] / above
        chances[node] = chance * scores[node]
    size = 0
    while size < rows.shape[0]:
        best = -1
        for node in range(count):
            parent = int(nodes[node, 1])
            # The descendants of an improbable node are improbable too.
            if places[node] >= 0 or chances[node] < MIN_NODE_PROBABILITY:
                continue
            if (parent >= 0 and places[parent] < 0) or (chain and children[parent + 1]):
                continue
            if best < 0 or chances[node] > chances[best]:
                best = node
        if best < 0:
            break
        parent = int(nodes[best, 1])
        rows[size, 0] = nodes[best, 0]
        rows[size, 1] = places[parent] if parent >= 0 else -1
        rows[size, 2] = scores[best]
        rows[size, 3] = children[parent + 1]
        rows[size, 4] = match + depths[best]
        rows[size, 5] = nodes[best, 2] / (nodes[parent, 2] if parent >= 0 else total)
        children[parent + 1] += 1
        places[best] = size
        size += 1
    return size
