"""Texts as flat arrays, and where a text's end has occurred in them before.

Chains of equal hashes, as in LZ77 compressors: each position knows the last one before it whose
tokens have the same hash. Constant memory, since texts lie in a ring and the oldest tokens are
overwritten; and a match is as long as it is, since candidates are compared token by token. A
suffix automaton would count all occurrences, not the latest WALK only, but takes ten times the
memory for a token and cannot forget the oldest ones.

Plain loops over arrays: compiled by numba where it is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.drafters.compiling import jit

__all__ = [
    "LONGEST_MATCH",
    "MATCH_CLASSES",
    "NOTHING",
    "SEPARATOR",
    "WALK",
    "TextIndex",
    "add_tokens",
    "find_tree",
    "likeliest_nodes",
    "match_class",
    "new_index",
]

# Tokens that are hashed together; looked for in this order.
ORDERS = (3, 1)
# Matches are compared up to this length, and so many latest candidates of an order.
LONGEST_MATCH = 32
WALK = 64
# Between two texts: equals no token.
SEPARATOR = -1
BUCKETS = 1 << 15
FACTOR, PRIME = 8191, 2147483647
# Nodes less probable than this are left out.
MIN_NODE_PROBABILITY = 0.01
NOTHING = (0, 0)


class TextIndex(NamedTuple):
    """A ring of token ids (capacity). `previous` (orders, capacity): the last position before it
    with the same hash, `heads` (orders, buckets) the latest position of a hash; -1 is none.
    `written` (1): tokens so far, which is the next position."""

    tokens: np.ndarray
    previous: np.ndarray
    heads: np.ndarray
    written: np.ndarray


def new_index(capacity: int, buckets: int = BUCKETS) -> TextIndex:
    """`buckets`: a power of two."""
    return TextIndex(
        np.full(capacity, SEPARATOR, np.int64),
        np.full((len(ORDERS), capacity), -1, np.int64),
        np.full((len(ORDERS), buckets), -1, np.int64),
        np.zeros(1, np.int64),
    )


@jit
def _hash_of(tokens: np.ndarray, last: int, count: int) -> int:
    """Of the `count` tokens of a ring that end at the position `last`."""
    code = 0
    for back in range(count):
        # SEPARATOR counts as a token of its own.
        code = (code * FACTOR + tokens[(last - back) % tokens.shape[0]] - SEPARATOR + 1) % PRIME
    return code


@jit
def add_tokens(index: TextIndex, token_ids: np.ndarray) -> None:
    """Writes tokens behind the last ones."""
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
    """Appends the latest positions behind which `tail` occurs, as `ends` and the `lengths` of the
    matches, at `found`; returns the new number. `tail` is the end of a text; `skipped`: positions
    from the first up to the second are left out."""
    capacity, mask, count = index.tokens.shape[0], index.heads.shape[1] - 1, index.written[0]
    size, before = tail.shape[0], found
    for order in range(len(ORDERS)):
        if size < ORDERS[order]:
            continue
        at = index.heads[order, _hash_of(tail, size - 1, ORDERS[order]) & mask]
        for _ in range(WALK):
            if at < 0 or at < count - capacity or found == ends.shape[0]:
                break
            length = 0
            while (
                length < min(LONGEST_MATCH, size)
                and at - length >= max(0, count - capacity)
                and index.tokens[(at - length) % capacity] == tail[size - 1 - length]
            ):
                length += 1
            # The text's own end is no occurrence that says how it goes on.
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
    """The tree of what followed earlier occurrences of `tail`, in `own` (the index of the text
    itself, which `tail` ends) and `earlier` ones, there but for the positions `skipped`.

    A match counts as `weights[its length]`. Fills `nodes` (rows of token, parent, weight), at most
    as many as it has rows; returns their number, the longest match, and the sum of weights.
    `matches` (2, most) is scratch.
    """
    ends, lengths = matches[0], matches[1]
    mine = _find_matches(own, tail, NOTHING, ends, lengths, 0)
    found = _find_matches(earlier, tail, skipped, ends, lengths, mine)
    count, longest, total = 0, 0, 0.0
    for match in range(found):
        longest = max(longest, lengths[match])
    for match in range(found):
        index = own if match < mine else earlier
        capacity, last = index.tokens.shape[0], index.written[0]
        weight = weights[lengths[match]]
        total += weight
        parent, first = -1, ends[match] + 1
        for step in range(depth):
            at = first + step
            if match < mine:
                # Behind the text's end it is taken to be periodic.
                at = first + step % (last - first)
            elif at >= last or index.tokens[at % capacity] == SEPARATOR:
                break
            token = index.tokens[at % capacity]
            node = -1
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
    """Match lengths 0, 1, 2, 3, 4, 5-8, 9-16, 17 and more."""
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
    whole: np.ndarray,
    real: np.ndarray,
    found: np.ndarray,
) -> int:
    """The likeliest nodes of a tree, parents first, at most as many as `found` has rows.

    A node's score is `rates[class of the match that its parent ends]` times its share of its
    parent's weight. Behind a token of `ends` nothing follows; `chain`: at most one child each.
    Fills rows of token, parent, score, rank, match, share; returns their number. `whole`
    (3, nodes + 1) and `real` (2, nodes) are scratch.
    """
    depths, places, children = whole[0], whole[1], whole[2]
    chances, scores = real[0], real[1]
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
    while size < found.shape[0]:
        best = -1
        for node in range(count):
            parent = int(nodes[node, 1])
            if places[node] >= 0 or chances[node] < MIN_NODE_PROBABILITY:
                continue
            if (parent >= 0 and places[parent] < 0) or (chain and children[parent + 1]):
                continue
            if best < 0 or chances[node] > chances[best]:
                best = node
        if best < 0:
            break
        parent = int(nodes[best, 1])
        found[size, 0] = nodes[best, 0]
        found[size, 1] = places[parent] if parent >= 0 else -1
        found[size, 2] = scores[best]
        found[size, 3] = children[parent + 1]
        found[size, 4] = match + depths[best]
        found[size, 5] = nodes[best, 2] / (nodes[parent, 2] if parent >= 0 else total)
        children[parent + 1] += 1
        places[best] = size
        size += 1
    return size
