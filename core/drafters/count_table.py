"""Counts of the LLM's next tokens after a context of one to three tokens: a hash table.

A row has the likeliest next tokens of one context, its candidates. Candidates of shorter contexts
are copied into a row when it is written (compare MicroRec, arXiv 2010.05894, section 3.3). A
candidate's origin is the length of the context after which it was counted.

Memory is constant: if all rows of a hash's bucket are in use, one row is overwritten.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.drafters.compiling import jit

__all__ = [
    "CANDIDATES",
    "LONGEST_CONTEXT",
    "ONCE",
    "add_text",
    "count_tokens",
    "grow_tree",
    "insert_rows",
    "new_table",
    "own_weights",
]

LONGEST_CONTEXT = 3
# CANDIDATES: the number of candidates of a row. A row is 16 numbers (int32): the candidates' token
# ids; each candidate's weight times 4, plus its origin; the hash of the row's context; the
# context's length, 0 in an empty row.
CANDIDATES = 7
_WEIGHT, _HASH, _LENGTH = CANDIDATES, 2 * CANDIDATES, 2 * CANDIDATES + 1
_ROW = 2 * CANDIDATES + 2
# _WAYS: rows per bucket. _FADING: when `_clear` empties a used row, the bucket's other rows lose
# 1 / 2**_FADING of their weights.
_WAYS, _FADING = 4, 4
# ONCE: weight of one occurrence. A row's weights are halved when one of them exceeds _HEAVIEST.
ONCE, _HEAVIEST = 64, 1 << 24
# Weight of the prior from shorter contexts, in occurrences.
_PRIOR_TOKENS = 3
# A polynomial hash modulo 2^31 - 1: products fit int64, hashes fit a row's int32.
_FACTOR, _PRIME = 1103515245, 2147483647
# Nodes less probable than this are left out.
_LEAST = 0.005


def new_table(rows: int) -> np.ndarray:
    """An empty table (rows, 16) int32; `rows` is a multiple of four."""
    return np.zeros((rows, _ROW), np.int32)


@jit
def _hash_of(tokens: np.ndarray, end: int, length: int) -> int:
    """The hash of the `length` tokens before `end`."""
    code = length
    for back in range(1, length + 1):
        code = (code * _FACTOR + tokens[end - back] + 1) % _PRIME
    return int(code)


@jit
def _find(table: np.ndarray, code: int, length: int) -> int:
    """The row of a context; -1: there is none."""
    first = code % (table.shape[0] // _WAYS) * _WAYS
    for row in range(first, first + _WAYS):
        # Contexts of equal hash and length share counts.
        if table[row, _LENGTH] == length and table[row, _HASH] == code:
            return row
    return -1


@jit
def _weight(table: np.ndarray, row: int) -> int:
    total = 0
    for place in range(CANDIDATES):
        total += table[row, _WEIGHT + place] >> 2
    return int(total)


@jit
def _row_to_overwrite(table: np.ndarray, code: int) -> int:
    """The row that a new context may overwrite: an empty row of its bucket, else the lightest row
    of positive weight, else the first row."""
    first = code % (table.shape[0] // _WAYS) * _WAYS
    best, least = first, 0
    for row in range(first, first + _WAYS):
        if table[row, _LENGTH] == 0:
            return int(row)
        weight = _weight(table, row)
        # A row of weight 0 may have just been made for a shorter context at the same position.
        if weight > 0 and (least == 0 or weight < least):
            best, least = row, weight
    return int(best)


@jit
def _clear(table: np.ndarray, row: int) -> None:
    """Empties a row. If the row was in use, the other rows of its bucket lose weight: rows that are
    no longer counted are overwritten eventually."""
    first = row // _WAYS * _WAYS
    if table[row, _LENGTH] > 0:
        for other in range(first, first + _WAYS):
            for place in range(CANDIDATES):
                entry = table[other, _WEIGHT + place]
                if entry:
                    faded = (entry >> 2) - (entry >> 2 >> _FADING)
                    table[other, _WEIGHT + place] = faded << 2 | entry & 3
    table[row] = 0


@jit
def _inherit(table: np.ndarray, row: int, shorter: int) -> None:
    """Gives a row, as its prior, those candidates of a shorter context that the row lacks. A
    candidate must be heavier than the row's lightest candidate, which it replaces."""
    total = max(1, _weight(table, shorter))
    for place in range(CANDIDATES):
        entry = table[shorter, _WEIGHT + place]
        weight = (entry >> 2) * _PRIOR_TOKENS * ONCE // total
        if weight == 0:
            continue
        token, least, has = table[shorter, place], 0, False
        for other in range(CANDIDATES):
            if table[row, _WEIGHT + other] and table[row, other] == token:
                has = True
            if table[row, _WEIGHT + other] < table[row, _WEIGHT + least]:
                least = other
        if not has and table[row, _WEIGHT + least] >> 2 < weight:
            table[row, least] = token
            table[row, _WEIGHT + least] = weight << 2 | entry & 3


