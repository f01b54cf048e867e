"""NgramDrafter: prompt lookup. Proposes what followed the last occurrence of the text's end; if
that runs into the end of the text, the text is periodic and the draft repeats it.

Costs no model pass. Its score is the acceptance rate measured at that match length, never 1; every
proposal is deterministic, so its q is one-hot.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from core.config.mechanisms import NGRAM
from core.drafters.base import DraftRequest
from core.drafters.weights import needs_likelihoods
from core.events.parts import Timed
from core.sequence import Sequence
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["NGRAM", "NgramDrafter"]

# Tokens at the text's end that must have occurred before; longer matches are tried first.
LONGEST_MATCH = 4


@dataclass
class _State:
    """`where[gram]`: the end (exclusive) of its last occurrence that has a continuation.

    `hits` and `tries` count accepted and tried tokens for each match length, with one of each in
    two to begin with.
    """

    where: dict[tuple[int, ...], int] = field(default_factory=dict)
    indexed: int = 0
    match: int = 0
    hits: list[float] = field(default_factory=lambda: [1.0] * (LONGEST_MATCH + 1))
    tries: list[float] = field(default_factory=lambda: [2.0] * (LONGEST_MATCH + 1))
    likelihoods: list[float] = field(default_factory=list)


class NgramDrafter:
    """See Drafter. Drafts one chain: the continuation of the longest, latest match."""

    def __init__(self, name: str = NGRAM) -> None:
        self._name = name
        self._states: dict[str, _State] = {}

    @property
    def name(self) -> str:
        return self._name

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        self._states[sequence.run_id] = _State()
        return ()

    def draft(self, requests: Many[DraftRequest]) -> list[Draft]:
        drafts = []
        for request in requests:
            start = time.perf_counter()
            state = self._states[request.sequence.run_id]
            tokens = self._continuation(state, request) if request.worth_starting else []
            score = state.hits[state.match] / state.tries[state.match]
            span = Timed(self._name, "draft", start, time.perf_counter())
            drafts.append(_chain(tokens, score, span))
        return drafts

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        accepted = len(draft.walk(token_ids)) if draft is not None else 0
        if needs_likelihoods(sequence.speculation):
            state.likelihoods += _likelihoods(draft, accepted, len(token_ids))
        if draft is None or not len(draft):
            return
        state.hits[state.match] += accepted
        # The first rejected token was tried too; those after it were not.
        state.tries[state.match] += min(accepted + 1, len(draft))

    def close(self, sequence: Sequence) -> None:
        self._states.pop(sequence.run_id, None)

    def temperature(self, sequence: Sequence) -> float:
        return 1.0

    def likelihoods(self, sequence: Sequence) -> list[float]:
        state = self._states.get(sequence.run_id)
        found = state.likelihoods if state else []
        if state:
            state.likelihoods = []
        return found

    def _continuation(self, state: _State, request: DraftRequest) -> list[int]:
        tokens = request.sequence.tokens
        # Indexed at the draft, not at the commit: a round that does not draft pays nothing.
        _index(state, tokens)
        steps = min(len(request.shape), request.budget)
        for length in range(min(LONGEST_MATCH, len(tokens) - 1), 0, -1):
            end = state.where.get(tuple(tokens[-length:]))
            if end is not None:
                state.match = length
                return _until_end(_repeat_to(tokens[end:], steps), request.sequence.eos_ids)
        state.match = 0
        return []


def _index(state: _State, tokens: list[int]) -> None:
    """Enters every gram that ends before the last token; each token is visited once."""
    # Later occurrences overwrite earlier ones.
    for end in range(max(1, state.indexed + 1), len(tokens)):
        for length in range(1, min(LONGEST_MATCH, end) + 1):
            state.where[tuple(tokens[end - length : end])] = end
        state.indexed = end


def _repeat_to(tokens: list[int], steps: int) -> list[int]:
    """The first `steps` of `tokens` (from the match to the end of the text), repeated if they are
    too few."""
    # Rounded up.
    repeats = -(-steps // len(tokens)) if steps else 0
    return (tokens[:steps] * repeats)[:steps]


def _likelihoods(draft: Draft | None, accepted: int, count: int) -> list[float]:
    """The probabilities it gave to `count` committed tokens; the first `accepted` of them were its
    own proposals."""
    scores = draft.scores if draft is not None else []
    right = scores[:accepted][:count]
    wrong = [0.0] if len(scores) > accepted else []  # no prediction after a wrong token
    known = (right + wrong)[:count]
    return known + [math.nan] * (count - len(known))


def _until_end(tokens: list[int], eos_ids: frozenset[int]) -> list[int]:
    """`tokens` up to the first end-of-text token."""
    ends = [i for i, token_id in enumerate(tokens) if token_id in eos_ids]
    return tokens[: ends[0] + 1] if ends else tokens


def _chain(tokens: list[int], score: float, span: Timed) -> Draft:
    count = len(tokens)
    return Draft(
        token_ids=tokens,
        parents=[i - 1 if i else ROOT for i in range(count)],
        scores=[score] * count,
        qs=[1.0] * count,
        ranks=[0] * count,
        timings=(span,),
    )
