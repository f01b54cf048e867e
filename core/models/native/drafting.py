"""The part of drafting between two forward passes, as native code: reads logits, adds children,
decides whether to draft another level, writes the next pass's inputs. In Python this would take
longer than a small model's pass.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc, untyped-decorator"
# numba infers the types of these functions from their arguments.

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from core.models.native.compiling import cached_entry, exact, reassociate
from core.models.native.elementwise import exp
from core.models.native.kernel_args import BatchInputs, DraftBatch, DraftOutputs
from core.models.native.layers import source_hash_of
from core.models.native.workspace import DraftLimits

__all__ = ["draft_step", "empty_batch", "slice_inputs", "empty_outputs"]

# Columns of DraftBatch.requests, of DraftOutputs.nodes, .counts and .moments.
MEMBER, ROW, TOKENS, READ, UNREAD, CANDIDATES = range(6)
TOKEN, PARENT, RANK = range(3)
NODES, FED, PASSES = range(3)
MEAN, VARIANCE, SUM = range(3)
ROOT = -1
# Children whose log score is lower than the best child's by more than this are left out: in float32
# (FAR, top-k drafts) or float64 (FAR_COUPLED, coupled drafts) their score is about 0. MIN_UTILITY
# is the lower bound of a utility minus the largest utility.
FAR, FAR_COUPLED = 103.0, 745.0
MIN_UTILITY = -1e4


@cache
def draft_step() -> Callable[..., tuple[int, int, int]]:
    """The compiled function `step`."""
    step: Any = _compile_step(source_hash_of(Path(__file__).parent))
    return step  # type: ignore[no-any-return]


def empty_batch() -> DraftBatch:
    """A batch of no drafts, to compile with."""
    none, several, real = np.zeros(0, np.int64), np.zeros((0, 0), np.int64), np.zeros(0)
    ones = np.zeros(0, np.float32)
    return DraftBatch(
        np.zeros((0, 6), np.int64), none, several, none, none, real, several, ones, ones, real,
        np.zeros((0, 0)),
    )  # fmt: skip


def empty_outputs(batch: DraftBatch, limits: DraftLimits, outputs: int) -> DraftOutputs:
    """Empty drafts with room for `limits`; `outputs`: the size of the padded vocabulary."""
    n, widest, most = len(batch.requests), int(batch.widths.max(initial=1)), limits.nodes
    kept_rows = limits.rows if len(batch.noise) else 1
    return DraftOutputs(
        np.empty((n, most, 3), np.int64), np.empty((n, most), np.int64),
        np.empty((n, most + 1), np.int64), np.zeros((n, 3), np.int64),
        np.empty((n, most), np.int64), np.empty((n, most)), np.empty((n, most)),
        np.empty((n, most), np.int64), batch.requests[:, TOKENS] - batch.requests[:, READ],
        np.empty(widest, np.int64), np.empty(widest),
        np.empty(kept_rows * outputs), np.empty((limits.rows, 3)),
    )  # fmt: skip


def slice_inputs(inputs: BatchInputs, sizes: tuple[int, int, int]) -> BatchInputs:
    """Views of `inputs` for the next pass; `sizes`: tokens, slots attended to, rows of logits."""
    tokens, extent, num_logits = sizes
    return BatchInputs(
        inputs.tokens[:tokens], inputs.positions[:tokens], inputs.rows[:tokens],
        inputs.slots[:tokens], inputs.first, inputs.full[: tokens * extent], inputs.near,
        inputs.logits_indices[:num_logits],
    )  # fmt: skip


@exact
def compute_utilities(logits, noise, noise_at, temperature, utilities):
    """Utilities by which children are chosen: the logits, or, for coupled drafts, logits / T +
    Gumbel noise G. Coupled utilities are log q + G up to a constant."""
    if noise_at < 0:
        for i in range(logits.shape[0]):
            utilities[i] = logits[i]
    else:
        for i in range(logits.shape[0]):
            # The torch path also divides in float32 and adds in float64: both must round alike.
            utilities[i] = np.float64(logits[i] / temperature) + noise[noise_at + i]


@exact
def largest(utilities, width, ids, values):
    """Writes the `width` largest utilities into `values` and their token ids into `ids`,
    descending, the lower id first among equals. Returns how many there are."""
    count = 0
    for i in range(utilities.shape[0]):
        value = utilities[i]
        # Insertion into a short sorted list. Equal values keep the lower id, which came first.
        if count == width and value <= values[count - 1]:
            continue
        count = min(count + 1, width)
        j = count - 1
        while j > 0 and values[j - 1] < value:
            ids[j], values[j] = ids[j - 1], values[j - 1]
            j -= 1
        ids[j], values[j] = i, value
    return count


@reassociate
def softmax_moments(utilities, highest, calibration_temperature):
    """Z = sum of e^((u - highest) / T), T the calibration temperature; the utilities' mean and
    variance under these weights; and the plain sum of the utilities."""
    total, first, second, plain_sum = np.float64(0), np.float64(0), np.float64(0), np.float64(0)
    for i in range(utilities.shape[0]):
        # NaN if any utility is NaN, which the comparisons below would hide.
        plain_sum += utilities[i]
        # -inf would give 0 x inf = NaN in the moments.
        below = max(utilities[i] - highest, MIN_UTILITY)
        weight = np.float64(exp(np.float32(below) / calibration_temperature))
        total += weight
        first += weight * below
        second += weight * below * below
    mean = first / total
    # Moments of u - highest, shifted back: smaller numbers, less cancellation.
    return total, highest + mean, second / total - mean * mean, plain_sum


@exact
def add_text_queries(batch, i, inputs, t, extent):
    """Writes the unread tokens of a draft's text as queries from index t on; returns the index
    after them."""
    request = batch.requests[i]
    for slot in range(request[READ], request[TOKENS]):
        inputs.tokens[t] = batch.text[request[UNREAD] + slot - request[READ]]
        inputs.positions[t] = inputs.slots[t] = slot
        inputs.rows[t] = request[ROW]
        # Causal: the token itself and all before it.
        inputs.full[t * extent : t * extent + slot + 1] = True
        t += 1
    return t


@exact
def write_frontier(batch, i, g, level, inputs, t, extent):
    """Writes a draft's frontier (see `select_frontier`) as queries from index t on; returns the
    index after them. A node attends to the text, its ancestors and itself."""
    request = batch.requests[i]
    for f in range(g.width[i]):
        node, place = g.frontier[i, f], g.counts[i, FED]
        g.fed[i, place], g.places[i, node] = node, place
        g.counts[i, FED] += 1
        inputs.tokens[t] = g.nodes[i, node, TOKEN]
        # Level 1 follows the last text token; siblings share a position.
        inputs.positions[t] = request[TOKENS] - 1 + level
        # The text ends at slot TOKENS - 1; fed nodes follow in order.
        inputs.slots[t] = request[TOKENS] + place
        inputs.rows[t] = request[ROW]
        inputs.full[t * extent : t * extent + request[TOKENS]] = True
        ancestor = node
        while ancestor != ROOT:
            inputs.full[t * extent + request[TOKENS] + g.places[i, ancestor]] = True
            ancestor = g.nodes[i, ancestor, PARENT]
        t += 1
    return t


@exact
def next_pass(batch, g, inputs, level, row):
    """Writes the inputs of the next pass: at level 0 the unread texts, at later levels the
    frontiers. `row`: the number of rows of logits from earlier passes. Returns the `sizes` of
    `slice_inputs`, with 0 tokens if every draft has ended."""
    n, members = batch.requests.shape[0], inputs.first.shape[0] - 1
    total, extent, num_logits, t, i = 0, 0, 0, 0, 0
    for each in range(n):
        # `width` 0: this draft has ended.
        if g.width[each]:
            total += g.width[each]
            num_fed = g.counts[each, FED] + g.width[each] if level else 0
            extent = max(extent, batch.requests[each, TOKENS] + num_fed)
    inputs.full[: total * extent] = False
    for m in range(members):
        inputs.first[m] = t
        # Requests and tokens are grouped by member: one model of `core.models.stacking.Stack`.
        while i < n and batch.requests[i, MEMBER] == m:
            begin = t
            if g.width[i] and level == 0:
                t = add_text_queries(batch, i, inputs, t, extent)
                # Only the logits of the text's last token, the root, are computed.
                begin = t - 1
            elif g.width[i]:
                t = write_frontier(batch, i, g, level, inputs, t, extent)
            for query in range(begin, t):
                inputs.logits_indices[num_logits] = query
                g.rows[i, g.counts[i, FED] - (t - query) + 1 if level else 0] = row + num_logits
                num_logits += 1
            i += 1
    inputs.first[members] = t
    return total, extent, num_logits


@exact
def add_children(batch, i, g, level, parent, logits, row, outputs):
    """Adds the children that row `row` of the logits gives to the node `parent`, or to the
    root."""
    width, count = batch.widths[i, level], batch.requests[i, CANDIDATES]
    noise_at, calibration_temperature = batch.noise_at[i, level], batch.calibration_temperature[i]
    at, utilities_at = row * outputs, row * outputs if g.utilities.shape[0] > outputs else 0
    utilities = g.utilities[utilities_at : utilities_at + count]
    compute_utilities(
        logits[at : at + count], batch.noise, noise_at, batch.temperature[i], utilities
    )
    num_children = largest(utilities, width, g.ids, g.values)
    total, mean, variance, plain_sum = softmax_moments(
        utilities, g.values[0], calibration_temperature
    )
    g.moments[row, MEAN], g.moments[row, VARIANCE], g.moments[row, SUM] = mean, variance, plain_sum
    far = FAR if noise_at < 0 else FAR_COUPLED
    path_score = 1.0 if parent == ROOT else g.path_scores[i, parent]
    for k in range(num_children):
        # log(score_k / score_0), at most 0 and descending.
        below = (g.values[k] - g.values[0]) / calibration_temperature
        if below < -far:
            break
        node = g.counts[i, NODES]
        g.nodes[i, node, TOKEN], g.nodes[i, node, PARENT] = g.ids[k], parent
        g.nodes[i, node, RANK] = k
        g.scores[i, node] = np.exp(below) / total
        g.path_scores[i, node] = path_score * g.scores[i, node]
        g.counts[i, NODES] += 1


@exact
def select_frontier(batch, i, g, level, before):
    """The nodes from `before` on that may have children become the frontier of `level`; returns
    their number, or 0 if the draft ends."""
    if level >= batch.widths.shape[1] or batch.widths[i, level] == 0:
        return 0
    width, total = 0, 0.0
    for node in range(before, g.counts[i, NODES]):
        token, expands = g.nodes[i, node, TOKEN], g.scores[i, node] >= batch.min_score[i]
        for end in range(batch.ends_at[i], batch.ends_at[i + 1]):
            expands = expands and batch.ends[end] != token
        # End-of-text nodes and improbable nodes stay in the draft, but get no children.
        if expands:
            g.frontier[i, width] = node
            width += 1
            total += g.path_scores[i, node]
    # The stop rule of `core.speculation_length.stop_rule`.
    return width if min(1.0, total) >= batch.step_scores[i, level] else 0


@exact
def absorb_logits(batch, g, level, logits, outputs):
    """Adds the children that a pass's logits give, for every draft in that pass, and selects the
    next frontier."""
    for i in range(batch.requests.shape[0]):
        if g.width[i] == 0:
            continue
        g.counts[i, PASSES] += 1
        # Nodes from `before` on are the new level; the pass has read the last `width` of the
        # `num_fed` nodes.
        before, num_fed = g.counts[i, NODES], g.counts[i, FED]
        if level == 0:
            # As an int64: numba would compile `add_children` again for a constant.
            add_children(batch, i, g, level, np.int64(ROOT), logits, g.rows[i, 0], outputs)
        else:
            for place in range(num_fed - g.width[i], num_fed):
                row = g.rows[i, place + 1]
                add_children(batch, i, g, level, g.fed[i, place], logits, row, outputs)
        g.width[i] = select_frontier(batch, i, g, level + 1, before)


def _compile_step(source_hash: int) -> Any:
    @cached_entry
    def step(batch, g, inputs, logits, outputs, level, row):
        """Absorbs the logits of the pass before `level`, if any. Then writes the next pass's
        `inputs` and returns their sizes. `batch`: a DraftBatch; `g`: its DraftOutputs; `logits`:
        flat (`row` rows, outputs)."""
        _ = source_hash
        if level > 0:
            absorb_logits(batch, g, level - 1, logits, outputs)
        return next_pass(batch, g, inputs, level, row)

    return step
