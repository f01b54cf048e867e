"""Drafts of several models, from the text that they lack to the last level, as one call of machine
code: passes, choice of children, and whether another level is worth it.

Between two passes nothing is looked at from outside, which takes longer than a small model's pass.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from core.models.compiled.compiling import entry, exact, free, inlined, kept
from core.models.compiled.described import Asked, Scratch
from core.models.compiled.kernel import passed, stamp
from core.models.compiled.machine import clock
from core.models.compiled.parts import exp

__all__ = ["FED", "NODES", "PASSES", "drafts"]

# Columns of Told.seats, Drafted.nodes and Drafted.counts.
MEMBER, ROW, TOKENS, READ, LACKS, HIGHEST, CANDIDATES = range(7)
TOKEN, PARENT, RANK = range(3)
NODES, FED, PASSES = range(3)
A, B, GAIN, COST = range(4)
ROOT = -1
# As in `core.costs.acceptance`.
CLIP = 0.001
# A score further below the best than that is 0, in float32 and in float64.
FAR, FAR_COUPLED = 103.0, 745.0


@cache
def drafts(keep: bool) -> Callable[..., None]:
    """See `grown` below; `keep` as in `kernel`."""
    found: Callable[..., None] = _made(stamp(Path(__file__).parent), kept if keep else entry)
    return found


@inlined
def utility(logits, at, i, noise, noise_at, warmth):
    """What children are chosen by: the logit, or log q + G but for what all have in common."""
    if noise_at < 0:
        return np.float64(logits[at + i])
    return np.float64(logits[at + i] / warmth) + noise[noise_at + i]


@exact
def best(logits, at, count, noise, noise_at, warmth, wide, ids, values):
    """The largest `wide` of the utilities, largest first, the lowest id first among equals; how
    many there are."""
    found = 0
    for i in range(count):
        value = utility(logits, at, i, noise, noise_at, warmth)
        if found == wide and value <= values[found - 1]:
            continue
        found = min(found + 1, wide)
        j = found - 1
        while j > 0 and values[j - 1] < value:
            ids[j], values[j] = ids[j - 1], values[j - 1]
            j -= 1
        ids[j], values[j] = i, value
    return found


@free
def mass(logits, at, count, noise, noise_at, warmth, heat, most):
    """The sum of e^((utility - most) / heat)."""
    total = np.float32(0)
    for i in range(count):
        value = utility(logits, at, i, noise, noise_at, warmth)
        total += exp(np.float32(value - most) / heat)
    return total


@exact
def odds(chance, a, b):
    """See `core.costs.acceptance.Odds`."""
    inside = min(max(chance, CLIP), 1 - CLIP) if chance == chance else 0.5
    return 1 / (1 + np.exp(-a - b * np.log(inside / (1 - inside))))


@exact
def text_of(told, i, asked, t, extent):
    """Queries of the text that a seat lacks, from place t on; the place behind them."""
    seat = told.seats[i]
    for slot in range(seat[READ], seat[TOKENS]):
        token = told.text[seat[LACKS] + slot - seat[READ]]
        asked.tokens[t] = min(token, seat[HIGHEST])
        asked.positions[t] = asked.slots[t] = slot
        asked.rows[t] = seat[ROW]
        asked.full[t * extent : t * extent + slot + 1] = True
        t += 1
    return t


@exact
def frontier_of(told, i, level, width, frontier, state, asked, t, extent):
    """Queries of a seat's nodes that are fed next, from place t on; the place behind them."""
    nodes, fed, places, counts = state
    seat = told.seats[i]
    for f in range(width):
        node, place = frontier[i, f], counts[i, FED]
        fed[i, place], places[i, node] = node, place
        counts[i, FED] += 1
        asked.tokens[t] = min(nodes[i, node, TOKEN], seat[HIGHEST])
        asked.positions[t] = seat[TOKENS] - 1 + level
        asked.slots[t] = seat[TOKENS] + place
        asked.rows[t] = seat[ROW]
        asked.full[t * extent : t * extent + seat[TOKENS]] = True
        above = node
        while above != ROOT:
            asked.full[t * extent + seat[TOKENS] + places[i, above]] = True
            above = nodes[i, above, PARENT]
        t += 1
    return t


@exact
def born(told, i, level, parent, at, state, chances, scores, logits, best_of):
    """The children of a node, whose logits begin at `at`, become nodes."""
    nodes, counts = state[0], state[3]
    ids, values = best_of
    wide, count = told.widths[i, level], told.seats[i, CANDIDATES]
    noise_at, heat = told.noise_at[i, level], told.heat[i]
    found = best(logits, at, count, told.noise, noise_at, told.warmth[i], wide, ids, values)
    far = FAR if noise_at < 0 else FAR_COUPLED
    total = np.float32(1)
    if told.judged[i]:
        total = mass(logits, at, count, told.noise, noise_at, told.warmth[i], heat, values[0])
    chance = 1.0 if parent == ROOT else chances[i, parent]
    for k in range(found):
        below = (values[k] - values[0]) / heat
        if below < -far:
            break
        node = counts[i, NODES]
        nodes[i, node, TOKEN], nodes[i, node, PARENT], nodes[i, node, RANK] = ids[k], parent, k
        scores[i, node] = np.exp(below) / total
        chances[i, node] = chance * scores[i, node]
        counts[i, NODES] += 1


