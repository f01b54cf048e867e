"""Drafts of several models between their passes: what the next one is asked, the choice of
children, and whether another level is worth it. Nothing is looked at from outside, which takes
longer than a small model's pass.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba types these functions, by what they are called with.

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from core.models.native.compiling import entry, exact, free, kept
from core.models.native.elementwise import exp
from core.models.native.kernel_args import Asked, Grown, Told
from core.models.native.layers import stamp
from core.models.native.workspace import Room

__all__ = ["between", "nothing_told", "of_pass", "sprouting"]

# Columns of Told.seats, Grown.nodes and Grown.counts.
MEMBER, ROW, TOKENS, READ, LACKS, CANDIDATES = range(6)
TOKEN, PARENT, RANK = range(3)
NODES, FED, PASSES = range(3)
MEAN, VARIANCE, SUM = range(3)
ROOT = -1
# A score further below the best than that is 0, in float32 and in float64; nothing counts as being
# further below than IMPOSSIBLE, as in `core.drafters.calibration`.
FAR, FAR_COUPLED = 103.0, 745.0
IMPOSSIBLE = -1e4


@cache
def between(keep: bool) -> Callable[..., tuple[int, int, int]]:
    """What comes between two passes; see `step`. `keep` as in `kernel`."""
    made: Any = _made(stamp(Path(__file__).parent), kept if keep else entry)
    return made  # type: ignore[no-any-return]


def nothing_told() -> Told:
    """Of no draft at all."""
    none, several, real = np.zeros(0, np.int64), np.zeros((0, 0), np.int64), np.zeros(0)
    warm = np.zeros(0, np.float32)
    return Told(
        np.zeros((0, 6), np.int64), none, several, none, none, real, several, warm, warm, real,
        np.zeros((0, 0)),
    )  # fmt: skip


def sprouting(told: Told, room: Room, outputs: int) -> Grown:
    """Drafts with so much room, of which nothing has grown yet."""
    n, widest, most = len(told.seats), int(told.widths.max(initial=1)), room.nodes
    kept = room.rows if len(told.noise) else 1
    return Grown(
        np.empty((n, most, 3), np.int64), np.empty((n, most), np.int64),
        np.empty((n, most + 1), np.int64), np.zeros((n, 3), np.int64),
        np.empty((n, most), np.int64), np.empty((n, most)), np.empty((n, most)),
        np.empty((n, most), np.int64), told.seats[:, TOKENS] - told.seats[:, READ],
        np.empty(widest, np.int64), np.empty(widest),
        np.empty(kept * outputs), np.empty((room.rows, 3)),
    )  # fmt: skip


def of_pass(asked: Asked, sizes: tuple[int, int, int]) -> Asked:
    """What the next pass is asked, of a larger one's arrays: so many tokens, that see so many
    slots, and logits that are wanted."""
    tokens, extent, wanted = sizes
    return Asked(
        asked.tokens[:tokens], asked.positions[:tokens], asked.rows[:tokens],
        asked.slots[:tokens], asked.first, asked.full[: tokens * extent], asked.near,
        asked.wanted[:wanted],
    )  # fmt: skip


@exact
def utilities_of(logits, noise, noise_at, warmth, found):
    """What children are chosen by: the logit, or log q + G but for what all have in common."""
    if noise_at < 0:
        for i in range(logits.shape[0]):
            found[i] = logits[i]
    else:
        for i in range(logits.shape[0]):
            found[i] = np.float64(logits[i] / warmth) + noise[noise_at + i]


@exact
def best(utilities, wide, ids, values):
    """The largest `wide` of them, largest first, the lowest id first among equals; how many there
    are."""
    found = 0
    for i in range(utilities.shape[0]):
        value = utilities[i]
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
def moments_of(utilities, most, heat):
    """The sum of e^((utility - most) / heat), and by these weights the utilities' mean and
    variance; and their sum."""
    total, first, second, whole = np.float64(0), np.float64(0), np.float64(0), np.float64(0)
    for i in range(utilities.shape[0]):
        whole += utilities[i]
        below = max(utilities[i] - most, IMPOSSIBLE)
        weight = np.float64(exp(np.float32(below) / heat))
        total += weight
        first += weight * below
        second += weight * below * below
    mean = first / total
    return total, most + mean, second / total - mean * mean, whole


@exact
def text_of(told, i, asked, t, extent):
    """Queries of the text that a draft lacks, from place t on; the place behind them."""
    seat = told.seats[i]
    for slot in range(seat[READ], seat[TOKENS]):
        asked.tokens[t] = told.text[seat[LACKS] + slot - seat[READ]]
        asked.positions[t] = asked.slots[t] = slot
        asked.rows[t] = seat[ROW]
        asked.full[t * extent : t * extent + slot + 1] = True
        t += 1
    return t


@exact
def frontier_of(told, i, g, level, asked, t, extent):
    """Queries of a draft's nodes that are fed next, from place t on; the place behind them."""
    seat = told.seats[i]
    for f in range(g.width[i]):
        node, place = g.frontier[i, f], g.counts[i, FED]
        g.fed[i, place], g.places[i, node] = node, place
        g.counts[i, FED] += 1
        asked.tokens[t] = g.nodes[i, node, TOKEN]
        asked.positions[t] = seat[TOKENS] - 1 + level
        asked.slots[t] = seat[TOKENS] + place
        asked.rows[t] = seat[ROW]
        asked.full[t * extent : t * extent + seat[TOKENS]] = True
        above = node
        while above != ROOT:
            asked.full[t * extent + seat[TOKENS] + g.places[i, above]] = True
            above = g.nodes[i, above, PARENT]
        t += 1
    return t


