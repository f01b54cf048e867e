"""TableDrafter: the likeliest next tokens behind the last one to three, as counted in what the LLM
has written; a tree by best-first search (`count_table`).

It learns while it serves: a text is counted when it ends. A family may bring counts along (`zoo
tables`). Costs no model pass: some 10 us for a tree of 16 nodes. Proposals are deterministic, so
their q is one-hot.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import numpy as np

from core.drafters.base import DraftRequest
from core.drafters.count_table import (
    CANDIDATES,
    LONGEST_CONTEXT,
    add_text,
    grow_tree,
    insert_rows,
    new_table,
)
from core.drafters.lookup import draft_of, likelihoods_of
from core.drafters.weights import needs_likelihoods
from core.events.parts import Timed
from core.sequence import Sequence
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["TableDrafter"]

# 64 bytes each: 16 MiB.
ROWS = 1 << 18
# Texts that can be taken out of the counts again; older ones stay counted.
TEXTS = 1024
# Prior of the ratio of acceptances to what shares had predicted, in tokens.
PRIOR_TOKENS = 4.0
DEEPEST = 32


@dataclass
class _State:
    """`hits` and `predicted`: accepted nodes, and the sum of the verified ones' shares, by length
    of the context that they were counted behind. `contexts`: those lengths, of the last draft."""

    ends: np.ndarray
    hits: np.ndarray = field(default_factory=lambda: np.full(LONGEST_CONTEXT + 1, PRIOR_TOKENS))
    predicted: np.ndarray = field(
        default_factory=lambda: np.full(LONGEST_CONTEXT + 1, PRIOR_TOKENS)
    )
    contexts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    likelihoods: list[float] = field(default_factory=list)

    @property
    def rates(self) -> np.ndarray:
        """What turns a share into a score."""
        rates: np.ndarray = np.minimum(1.0, self.hits / self.predicted)
        return rates


class TableDrafter:
    """See Drafter. `rows`: counts to begin with, of a table of any size.

    A text is taken out of the counts while its prompt runs again: a run that is repeated, to be
    compared or shown, would draft from its own result.
    """

    def __init__(self, name: str, rows: np.ndarray | None = None) -> None:
        self._name = name
        self._table = new_table(ROWS)
        if rows is not None:
            insert_rows(self._table, rows)
        self._states: dict[str, _State] = {}
        # Counted texts by prompt, oldest first: tokens, and where the LLM's own begin.
        self._texts: dict[tuple[int, ...], tuple[np.ndarray, int]] = {}
        # Scratch of the compiled function.
        self._path = np.zeros(LONGEST_CONTEXT + DEEPEST, np.int64)
        self._numbers, self._chances = np.zeros((5, 0), np.int64), np.zeros((2, 0))

    @property
    def name(self) -> str:
        return self._name

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        self._states[sequence.run_id] = _State(np.array(sorted(sequence.eos_ids), np.int64))
        if (earlier := self._texts.pop(sequence.prompt_ids, None)) is not None:
            add_text(self._table, *earlier, sign=-1)
        return ()

    def draft(self, requests: Many[DraftRequest]) -> list[Draft]:
        drafts = []
        for request in requests:
            start = time.perf_counter()
            nodes = self._nodes_for(request) if request.worth_starting else np.empty((0, 4))
            span = Timed(self._name, "draft", start, time.perf_counter())
            drafts.append(draft_of(nodes, span))
        return drafts

    def _nodes_for(self, request: DraftRequest) -> np.ndarray:
        state = self._states[request.sequence.run_id]
        tail = np.array(request.sequence.tokens[-LONGEST_CONTEXT:], np.int64)
        depth, budget = min(len(request.shape), request.budget, DEEPEST), request.budget
        room = (budget + 1) * CANDIDATES
        if room > self._numbers.shape[1]:
            self._numbers, self._chances = np.zeros((5, room), np.int64), np.zeros((2, room))
        nodes = np.empty((budget, 5))
        size, _ = grow_tree(
            self._table, tail, depth, budget, max(request.shape) == 1, state.ends, state.rates,
            self._numbers, self._chances, self._path, nodes,
        )  # fmt: skip
        state.contexts = nodes[:size, 4].astype(np.int64)
        return nodes[:size, :4]

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        path = draft.walk(token_ids) if draft is not None else []
        if needs_likelihoods(sequence.speculation):
            state.likelihoods += likelihoods_of(draft, path, len(token_ids))
        if draft is not None and len(draft) == len(state.contexts):
            self._calibrate(state, draft, path, rejected=len(path) < len(token_ids))

    @staticmethod
    def _calibrate(state: _State, draft: Draft, path: Many[int], *, rejected: bool) -> None:
        """The children of each node on the path were verified; of the last one's none was right."""
        parents = {ROOT, *(path if rejected else path[:-1])}
        rates = state.rates
        for node, parent in enumerate(draft.parents):
            if parent in parents:
                context = state.contexts[node]
                state.predicted[context] += draft.scores[node] / rates[context]
                state.hits[context] += node in path

    def close(self, sequence: Sequence) -> None:
        if self._states.pop(sequence.run_id, None) is None or sequence.prompt_ids in self._texts:
            return
        begin = max(0, len(sequence.prompt_ids) - LONGEST_CONTEXT)
        text = np.array(sequence.tokens[begin:], np.int64)
        counted = text, len(sequence.prompt_ids) - begin
        add_text(self._table, *counted)
        self._texts[sequence.prompt_ids] = counted
        if len(self._texts) > TEXTS:
            del self._texts[next(iter(self._texts))]

    def temperature(self, sequence: Sequence) -> float:
        return 1.0

    def likelihoods(self, sequence: Sequence) -> list[float]:
        state = self._states.get(sequence.run_id)
        taken = state.likelihoods if state else []
        if state:
            state.likelihoods = []
        return taken
