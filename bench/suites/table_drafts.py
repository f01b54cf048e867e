"""Drafts of the drafter `table` by themselves: look-ups a context and a node, and microseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from bench.timing import time_call
from core.config import Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import TABLE
from core.drafters.base import DraftRequest
from core.drafters.count_table import (
    CANDIDATES,
    LONGEST_CONTEXT,
    add_text,
    grow_tree,
    insert_rows,
    new_table,
)
from core.drafters.table import ROWS, TableDrafter
from core.engine.admission import prepare
from core.models.loading.load import LoadedModels
from core.sequence import Sequence as TextSequence
from lab.figures import median

NODES = 16
# Positions of the texts that are drafted at; drafts that are timed.
EVERY, TIMED = 4, 400
FOLDS = 4


def draft_figures(models: LoadedModels, texts: Sequence[Sequence[int]]) -> dict[str, float]:
    """Look-ups of drafts in texts that are not counted; the time of drafts of 16 nodes, or of the
    largest there are, with all texts counted."""
    return {**_look_ups(models, texts), **_times(models, texts)}


def _look_ups(models: LoadedModels, texts: Sequence[Sequence[int]]) -> dict[str, float]:
    """A look-up is a hashed context that is searched. `contexts`: those whose followers were wanted
    in all drafts; `in_turn`: the look-ups that they take where each length of context has a table
    of its own, and all of them have to be read for what one joined row holds."""
    ends, room = np.array(sorted(models.eos_ids), np.int64), (NODES + 1) * CANDIDATES
    numbers, chances = np.zeros((5, room), np.int64), np.zeros((2, room))
    path, nodes = np.zeros(LONGEST_CONTEXT + NODES, np.int64), np.zeros((NODES, 5))
    total = {"looked": 0, "contexts": 0, "in_turn": 0, "nodes": 0}
    for table, text in _held_out(models, texts):
        for at in range(LONGEST_CONTEXT, len(text), EVERY):
            tail = np.array(text[at - LONGEST_CONTEXT : at], np.int64)
            size, looked = grow_tree(
                table, tail, NODES, NODES, False, ends, np.ones(LONGEST_CONTEXT + 1), numbers,
                chances, path, nodes,
            )  # fmt: skip
            contexts = [LONGEST_CONTEXT, *_contexts(nodes[:size], ends.tolist())]
            total["looked"] += looked
            total["contexts"] += len(contexts)
            total["in_turn"] += sum(contexts)
            total["nodes"] += size
    return dict(total)


def _held_out(
    models: LoadedModels, texts: Sequence[Sequence[int]]
) -> Iterator[tuple[np.ndarray, Sequence[int]]]:
    """Each text with a table of the texts of the other folds."""
    for fold in range(FOLDS):
        table = new_table(ROWS)
        if models.counts is not None:
            insert_rows(table, models.counts)
        for number, text in enumerate(texts):
            if number % FOLDS != fold:
                add_text(table, np.array(text, np.int64), 1)
        for text in texts[fold::FOLDS]:
            yield table, text


def _contexts(nodes: np.ndarray, ends: Sequence[int]) -> list[int]:
    """Of each node whose followers were wanted (the last of a full tree has none) the longest
    context that there can be: one token longer than that of the node itself."""
    depths: list[int] = []
    lengths = []
    for at, (token, parent, _, _, length) in enumerate(nodes.tolist()):
        depths.append(1 + (depths[int(parent)] if parent >= 0 else 0))
        if at < NODES - 1 and depths[-1] < NODES and token not in ends:
            lengths.append(min(int(length) + 1, LONGEST_CONTEXT))
    return lengths


def _times(models: LoadedModels, texts: Sequence[Sequence[int]]) -> dict[str, float]:
    drafter = TableDrafter(TABLE, models.counts)
    for number, text in enumerate(texts):
        counted = _sequence(models, number)
        drafter.open(counted)
        counted.tokens += list(text)
        drafter.close(counted)
    probe = _sequence(models, len(texts))
    drafter.open(probe)
    request = DraftRequest(probe, 0, "best_first", (2,) * NODES, NODES)
    found: list[tuple[int, float]] = []
    ends = [text[:at] for text in texts for at in range(LONGEST_CONTEXT, len(text), EVERY)]
    for place in range(TIMED if ends else 0):
        probe.tokens[1:] = ends[place % len(ends)]
        (draft,), seconds = time_call(partial(drafter.draft, [request]))
        found.append((len(draft), 1e6 * seconds))
    largest = max((size for size, _ in found), default=0)
    # The first call may compile.
    times = [us for size, us in found[1:] if size == largest]
    return {"us": median(times or [0.0]), "draft_nodes": largest, "timed": len(times)}


def _sequence(models: LoadedModels, first: int) -> TextSequence:
    """A run of a prompt of one token."""
    config, sampling = SpeculationConfig(drafters=(TABLE,)), SamplingParams()
    return prepare(models, Request("table", sampling, config, prompt_token_ids=(first,)))