@exact
def next_of(told, i, level, first, state, chances, scores, frontier):
    """Which of the nodes from `first` on are fed for the sake of `level`; how many."""
    nodes, counts = state[0], state[3]
    if level >= told.widths.shape[1] or told.widths[i, level] == 0:
        return 0
    width, reached = 0, 0.0
    rule = told.rules[i, level]
    for node in range(first, counts[i, NODES]):
        token, grows = nodes[i, node, TOKEN], scores[i, node] >= told.least[i]
        for end in range(told.ends_at[i], told.ends_at[i + 1]):
            grows = grows and told.ends[end] != token
        if grows:
            frontier[i, width] = node
            width += 1
            if told.ruled[i]:
                reached += odds(chances[i, node], rule[A], rule[B])
    if told.ruled[i]:
        tokens = min(1.0, reached) * rule[GAIN]
        if not (tokens > 0 and tokens >= rule[COST]):
            return 0
    return width


def _made(stamped: int, compiled: Callable[[Any], Any]) -> Any:
    @compiled
    def grown(shape, w, told, store, s, found, part):
        """The drafts that are `told`, as one of several workers: each chooses all children for
        itself, which are the same. `s.arrived` holds a count for each pass."""
        _ = stamped
        n, most = told.seats.shape[0], found.nodes.shape[1]
        nodes, counts = np.empty((n, most, 3), np.int64), np.zeros((n, 3), np.int64)
        fed, places = np.empty((n, most), np.int64), np.empty((n, most), np.int64)
        state = (nodes, fed, places, counts)
        rows, frontier = np.empty((n, most + 1), np.int64), np.empty((n, most + 1), np.int64)
        chances, scores = np.empty((n, most), np.float64), np.empty((n, most), np.float64)
        width, widest = np.zeros(n, np.int64), 1
        for i in range(n):
            width[i] = told.seats[i, TOKENS] - told.seats[i, READ]
            for level in range(told.widths.shape[1]):
                widest = max(widest, told.widths[i, level])
        best_of = (np.empty(widest, np.int64), np.empty(widest, np.float64))
        if part[0] == 0:
            found.stamps[0] = clock()
        row, level = 0, 0
        while True:
            total, extent = 0, 0
            for i in range(n):
                if width[i]:
                    total += width[i]
                    end = told.seats[i, TOKENS]
                    extent = max(extent, end if level == 0 else end + counts[i, FED] + width[i])
            if total == 0:
                break
            full, first = np.zeros(total * extent, np.bool_), np.zeros(shape.members + 1, np.int64)
            wanted, t, wants, i = np.empty(total, np.int64), 0, 0, 0
            asked = Asked(
                np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64),
                np.empty(total, np.int64), first, full, full[:0], wanted,
            )  # fmt: skip
            for m in range(shape.members):
                first[m] = t
                while i < n and told.seats[i, MEMBER] == m:
                    begin = t
                    if width[i] and level == 0:
                        t = text_of(told, i, asked, t, extent)
                        begin = t - 1
                    elif width[i]:
                        t = frontier_of(told, i, level, width[i], frontier, state, asked, t, extent)
                    for query in range(begin, t):
                        wanted[wants] = query
                        rows[i, 0 if level == 0 else counts[i, FED] - (t - query) + 1] = row + wants
                        wants += 1
                    i += 1
            first[shape.members] = t
            asked = Asked(
                asked.tokens, asked.positions, asked.rows, asked.slots, first, full, full[:0],
                wanted[:wants],
            )  # fmt: skip
            meeting = Scratch(
                s.projected, s.attended, s.back, s.wide, s.active, s.arrived[level : level + 1]
            )
            passed(shape, w, asked, store, meeting, found.logits[row * shape.outputs :], part)
            row += wants
            for i in range(n):
                if width[i] == 0:
                    continue
                counts[i, PASSES] += 1
                before = counts[i, NODES]
                last = counts[i, FED]
                if level == 0:
                    at = rows[i, 0] * shape.outputs
                    born(told, i, level, ROOT, at, state, chances, scores, found.logits, best_of)
                for place in range(last - width[i] if level else last, last):
                    at = rows[i, place + 1] * shape.outputs
                    born(
                        told, i, level, fed[i, place], at, state, chances, scores, found.logits,
                        best_of,
                    )  # fmt: skip
                width[i] = next_of(told, i, level + 1, before, state, chances, scores, frontier)
            level += 1
            if part[0] == 0:
                found.stamps[level] = clock()
        if part[0] == 0:
            found.nodes[:], found.counts[:] = nodes, counts
            found.fed[:], found.rows[:] = fed, rows

    return grown
