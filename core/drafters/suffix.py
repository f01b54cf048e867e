"""SuffixDrafter: what followed earlier occurrences of the text's end, as a tree; `ngram` looks in
this text alone (prompt lookup), `suffix` in earlier ones of the same models too.

Costs no model pass. Of the latest occurrences each counts the more the longer it matches; a node's
score is the acceptance rate measured behind matches of that length, times its share of its
siblings' counts. Proposals are deterministic, so their q is one-hot.

As SuffixDecoding (arXiv 2411.04975), which keeps suffix trees; see `text_index` for why not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from core.drafters.base import DraftRequest
from core.drafters.lookup import LookupDrafter, LookupState, has_children
from core.drafters.text_index import (
    LONGEST_MATCH,
    MATCH_CLASSES,
    NOTHING,
    SEPARATOR,
    WALK,
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

# Tokens of earlier texts that are kept.
EARLIER_TOKENS = 1 << 18
# A match of one token more counts so many times as much, up to BOUND tokens.
GROWTH, BOUND = 2.0, 12
# Nodes found before the likeliest are chosen.
MOST_NODES = 256
# Prior of the acceptance rates: so many tokens, half of them accepted.
PRIOR_TOKENS = 2.0


@dataclass(kw_only=True)
class _SuffixState(LookupState):
    """`own`: this text. `prompt`: a hash. `match`: tokens of the last draft's longest match.
    `hits`, `tries`: tokens accepted and tried, by class of match length."""

    own: TextIndex
    ends: np.ndarray
    prompt: int
    indexed: int = 0
    match: int = 0
    hits: np.ndarray = field(default_factory=lambda: np.full(MATCH_CLASSES, PRIOR_TOKENS / 2))
    tries: np.ndarray = field(default_factory=lambda: np.full(MATCH_CLASSES, PRIOR_TOKENS))

    def count_tried(self, depth: int, *, hit: bool) -> None:
        """A level of the draft that was verified: behind its parent the match was `depth` longer
        than at the root."""
        place = match_class(self.match + depth)
        self.tries[place] += 1
        self.hits[place] += hit


class SuffixDrafter(LookupDrafter[_SuffixState]):
    """See Drafter. `earlier_tokens`: of earlier texts, the oldest are forgotten; 0 keeps none. Of
    a prompt the first text is kept.

    A text with the very same prompt is not read: a run that is repeated, to be compared or shown
    again, would draft from its own result.
    """

    def __init__(self, name: str, earlier_tokens: int = 0) -> None:
        super().__init__(name, learns=earlier_tokens > 0)
        self._room = earlier_tokens
        self._earlier = new_index(max(1, earlier_tokens))
        # By hash of the prompt the first position and that behind the last, oldest text first.
        self._texts: dict[int, tuple[int, int]] = {}
        bounded = np.minimum(np.arange(LONGEST_MATCH + 1), BOUND)
        self._weights = GROWTH ** bounded.astype(np.float64)
        # Scratch of the compiled functions.
        self._matches = np.zeros((2, 2 * WALK), np.int64)
        self._nodes = np.zeros((MOST_NODES, 3))
        self._scratch = np.zeros((3, MOST_NODES + 1), np.int64), np.zeros((2, MOST_NODES))

    def _new_state(self, sequence: TokenSequence) -> _SuffixState:
        size = len(sequence.tokens) + sequence.sampling.max_new_tokens + 1
        ends = np.array(sorted(sequence.eos_ids), np.int64)
        index, prompt = new_index(size, buckets=1024), hash(sequence.prompt_ids)
        return _SuffixState(own=index, ends=ends, prompt=prompt)

    def nodes_for(self, request: DraftRequest) -> np.ndarray:
        state = self._states[request.sequence.run_id]
        tokens = request.sequence.tokens
        # Indexed at the draft, not at the commit: a round that does not draft pays nothing.
        add_tokens(state.own, np.array(tokens[state.indexed :], np.int64))
        state.indexed = len(tokens)
        tail = np.array(tokens[-LONGEST_MATCH:], np.int64)
        depth = min(len(request.shape), request.budget)
        # At each draft: a run of the same prompt may have ended beside this one.
        same = self._texts.get(state.prompt, NOTHING)
        count, state.match, total = find_tree(
            state.own, self._earlier, tail, same, depth, self._weights, self._matches, self._nodes
        )
        found = np.empty((request.budget, 6))
        rates, chain = state.hits / state.tries, max(request.shape) == 1
        size = likeliest_nodes(
            self._nodes, count, total, state.match, rates, state.ends, chain, *self._scratch, found
        )
        return found[:size]

    def commit(
        self, sequence: TokenSequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        path = self._note_likelihoods(sequence, draft, token_ids)
        if draft is None or not len(draft):
            return
        for depth in range(len(path)):
            state.count_tried(depth, hit=True)
        # The first rejected level was tried too; those behind it were not.
        if has_children(draft, path) and len(path) < len(token_ids):
            state.count_tried(len(path), hit=False)

    def learn(self, sequence: TokenSequence) -> None:
        prompt = hash(sequence.prompt_ids)
        if prompt in self._texts:
            return
        text = [*sequence.tokens[1 - self._room :], SEPARATOR]
        first = int(self._earlier.written[0])
        add_tokens(self._earlier, np.array(text, np.int64))
        self._texts[prompt] = (first, first + len(text))
        overwritten = first + len(text) - self._room
        while (oldest := next(iter(self._texts.items())))[1][1] <= overwritten:
            del self._texts[oldest[0]]