@jit
def _count(table: np.ndarray, row: int, token: int, weight: int, length: int) -> None:
    """Counts `weight` for a token after a context of this length."""
    least = 0
    for place in range(CANDIDATES):
        entry = table[row, _WEIGHT + place]
        if entry and table[row, place] == token:
            weight += entry >> 2
            table[row, _WEIGHT + place] = weight << 2 | length
            if weight > _HEAVIEST:
                for other in range(CANDIDATES):
                    half = table[row, _WEIGHT + other]
                    table[row, _WEIGHT + other] = half >> 3 << 2 | half & 3
            return
        if entry >> 2 < table[row, _WEIGHT + least] >> 2:
            least = place
    entry = table[row, _WEIGHT + least]
    if entry >> 2 > weight:
        # A token that recurs replaces the lightest candidate eventually (Misra and Gries).
        table[row, _WEIGHT + least] = (entry >> 2) - weight << 2 | entry & 3
        return
    table[row, least] = token
    table[row, _WEIGHT + least] = weight << 2 | length


@jit
def count_tokens(
    table: np.ndarray, tokens: np.ndarray, first: int, ids: np.ndarray, weights: np.ndarray
) -> None:
    """At each position from `first` on, adds tokens `ids` (n, k) with `weights` (n, k) to the rows
    of the position's contexts."""
    for at in range(first, tokens.shape[0]):
        shorter = -1
        # Shorter contexts first: each row inherits from the row before.
        for length in range(1, min(LONGEST_CONTEXT, at) + 1):
            code = _hash_of(tokens, at, length)
            row = _find(table, code, length)
            if row < 0:
                row = _row_to_overwrite(table, code)
                _clear(table, row)
                table[row, _HASH], table[row, _LENGTH] = code, length
            if shorter >= 0:
                _inherit(table, row, shorter)
            shorter = row
        # In a second loop: otherwise a row would inherit a count that it also gets itself.
        for length in range(1, min(LONGEST_CONTEXT, at) + 1):
            row = _find(table, _hash_of(tokens, at, length), length)
            # The row of a longer context overwrote this row in the first loop.
            if row < 0:
                continue
            for place in range(ids.shape[1]):
                if weights[at - first, place] != 0:
                    _count(table, row, ids[at - first, place], weights[at - first, place], length)


def add_text(table: np.ndarray, tokens: np.ndarray, first: int) -> None:
    """Counts the `tokens` (n) int64 from `first` on."""
    ids = tokens[first:, None]
    count_tokens(table, tokens, first, ids, np.full(ids.shape, ONCE, np.int64))


@jit
def insert_rows(table: np.ndarray, rows: np.ndarray) -> None:
    """Adds another table's rows; the tables may differ in size. A row is left out if the row in
    its place, of the same context or of another, is heavier."""
    for at in range(rows.shape[0]):
        code, length = rows[at, _HASH], rows[at, _LENGTH]
        row = _find(table, code, length)
        is_new = row < 0
        if is_new:
            row = _row_to_overwrite(table, code)
        if table[row, _LENGTH] == 0 or _weight(table, row) <= _weight(rows, at):
            if is_new:
                _clear(table, row)
            for place in range(_ROW):
                table[row, place] = rows[at, place]


def own_weights(table: np.ndarray) -> np.ndarray:
    """For each row (rows,): the weight of the candidates that were counted after the row's own
    context, in occurrences."""
    entries = table[:, _WEIGHT:_HASH]
    own = (entries & 3) == table[:, _LENGTH, None]
    return np.asarray(((entries >> 2) * own).sum(1) / ONCE)


@jit
def _longest_context_row(
    table: np.ndarray, path: np.ndarray, end: int, longest: int
) -> tuple[int, int]:
    """The row of the longest context, of at most `longest` tokens, at the end of `path[:end]` (-1:
    none), and the number of look-ups."""
    num_lookups = 0
    for length in range(min(longest, end), 0, -1):
        num_lookups += 1
        row = _find(table, _hash_of(path, end, length), length)
        if row >= 0:
            return row, num_lookups
    return -1, num_lookups


class _Candidates(NamedTuple):
    """Scratch arrays (n,) of a draft. For each candidate: its token, the candidate above it (-1:
    the text's end), its depth, the length of the context after which it was counted; its place in
    the draft, `_WAITING` before it has one; the product of the scores down to it, and its score."""

    tokens: np.ndarray
    parents: np.ndarray
    depths: np.ndarray
    contexts: np.ndarray
    places: np.ndarray
    chances: np.ndarray
    scores: np.ndarray


_WAITING = -1


