"""NgramDrafter: prompt lookup. Continues the text as it went on where its last tokens occurred
before; where that runs into the end of the text, the text repeats itself, and so does the draft.

Costs no model pass. Its score is the acceptance measured at that match length, never 1; every
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
    told: list[float] = field(default_factory=list)


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

    def draft(self, asks: Many[DraftRequest]) -> list[Draft]:
        drafts = []
        for ask in asks:
            start = time.perf_counter()
            state = self._states[ask.sequence.run_id]
            tokens = self._continuation(state, ask) if ask.worth_starting else []
            score = state.hits[state.match] / state.tries[state.match]
            timed = Timed(self._name, "draft", start, time.perf_counter())
            drafts.append(_chain(tokens, score, timed))
        return drafts

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        accepted = len(draft.walk(token_ids)) if draft is not None else 0
        if needs_likelihoods(sequence.speculation):
            state.told += _told(draft, accepted, len(token_ids))
        if draft is None or not len(draft):
            return
        state.hits[state.match] += accepted
        # The first rejected token was tried too; those behind it were not.
        state.tries[state.match] += min(accepted + 1, len(draft))

    def close(self, sequence: Sequence) -> None:
        self._states.pop(sequence.run_id, None)

    def temperature(self, sequence: Sequence) -> float:
        return 1.0

    def likelihoods(self, sequence: Sequence) -> list[float]:
        state = self._states.get(sequence.run_id)
        told = state.told if state else []
        if state:
            state.told = []
        return told

    def _continuation(self, state: _State, ask: DraftRequest) -> list[int]:
        tokens = ask.sequence.tokens
        _index(state, tokens)
        steps = min(len(ask.shape), ask.budget)
        for length in range(min(LONGEST_MATCH, len(tokens) - 1), 0, -1):
            end = state.where.get(tuple(tokens[-length:]))
            if end is not None:
                state.match = length
                return _until_end(_onwards(tokens[end:], steps), ask.sequence.eos_ids)
        state.match = 0
        return []


def _index(state: _State, tokens: list[int]) -> None:
    """Enters every gram that ends before the last token; each token is visited once."""
    for end in range(max(1, state.indexed + 1), len(tokens)):
        for length in range(1, min(LONGEST_MATCH, end) + 1):
            state.where[tuple(tokens[end - length : end])] = end
        state.indexed = end


def _onwards(tokens: list[int], steps: int) -> list[int]:
    """`steps` tokens: what went on from the match to the end of the text, and where that is too
    short the same again, since behind it the draft itself is what occurred before."""
    repeats = -(-steps // len(tokens)) if steps else 0
    return (tokens[:steps] * repeats)[:steps]


def _told(draft: Draft | None, accepted: int, count: int) -> list[float]:
    """What it gave to `count` committed tokens, of which it foretold the first `accepted`."""
    scores = draft.scores if draft is not None else []
    right = scores[:accepted][:count]
    wrong = [0.0] if len(scores) > accepted else []  # behind a wrong token it said nothing
    told = (right + wrong)[:count]
    return told + [math.nan] * (count - len(told))


def _until_end(tokens: list[int], eos_ids: frozenset[int]) -> list[int]:
    """An end-of-text token has nothing behind it."""
    ends = [i for i, token_id in enumerate(tokens) if token_id in eos_ids]
    return tokens[: ends[0] + 1] if ends else tokens


def _chain(tokens: list[int], score: float, timed: Timed) -> Draft:
    count = len(tokens)
    return Draft(
        token_ids=tokens,
        parents=[i - 1 if i else ROOT for i in range(count)],
        scores=[score] * count,
        qs=[1.0] * count,
        ranks=[0] * count,
        timed=(timed,),
    )
