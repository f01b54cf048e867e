"""SsmDrafter: a small speculative model (SSM) as a drafter.

Kept in step with the committed text without recomputing it: the KV of the accepted part of its own
draft is kept, and what is missing (after full acceptance its own last token, and whatever the
others proposed) is caught up in one pass at the next draft.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

import torch

from core.drafters.base import Ask, Draft
from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, growth
from core.models.language_model import Feed, LanguageModel, chain
from core.sequence import Sequence, Timed
from core.tree import ROOT

__all__ = ["SsmDrafter"]

PREFILL_CHUNK = 512


@dataclass
class _State:
    """What the drafter keeps of one sequence."""

    row: int
    calibration: Calibration


class SsmDrafter:
    """See Drafter. `vocab_size` is the LLM's: logits are padded to it with -inf, or cut."""

    def __init__(self, name: str, model: LanguageModel, vocab_size: int) -> None:
        self._name = name
        self._model = model
        self._vocab_size = vocab_size
        self._states: dict[str, _State] = {}
        self._carried = Calibration()

    @property
    def name(self) -> str:
        return self._name

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        carried = self._carried.copy() if sequence.speculation.carry_over else Calibration()
        state = _State(self._model.open_row(), carried)
        self._states[sequence.run_id] = state
        start = time.perf_counter()
        tokens = self._known(sequence.tokens[:-1])
        if len(sequence.tokens) > self._model.context_length or not tokens:
            return ()
        for i in range(0, len(tokens), PREFILL_CHUNK):
            part = tokens[i : i + PREFILL_CHUNK]
            self._model.forward([chain(state.row, part, last_only=True)])
            self._model.commit(state.row, range(len(part)))
        return (Timed(self._name, "prefill", start, time.perf_counter()),)

    def draft(self, asks: Many[Ask]) -> list[Draft]:
        start = time.perf_counter()
        fitting = {i: self._fitted(ask) for i, ask in enumerate(asks)}
        growths = {
            i: growth(ask, self._states[ask.sequence.run_id].calibration)
            for i, ask in fitting.items()
            if ask.worth_starting
        }
        if not growths:
            return [Draft() for _ in asks]
        logits = self._catch_up([fitting[i] for i in growths])
        caught_up = time.perf_counter()
        passes = self._grow(growths, fitting, logits)
        timed = (
            Timed(self._name, "catch_up", start, caught_up),
            Timed(self._name, "draft", caught_up, time.perf_counter()),
        )
        return [
            replace(growths[i].draft(), timed=timed, passes=passes[i]) if i in growths else Draft()
            for i in range(len(asks))
        ]

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        state = self._states.get(sequence.run_id)
        if state is None or draft is None:
            return
        path = draft.walk(token_ids)
        self._observe(state.calibration, draft, path, token_ids)
        fed = [draft.fed[node] for node in path if node in draft.fed]
        if self._model.length(state.row):
            self._model.commit(state.row, fed)

    def close(self, sequence: Sequence) -> None:
        state = self._states.pop(sequence.run_id, None)
        if state is not None:
            self._model.close_row(state.row)
            if sequence.speculation.carry_over:
                self._carried = state.calibration

    def temperature(self, sequence: Sequence) -> float:
        state = self._states.get(sequence.run_id)
        return state.calibration.temperature if state else 1.0

    # -- one draft --

    def _fitted(self, ask: Ask) -> Ask:
        """The ask, cut to this model's own context."""
        room = self._model.context_length - ask.sequence.root_position
        return replace(ask, shape=ask.shape[: max(0, room)])

    def _catch_up(self, asks: Many[Ask]) -> list[torch.Tensor]:
        """Feeds what was committed since; the logits after each root, (1, V)."""
        feeds = []
        for ask in asks:
            row = self._row(ask)
            missing = self._known(ask.sequence.tokens[self._model.length(row) :])
            feeds.append(chain(row, missing, last_only=True))
        logits = self._model.forward(feeds)
        for feed in feeds:
            self._model.commit(feed.row, range(len(feed.token_ids)))
        return [self._padded(rows) for rows in logits]

    def _grow(
        self, growths: dict[int, Growth], asks: dict[int, Ask], logits: list[torch.Tensor]
    ) -> dict[int, int]:
        """Drives the growths in lock-step; the passes each took part in."""
        active = list(growths)
        passes = dict.fromkeys(active, 1)
        while True:
            for i, rows in zip(active, logits, strict=True):
                growths[i].absorb(rows)
            active = [i for i in active if growths[i].frontier]
            if not active:
                return passes
            for i in active:
                passes[i] += 1
            feeds = [self._feed(self._row(asks[i]), growths[i]) for i in active]
            logits = [self._padded(rows) for rows in self._model.forward(feeds)]

    def _feed(self, row: int, grown: Growth) -> Feed:
        out = grown.out
        parents = [out.parents[node] for node in grown.frontier]
        return Feed(
            row,
            [out.token_ids[node] for node in grown.frontier],
            [ROOT if parent == ROOT else out.fed[parent] for parent in parents],
        )

    def _known(self, tokens: list[int]) -> list[int]:
        """Ids of the LLM's padding that this model's embedding lacks, replaced by its last: a worse
        draft at worst, since verification trusts no drafter."""
        return [min(token_id, self._model.vocab_size - 1) for token_id in tokens]

    def _row(self, ask: Ask) -> int:
        return self._states[ask.sequence.run_id].row

    def _padded(self, logits: torch.Tensor) -> torch.Tensor:
        missing = self._vocab_size - logits.shape[-1]
        if missing <= 0:
            return logits[..., : self._vocab_size]
        return torch.nn.functional.pad(logits, (0, missing), value=float("-inf"))

    @staticmethod
    def _observe(
        calibration: Calibration, draft: Draft, path: list[int], token_ids: tuple[int, ...]
    ) -> None:
        utilities = draft.utilities if draft.utilities is not None else draft.logits
        for node, token_id in zip([ROOT, *path], token_ids, strict=False):
            if utilities is not None and node in draft.rows:
                calibration.observe(utilities[draft.rows[node]], token_id)
