"""SuffixDrafter: drafts a tree of the tokens that followed earlier occurrences of the text's end.

The drafter `ngram` searches this text alone (prompt lookup), the drafter `suffix` also earlier
texts. The method is SuffixDecoding (arXiv 2411.04975), but without suffix trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from core.drafters.base import DraftRequest
from core.drafters.lookup_base import LookupDrafter, LookupState, has_children
from core.drafters.text_index import (
    LONGEST_MATCH,
    MATCH_CLASSES,
    MAX_CANDIDATES,
    NO_POSITIONS,
    SEPARATOR,
    TextIndex,
    add_tokens,
    find_tree,
    likeliest_nodes,
    match_class,
    new_index,
)
from core.sequence import TokenSequence
from core.trees.draft import Draft

__all__ = ["EARLIER_TOKENS", "SuffixDrafter"]

EARLIER_TOKENS = 1 << 18
"""Tokens of earlier texts that `suffix` keeps."""
# The weight of a match grows by this factor with each of its tokens, up to BOUND tokens.
GROWTH, BOUND = 2.0, 12
# Limit on the nodes of a tree before its likeliest nodes are chosen.
MOST_NODES = 256
# Prior of the acceptance rates: half of this many tokens were accepted.
PRIOR_TOKENS = 2.0


@dataclass(kw_only=True)
class _SuffixState(LookupState):
    """`indexed`: how many tokens of this text are in `own`. `match`: length of the last draft's
    longest match. `hits`, `tries`: tokens accepted and tried, by `match_class`."""

    own: TextIndex
    ends: np.ndarray
    prompt: int
    indexed: int = 0
    match: int = 0
    hits: np.ndarray = field(default_factory=lambda: np.full(MATCH_CLASSES, PRIOR_TOKENS / 2))
    tries: np.ndarray = field(default_factory=lambda: np.full(MATCH_CLASSES, PRIOR_TOKENS))

    def count_tried(self, depth: int, *, hit: bool) -> None:
        """Counts a verified token whose parent is at `depth`: the parent's match is `depth` tokens
        longer than the root's."""
        length_class = match_class(self.match + depth)
        self.tries[length_class] += 1
        self.hits[length_class] += hit


class SuffixDrafter(LookupDrafter[_SuffixState]):
    """See Drafter. `earlier_tokens`: the number of tokens of earlier texts that are kept; the
    oldest texts are dropped first. Of several texts of one prompt, only the first is kept.

    Matches in an earlier text of the same prompt are skipped. Otherwise a repeated run would draft
    from its own result.
    """

    def __init__(self, name: str, earlier_tokens: int = 0) -> None:
        # A text of one token has no room beside its separator.
        super().__init__(name, learns=earlier_tokens > 1)
        self._capacity = earlier_tokens
        self._earlier = new_index(max(1, earlier_tokens))
        # The positions [first, end) of each text, by the hash of its prompt; the oldest text first.
        self._texts: dict[int, tuple[int, int]] = {}
        lengths = np.minimum(np.arange(LONGEST_MATCH + 1), BOUND)
        self._weights = GROWTH ** lengths.astype(np.float64)
        # Scratch of the compiled functions.
        self._matches = np.zeros((2, 2 * MAX_CANDIDATES), np.int64)
        self._nodes = np.zeros((MOST_NODES, 3))
        self._scratch = np.zeros((3, MOST_NODES + 1), np.int64), np.zeros((2, MOST_NODES))

    def _new_state(self, sequence: TokenSequence) -> _SuffixState:
        # The ring has room for the whole text: none of its tokens is overwritten.
        size = len(sequence.tokens) + sequence.sampling.max_new_tokens + 1
        ends = np.array(sorted(sequence.eos_ids), np.int64)
        index, prompt = new_index(size, buckets=1024), hash(sequence.prompt_ids)
        return _SuffixState(own=index, ends=ends, prompt=prompt)

    def nodes_for(self, request: DraftRequest) -> np.ndarray:
        state = self._states[request.sequence.run_id]
        tokens = request.sequence.tokens
        # Tokens are indexed here, not at the commit, so that a round without a draft costs nothing.
        add_tokens(state.own, np.array(tokens[state.indexed :], np.int64))
        state.indexed = len(tokens)
        tail = np.array(tokens[-LONGEST_MATCH:], np.int64)
        depth = min(len(request.shape), request.budget)
        # Read at each draft: another run of this prompt may have ended since the last draft.
        same_prompt = self._texts.get(state.prompt, NO_POSITIONS)
        count, state.match, total = find_tree(
            state.own, self._earlier, tail, same_prompt,
            depth, self._weights, self._matches, self._nodes,
        )  # fmt: skip
        rows = np.empty((request.budget, 6))
        rates, chain = state.hits / state.tries, max(request.shape) == 1
        size = likeliest_nodes(
            self._nodes, count, total, state.match, rates, state.ends, chain, *self._scratch, rows
        )
        return rows[:size]

    def _observe(
        self, state: _SuffixState, draft: Draft, path: Sequence[int], *, rejected: bool
    ) -> None:
        for depth in range(len(path)):
            state.count_tried(depth, hit=True)
        # The first rejected level was tried too; deeper levels were not.
        if rejected and has_children(draft, path):
            state.count_tried(len(path), hit=False)

    def learn(self, sequence: TokenSequence) -> None:
        prompt = hash(sequence.prompt_ids)
        if prompt in self._texts:
            return
        # Cut so that the text and its separator fit the index.
        text = [*sequence.tokens[1 - self._capacity :], SEPARATOR]
        first = int(self._earlier.written[0])
        add_tokens(self._earlier, np.array(text, np.int64))
        self._texts[prompt] = (first, first + len(text))
        overwritten = first + len(text) - self._capacity
        # The loop ends at the latest with the text just added.
        while (oldest := next(iter(self._texts.items())))[1][1] <= overwritten:
            del self._texts[oldest[0]]
