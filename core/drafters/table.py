"""TableDrafter: the likeliest next tokens behind the last one to three, as counted in what the LLM
has written; a tree by best-first search (`count_table`).

It learns while it serves: a text that has ended is counted when a run of another prompt begins. A
family may bring counts along (`zoo
tables`). Costs no model pass: some 10 us for a tree of 16 nodes. Proposals are deterministic, so
their q is one-hot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
from core.drafters.lookup import LookupDrafter, LookupState
from core.events.parts import Timed
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["TableDrafter"]

# 64 bytes each: 16 MiB.
NUM_CONTEXTS = 1 << 18
# Counted texts that can be taken out again; older ones stay counted.
TEXTS = 1024
# Prior of the ratio of acceptances to what shares had predicted, in tokens.
PRIOR_TOKENS = 4.0
DEEPEST = 32


class _Text(NamedTuple):
    """The end of a prompt and what the LLM wrote, which begins at `first`."""

    tokens: np.ndarray
    first: int


@dataclass(kw_only=True)
class _TableState(LookupState):
    """Of a run of `prompt`. `hits` and `predicted`: accepted nodes, and the sum of the verified
    ones' shares, by length of the context that they were counted behind."""

    prompt: tuple[int, ...]
    ends: np.ndarray
    hits: np.ndarray = field(default_factory=lambda: np.full(LONGEST_CONTEXT + 1, PRIOR_TOKENS))
    predicted: np.ndarray = field(
        default_factory=lambda: np.full(LONGEST_CONTEXT + 1, PRIOR_TOKENS)
    )

    @property
    def rates(self) -> np.ndarray:
        """What turns a share into a score."""
        rates: np.ndarray = np.minimum(1.0, self.hits / self.predicted)
        return rates


class TableDrafter(LookupDrafter[_TableState]):
    """See Drafter. `rows`: counts to begin with, of a table of any size.

    A text is not counted while its prompt runs again: a run that is repeated, to be compared or
    shown, would draft from its own result.
    """

    def __init__(self, name: str, rows: np.ndarray | None = None) -> None:
        super().__init__(name)
        self._table = new_table(NUM_CONTEXTS)
        if rows is not None:
            insert_rows(self._table, rows)
        # By prompt, oldest first: counted texts, and those that are not counted yet.
        self._counted: dict[tuple[int, ...], _Text] = {}
        self._uncounted: dict[tuple[int, ...], _Text] = {}
        # Of the last draft.
        self.looked = 0
        # Scratch of the compiled function.
        self._path = np.zeros(LONGEST_CONTEXT + DEEPEST, np.int64)
        self._numbers, self._chances = np.zeros((5, 0), np.int64), np.zeros((2, 0))

    def _new_state(self, sequence: TokenSequence) -> _TableState:
        ends = np.array(sorted(sequence.eos_ids), np.int64)
        return _TableState(prompt=sequence.prompt_ids, ends=ends)

    def open(self, sequence: TokenSequence) -> tuple[Timed, ...]:
        super().open(sequence)
        running = {state.prompt for state in self._states.values()}
        for prompt in [each for each in self._uncounted if each not in running]:
            self._counted[prompt] = text = self._uncounted.pop(prompt)
            add_text(self._table, text.tokens, text.first)
        if (own := self._counted.pop(sequence.prompt_ids, None)) is not None:
            add_text(self._table, own.tokens, own.first, sign=-1)
            self._uncounted[sequence.prompt_ids] = own
        while len(self._counted) > TEXTS:
            del self._counted[next(iter(self._counted))]
        return ()

    def nodes_for(self, request: DraftRequest) -> np.ndarray:
        state = self._states[request.sequence.run_id]
        tail = np.array(request.sequence.tokens[-LONGEST_CONTEXT:], np.int64)
        depth, budget = min(len(request.shape), request.budget, DEEPEST), request.budget
        room = (budget + 1) * CANDIDATES
        if room > self._numbers.shape[1]:
            self._numbers, self._chances = np.zeros((5, room), np.int64), np.zeros((2, room))
        nodes = np.empty((budget, 6))
        size, self.looked = grow_tree(
            self._table, tail, depth, budget, max(request.shape) == 1, state.ends, state.rates,
            self._numbers, self._chances, self._path, nodes,
        )  # fmt: skip
        return nodes[:size]

    def commit(
        self, sequence: TokenSequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        path = self._note_likelihoods(sequence, draft, token_ids)
        if draft is not None:
            self._calibrate(state, draft, path, rejected=len(path) < len(token_ids))

    @staticmethod
    def _calibrate(
        state: _TableState, draft: Draft, path: Sequence[int], *, rejected: bool
    ) -> None:
        """The children of each node on the path were verified; of the last one's none was right."""
        parents = {ROOT, *(path if rejected else path[:-1])}
        rates = state.rates
        for node, parent in enumerate(draft.parents):
            if parent in parents:
                context = draft.contexts[node]
                state.predicted[context] += draft.scores[node] / rates[context]
                state.hits[context] += node in path

    def close(self, sequence: TokenSequence) -> None:
        if self._states.pop(sequence.run_id, None) is None:
            return
        begin = max(0, len(sequence.prompt_ids) - LONGEST_CONTEXT)
        tokens = np.array(sequence.tokens[begin:], np.int64)
        earlier = self._uncounted.get(sequence.prompt_ids)
        # Of runs of one prompt the longest text counts.
        if earlier is None or len(earlier.tokens) < len(tokens):
            self._uncounted[sequence.prompt_ids] = _Text(tokens, len(sequence.prompt_ids) - begin)