@exact
def next_pass(told, g, asked, level, row):
    """The next pass: at first the text, of which the last token's logits are wanted, then all
    frontiers; nothing, where there are none. `row`: how many rows of logits there are so far. Its
    sizes, as in `of_pass`."""
    n, members = told.seats.shape[0], asked.first.shape[0] - 1
    total, extent, wanted, t, i = 0, 0, 0, 0, 0
    for each in range(n):
        if g.width[each]:
            total += g.width[each]
            fed = g.counts[each, FED] + g.width[each] if level else 0
            extent = max(extent, told.seats[each, TOKENS] + fed)
    asked.full[: total * extent] = False
    for m in range(members):
        asked.first[m] = t
        while i < n and told.seats[i, MEMBER] == m:
            begin = t
            if g.width[i] and level == 0:
                t = text_of(told, i, asked, t, extent)
                begin = t - 1
            elif g.width[i]:
                t = frontier_of(told, i, g, level, asked, t, extent)
            for query in range(begin, t):
                asked.wanted[wanted] = query
                g.rows[i, g.counts[i, FED] - (t - query) + 1 if level else 0] = row + wanted
                wanted += 1
            i += 1
    asked.first[members] = t
    return total, extent, wanted


@exact
def born(told, i, g, level, parent, logits, row, outputs):
    """The children of a node, whose logits are in this row, become nodes."""
    wide, count = told.widths[i, level], told.seats[i, CANDIDATES]
    noise_at, heat = told.noise_at[i, level], told.heat[i]
    at, kept = row * outputs, row * outputs if g.utilities.shape[0] > outputs else 0
    utilities = g.utilities[kept : kept + count]
    utilities_of(logits[at : at + count], told.noise, noise_at, told.warmth[i], utilities)
    found = best(utilities, wide, g.ids, g.values)
    total, mean, variance, whole = moments_of(utilities, g.values[0], heat)
    g.moments[row, MEAN], g.moments[row, VARIANCE], g.moments[row, SUM] = mean, variance, whole
    far = FAR if noise_at < 0 else FAR_COUPLED
    chance = 1.0 if parent == ROOT else g.chances[i, parent]
    for k in range(found):
        below = (g.values[k] - g.values[0]) / heat
        if below < -far:
            break
        node = g.counts[i, NODES]
        g.nodes[i, node, TOKEN], g.nodes[i, node, PARENT] = g.ids[k], parent
        g.nodes[i, node, RANK] = k
        g.scores[i, node] = np.exp(below) / total
        g.chances[i, node] = chance * g.scores[i, node]
        g.counts[i, NODES] += 1


@exact
def next_of(told, i, g, level, before):
    """Which of the nodes from `before` on are fed for the sake of `level`; how many."""
    if level >= told.widths.shape[1] or told.widths[i, level] == 0:
        return 0
    width, reached = 0, 0.0
    for node in range(before, g.counts[i, NODES]):
        token, grows = g.nodes[i, node, TOKEN], g.scores[i, node] >= told.least[i]
        for end in range(told.ends_at[i], told.ends_at[i + 1]):
            grows = grows and told.ends[end] != token
        if grows:
            g.frontier[i, width] = node
            width += 1
            reached += g.chances[i, node]
    return width if min(1.0, reached) >= told.step_scores[i, level] else 0


@exact
def grown(told, g, level, logits, outputs):
    """All who took part in a pass take in their logits; what is fed next is known."""
    for i in range(told.seats.shape[0]):
        if g.width[i] == 0:
            continue
        g.counts[i, PASSES] += 1
        before, fed = g.counts[i, NODES], g.counts[i, FED]
        if level == 0:
            # As a variable: for a constant numba would compile `born` once more.
            born(told, i, g, level, np.int64(ROOT), logits, g.rows[i, 0], outputs)
        else:
            for place in range(fed - g.width[i], fed):
                row = g.rows[i, place + 1]
                born(told, i, g, level, g.fed[i, place], logits, row, outputs)
        g.width[i] = next_of(told, i, g, level + 1, before)


def _made(stamped: int, compiled: Callable[[Any], Any]) -> Any:
    @compiled
    def step(told, g, asked, logits, outputs, level, row):
        """Who took part in the pass before `level`, if there was one, takes in its `logits`
        (`row` rows so far, outputs), flat; what the next is asked is written into `asked`, whose
        sizes these are."""
        _ = stamped
        if level > 0:
            grown(told, g, level - 1, logits, outputs)
        return next_pass(told, g, asked, level, row)

    return step
