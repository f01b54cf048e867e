"""LookupDrafter: a base class for drafters without a model."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import numpy as np

from core.drafters.base import DraftRequest
from core.drafters.drafter_weights import needs_likelihoods
from core.events.parts import Timed
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.tree import ROOT

__all__ = ["LookupDrafter", "LookupState", "has_children"]

# Numbers of columns that `nodes_for` may return.
COLUMNS = (4, 6)


@dataclass(kw_only=True)
class LookupState:
    """State of one run. `likelihoods`: since the last call of `LookupDrafter.likelihoods`."""

    likelihoods: list[float] = field(default_factory=list)


State = TypeVar("State", bound=LookupState)


class LookupDrafter(ABC, Generic[State]):
    """See `core.drafters.base.Drafter`. `learns`: whether `learn` uses the texts of finished
    runs."""

    def __init__(self, name: str, *, learns: bool = True) -> None:
        self._name = name
        self.learns = learns
        self._states: dict[str, State] = {}

    @property
    def name(self) -> str:
        return self._name

    @abstractmethod
    def nodes_for(self, request: DraftRequest) -> np.ndarray:
        """Rows (n, 4) of token id, parent (-1: the text's last token), score, rank among siblings;
        parents first. At most `request.budget` rows and `len(request.shape)` levels; a chain if
        `max(request.shape)` is 1. Rows (n, 6) add context and share, see
        `core.events.parts.DraftRecord`."""

    def open(self, sequence: TokenSequence) -> tuple[Timed, ...]:
        self._states[sequence.run_id] = self._new_state(sequence)
        return ()

    def _new_state(self, sequence: TokenSequence) -> State:
        # A subclass that extends LookupState must override this method.
        return cast(State, LookupState())

    def commit(
        self, sequence: TokenSequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        state = self._states.get(sequence.run_id)
        if state is None:
            return
        path = draft.walk(token_ids) if draft is not None else []
        if needs_likelihoods(sequence.speculation):
            state.likelihoods += _likelihoods(draft, path, len(token_ids))
        if draft is not None:
            self._observe(state, draft, path, rejected=len(path) < len(token_ids))

    def _observe(self, state: State, draft: Draft, path: Sequence[int], *, rejected: bool) -> None:
        """Updates a subclass's acceptance statistics. `path`: the accepted nodes. `rejected`:
        whether another token was committed after `path`."""

    def close(self, sequence: TokenSequence) -> None:
        self._states.pop(sequence.run_id, None)

    def learn(self, sequence: TokenSequence) -> None:
        """Learns a finished run's text for later runs."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = []
        for request in requests:
            start = time.perf_counter()
            nodes = _as_rows(self.nodes_for(request) if request.worth_starting else ())
            timing = Timed(self._name, "draft", start, time.perf_counter())
            token_ids, parents, _, ranks, *optional = nodes.astype(np.int64).T.tolist()
            drafts.append(
                Draft(
                    token_ids=token_ids,
                    parents=parents,
                    scores=nodes[:, 2].tolist(),
                    qs=[1.0] * len(nodes),  # the proposals are deterministic
                    ranks=ranks,
                    timings=(timing,),
                    contexts=tuple(optional[0]) if optional else (),
                    shares=tuple(nodes[:, 5].tolist()) if optional else (),
                )
            )
        return drafts

    def temperature(self, sequence: TokenSequence) -> float:
        # Not calibrated: scores are meant to be acceptance rates already.
        return 1.0

    def likelihoods(self, sequence: TokenSequence) -> list[float]:
        state = self._states.get(sequence.run_id)
        if state is None:
            return []
        likelihoods, state.likelihoods = state.likelihoods, []
        return likelihoods


def _as_rows(nodes: object) -> np.ndarray:
    """`nodes` as an array. Raises ValueError for a wrong shape: a user may define `nodes_for`."""
    rows = np.asarray(nodes, np.float64)
    if not rows.size:
        return np.empty((0, 4))
    if rows.ndim != 2 or rows.shape[1] not in COLUMNS:
        raise ValueError(f"nodes_for returned shape {rows.shape}, not (nodes, 4) or (nodes, 6)")
    return rows


def has_children(draft: Draft, path: Sequence[int]) -> bool:
    """Whether the draft continues after `path`, a path of nodes from the root."""
    return (path[-1] if path else ROOT) in draft.parents


def _likelihoods(draft: Draft | None, path: Sequence[int], count: int) -> list[float]:
    """The probabilities that the draft gave to `count` committed tokens. `path`: the accepted
    nodes. 0 for the first token that the draft predicted wrongly, NaN for tokens without a
    prediction."""
    if draft is None:
        return [math.nan] * count
    scores = [draft.scores[node] for node in path]
    # A draft that ends with `path` predicts no further token.
    probabilities = (scores + ([0.0] if has_children(draft, path) else []))[:count]
    return probabilities + [math.nan] * (count - len(probabilities))
