"""The Drafter protocol: asks in, drafts out; plain values and the drafter's own tensors.

A drafter serves many sequences: it keeps what it needs for each between `open` and `close`. It
never sees the engine, the LLM or the other drafters.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

from core.events.timing import Timed
from core.length.base import Stop
from core.sequence import Sequence
from core.trees.draft import Draft

__all__ = ["DraftRequest", "Drafter", "Drafts"]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One sequence's turn to draft. `index` is the drafter's place in the run's fixed order.

    `shape` <k1,...,km>: children per frontier node at each step, already cut to `budget` nodes; its
    length bounds the depth. `kind` is a draft kind of `core.config.DRAFTS`. `stop`, asked by the
    drafter's `name`, may end the draft earlier (None: nothing does). `beyond`: how many tokens
    behind the text the draft begins (drafting ahead).
    """

    sequence: Sequence
    index: int
    kind: str
    shape: tuple[int, ...]
    budget: int
    name: str = ""
    stop: Stop | None = None
    beyond: int = 0

    @property
    def root_position(self) -> int:
        """Position of the token that the draft hangs under."""
        return self.sequence.root_position + self.beyond

    @property
    def worth_starting(self) -> bool:
        """Whether there is a step to take, and the length policy wants it taken."""
        return bool(self.shape) and self.steps(1, [1.0])

    def steps(self, depth: int, chances: Many[float]) -> bool:
        """See `core.length.Stop.steps`."""
        return self.stop is None or self.stop.steps(self.name, depth, chances)


Drafts = list[Draft] | BaseException
"""A drafter's answer, one draft an ask, or how it failed."""


class Drafter(Protocol):
    """Proposes tokens. `name` is unique among a run's drafters."""

    @property
    def name(self) -> str: ...

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        """Takes up a sequence and reads its tokens but the last; returns the time it took."""
        ...

    def draft(self, asks: Many[DraftRequest]) -> list[Draft]:
        """One draft an ask, in lock-step. A draft may be empty; it stays valid until `commit`."""
        ...

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        """Learns what was committed after `draft` (None: it was not asked); keeps what it can."""
        ...

    def close(self, sequence: Sequence) -> None:
        """Forgets the sequence; unknown ones are ignored."""
        ...

    def temperature(self, sequence: Sequence) -> float:
        """The calibration temperature of its scores; 1 where there is none."""
        ...

    def likelihoods(self, sequence: Sequence) -> list[float]:
        """The unprocessed, uncalibrated probabilities it gave to tokens of the text, in their
        order, since it was last asked; NaN where it had nothing to say. Kept only for runs whose
        weights need them (`core.drafters.weights`)."""
        ...
