"""TableDrafter: drafts a tree of the likeliest next tokens after a text's last one to three tokens,
by counts (`count_table`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
from core.drafters.lookup_base import LookupDrafter, LookupState
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["FOLDS", "TableDrafter", "fold_of"]

# Prompts are divided into this number of folds by their hash.
FOLDS = 4
# Rows of a fold's table, of 64 bytes: 16 MiB.
NUM_CONTEXTS = 1 << 18
# The number of latest texts whose hashes are kept: such a text is not counted again.
TEXTS = 1024
# Prior of both `hits` and `predicted`, in tokens.
PRIOR_TOKENS = 4.0
# Limit on the levels of a draft; sizes the scratch for a path.
DEEPEST = 32


@dataclass(kw_only=True)
class _TableState(LookupState):
    """`hits`: the number of accepted nodes; `predicted`: the sum of the verified nodes' shares (see
    `core.events.parts.DraftRecord`). Both are by context length."""

    table: np.ndarray
    ends: np.ndarray
    hits: np.ndarray = field(default_factory=lambda: np.full(LONGEST_CONTEXT + 1, PRIOR_TOKENS))
    predicted: np.ndarray = field(
        default_factory=lambda: np.full(LONGEST_CONTEXT + 1, PRIOR_TOKENS)
    )

    @property
    def rates(self) -> np.ndarray:
        """Accepted nodes per predicted node, at most 1, by context length: score = share * rate."""
        rates: np.ndarray = np.minimum(1.0, self.hits / self.predicted)
        return rates


class TableDrafter(LookupDrafter[_TableState]):
    """See `core.drafters.base.Drafter`. `rows`: the rows of a table of any size, with which the
    counts begin.

    A run reads the table of its prompt's fold, and a text is counted in the tables of all other
    folds. Otherwise a repeated run would draft from its own result. Subtracting the result's counts
    instead would not be exact: rows inherit from shorter contexts and overwrite one another.
    """

    def __init__(self, name: str, rows: np.ndarray | None = None) -> None:
        super().__init__(name)
        if rows is not None:
            for table in self.tables:
                insert_rows(table, rows)
        # Hashes of the texts that were counted, oldest first.
        self._text_hashes: dict[int, None] = {}
        self.num_lookups = 0  # of the last draft
        # Scratch of `grow_tree`.
        self._path = np.zeros(LONGEST_CONTEXT + DEEPEST, np.int64)
        self._numbers, self._chances = np.zeros((5, 0), np.int64), np.zeros((2, 0))

    @cached_property
    def tables(self) -> tuple[np.ndarray, ...]:
        """The tables by fold, (NUM_CONTEXTS, 16) each, made on first access: many engines never use
        them."""
        return tuple(new_table(NUM_CONTEXTS) for _ in range(FOLDS))

    def _new_state(self, sequence: TokenSequence) -> _TableState:
        ends = np.array(sorted(sequence.eos_ids), np.int64)
        return _TableState(table=self.tables[fold_of(sequence.prompt_ids)], ends=ends)

    def nodes_for(self, request: DraftRequest) -> np.ndarray:
        state = self._states[request.sequence.run_id]
        tail = np.array(request.sequence.tokens[-LONGEST_CONTEXT:], np.int64)
        depth, budget = min(len(request.shape), request.budget, DEEPEST), request.budget
        room = (budget + 1) * CANDIDATES
        if room > self._numbers.shape[1]:
            self._numbers, self._chances = np.zeros((5, room), np.int64), np.zeros((2, room))
        nodes = np.empty((budget, 6))
        size, self.num_lookups = grow_tree(
            state.table, tail, depth, budget, max(request.shape) == 1, state.ends, state.rates,
            self._numbers, self._chances, self._path, nodes,
        )  # fmt: skip
        return nodes[:size]

    def _observe(
        self, state: _TableState, draft: Draft, path: Sequence[int], *, rejected: bool
    ) -> None:
        # The children of these nodes were verified.
        parents = {ROOT, *(path if rejected else path[:-1])}
        rates = state.rates
        for node, parent in enumerate(draft.parents):
            if parent in parents:
                context = draft.contexts[node]
                # Divided by its rate, a score is the share alone.
                state.predicted[context] += draft.scores[node] / rates[context]
                state.hits[context] += node in path

    def learn(self, sequence: TokenSequence) -> None:
        code = hash(tuple(sequence.tokens))
        if code in self._text_hashes:
            return
        self._text_hashes[code] = None
        if len(self._text_hashes) > TEXTS:
            del self._text_hashes[next(iter(self._text_hashes))]
        # Only what the LLM wrote is counted.
        begin = max(0, len(sequence.prompt_ids) - LONGEST_CONTEXT)
        text, own = np.array(sequence.tokens[begin:], np.int64), fold_of(sequence.prompt_ids)
        for fold, table in enumerate(self.tables):
            if fold != own:
                add_text(table, text, len(sequence.prompt_ids) - begin)


def fold_of(prompt_ids: tuple[int, ...]) -> int:
    """A prompt's fold, the same in every process."""
    # Python salts the hashes of strings, not of numbers.
    return hash(prompt_ids) % FOLDS