@jit
def _write_path(candidates: _Candidates, node: int, tail: np.ndarray, path: np.ndarray) -> int:
    """Writes `tail` and the tokens down to `node` to `path`; returns their number."""
    end = tail.shape[0]
    for i in range(end):
        path[i] = tail[i]
    if node >= 0:
        end += candidates.depths[node]
    at = node
    for place in range(end - 1, tail.shape[0] - 1, -1):
        path[place] = candidates.tokens[at]
        at = candidates.parents[at]
    return int(end)


@jit
def _add_row(
    candidates: _Candidates, count: int, node: int, table: np.ndarray, row: int, rates: np.ndarray
) -> int:
    """Adds a row's tokens as candidates after `node`; returns the number of all candidates. A
    token's score is its share of its row's weight, times `rates[context length]`."""
    depth, before = 1, 1.0
    if node >= 0:
        depth, before = candidates.depths[node] + 1, candidates.chances[node]
    total = _weight(table, row)
    for place in range(CANDIDATES):
        entry = table[row, _WEIGHT + place]
        length = entry & 3
        score = rates[length] * (entry >> 2) / total if entry >> 2 else 0.0
        if score == 0.0 or before * score < _LEAST or count == candidates.tokens.shape[0]:
            continue
        candidates.tokens[count], candidates.parents[count] = table[row, place], node
        candidates.depths[count], candidates.contexts[count] = depth, length
        candidates.chances[count], candidates.scores[count] = before * score, score
        candidates.places[count] = _WAITING
        count += 1
    return count


@jit
def _likeliest(candidates: _Candidates, count: int) -> int:
    """The likeliest candidate that has no place; -1: none is left."""
    best = -1
    for node in range(count):
        if candidates.places[node] == _WAITING and (
            best < 0 or candidates.chances[node] > candidates.chances[best]
        ):
            best = node
    return best


@jit
def _rank(candidates: _Candidates, count: int, node: int) -> int:
    """How many siblings of `node` have a place."""
    rank = 0
    for other in range(count):
        if (
            candidates.parents[other] == candidates.parents[node]
            and candidates.places[other] != _WAITING
        ):
            rank += 1
    return rank


@jit
def _exclude_siblings(candidates: _Candidates, count: int, node: int, place: int) -> None:
    """Keeps the siblings of `node` out of the draft: they get a `place` that no node has."""
    for other in range(count):
        if other != node and candidates.parents[other] == candidates.parents[node]:
            candidates.places[other] = place


@jit
def _may_extend(candidates: _Candidates, node: int, depth: int, ends: np.ndarray) -> bool:
    if node < 0:
        return depth > 0
    for end in ends:
        if candidates.tokens[node] == end:
            return False
    return bool(candidates.depths[node] < depth)


@jit
def grow_tree(
    table: np.ndarray,
    tail: np.ndarray,
    depth: int,
    budget: int,
    chain: bool,
    ends: np.ndarray,
    rates: np.ndarray,
    numbers: np.ndarray,
    chances: np.ndarray,
    path: np.ndarray,
    nodes: np.ndarray,
) -> tuple[int, int]:
    """The likeliest nodes after `tail`, the last LONGEST_CONTEXT tokens of a text: at most `budget`
    nodes, at most `depth` deep, parents first, with `chain` one child each. A token of `ends` has
    no children.

    Fills `nodes` with rows of token, parent, score, rank among siblings, context length, share
    (score / `rates[context length]`). Returns the number of nodes and the number of look-ups.
    Scratch: `numbers` (5, n) int64 and `chances` (2, n) for n >= (budget + 1) x CANDIDATES; `path`,
    at least len(tail) + `depth` long.
    """
    candidates = _Candidates(
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], chances[0], chances[1]
    )
    size, count, num_lookups, node = 0, 0, 0, -1
    while size < budget:
        if _may_extend(candidates, node, depth, ends):
            # A candidate that was counted after n tokens ends a context of n + 1.
            longest = LONGEST_CONTEXT
            if node >= 0:
                longest = min(candidates.contexts[node] + 1, LONGEST_CONTEXT)
            end = _write_path(candidates, node, tail, path)
            row, rows_read = _longest_context_row(table, path, end, longest)
            num_lookups += rows_read
            if row >= 0:
                count = _add_row(candidates, count, node, table, row, rates)
        node = _likeliest(candidates, count)
        if node < 0:
            break
        parent = candidates.parents[node]
        nodes[size, 0], nodes[size, 1] = candidates.tokens[node], -1
        if parent >= 0:
            nodes[size, 1] = candidates.places[parent]
        nodes[size, 2], nodes[size, 3] = candidates.scores[node], _rank(candidates, count, node)
        nodes[size, 4] = candidates.contexts[node]
        nodes[size, 5] = candidates.scores[node] / rates[candidates.contexts[node]]
        if chain:
            _exclude_siblings(candidates, count, node, budget)
        candidates.places[node] = size
        size += 1
    return size, num_lookups
