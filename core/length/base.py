"""The length policy's protocol: what it may decide before and during a draft, and what it is told.

Plain numbers only: a policy never sees a model, a tree or a token. One policy serves one run; what
it measured about the machine (`Costs`) belongs to the engine and outlives the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from core.events import Estimate

__all__ = [
    "Auditions",
    "Choice",
    "DraftOutcome",
    "LengthPolicy",
    "Limits",
    "RoundOutcome",
    "Stop",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """A Stop's answers to one drafter as plain numbers, for the native kernel, which cannot ask in
    between: a node may have children if its score is at least `least`; no child lies deeper than
    `longest`; nodes of depth i + 1 are drafted where the cumulative scores of their parents sum, at
    most 1, to at least `scores[i]` (None: always).
    """

    least: float = -math.inf
    longest: int | None = None
    scores: tuple[float, ...] | None = None


class Stop(Protocol):
    """Asked while a drafter drafts; answers depend on what is drafted already, never on what a
    further step would draw."""

    def grows(self, score: float) -> bool:
        """Whether a node whose own score is this may have children."""
        ...

    def steps(self, drafter: str, depth: int, chances: Sequence[float]) -> bool:
        """Whether another model pass is worth its time, which would put children at `depth` (from
        1; depth 1 is asked too, with chances [1.0]) below nodes whose chances to be accepted, as
        products of scores, are `chances`."""
        ...

    def limits(self, drafter: str) -> Limits | None:
        """The same as numbers, as long as nothing is observed; None where it cannot be said so."""
        ...

    def keeps(self, drafter: str, depth: int, chance: float) -> bool:
        """Whether a drafted node is worth verifying. Its parent is kept if it is. Not asked where
        nothing drawn may be dropped (`mss`, `traversal`)."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The coming round: at most `length` steps (0: plain decoding, no drafter runs).

    `drafters`: who drafts, None for all. `estimates`: what is expected of each candidate;
    `predicted_ms`: of this round (0: nothing is). `reason`: a sentence for the reader.
    """

    length: int
    reason: str = ""
    drafters: frozenset[str] | None = None
    stop: Stop | None = None
    estimates: tuple[Estimate, ...] = ()
    predicted_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class DraftOutcome:
    """What one drafter's draft cost and came to.

    `ms`: catch-up (`start_ms` of it) and drafting together, `steps` model passes after the
    catch-up's own; `prefill_ms` more were needed to read the prompt, if it was this draft's turn.
    Drafted nodes with their depths and `chances` (products of scores), in parallel, whether they
    were verified or not; `num_verified` of them were. `path`: its own nodes along the committed
    text. `credit`: accepted tokens that no drafter before it (in the run's order) proposed.
    `ahead`: it was begun during the last verification, so its `ms` and `steps` are not those of a
    whole draft.
    """

    ms: float
    steps: int
    depths: tuple[int, ...]
    chances: tuple[float, ...]
    path: tuple[int, ...]
    credit: int
    start_ms: float = 0.0
    prefill_ms: float = 0.0
    ahead: bool = False
    num_verified: int = 0

    @property
    def accepted_depth(self) -> int:
        """How far its own tree went along with the committed text."""
        return len(self.path)


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What one round cost and gave; `length` is what was chosen for it, less where what was found
    could not be drafted (the text ended): then it was made with another length than the policy's.

    `num_tokens` committed (accepted and the LLM's own, before any cut), `num_nodes` verified (of
    each depth from 1 `widths`) in `verify_ms` (the LLM's pass) behind `context` cached tokens;
    `round_ms` is its stages and, of a lone request, what lies between them, less
    `hidden_ms`: what of the drafting a pass over other requests hid.
    """

    length: int
    num_tokens: int
    num_nodes: int
    verify_ms: float
    round_ms: float
    drafts: Mapping[str, DraftOutcome] = field(default_factory=dict)
    context: int = 0
    hidden_ms: float = 0.0
    widths: tuple[int, ...] = ()


class LengthPolicy(Protocol):
    """Chooses each round's length and learns from what came of it."""

    def choose(self) -> Choice:
        """The coming round. Asked once a round; asking again without `observe` changes nothing."""
        ...

    def observe(self, outcome: RoundOutcome) -> None:
        """What the last chosen round came to."""
        ...


@runtime_checkable
class Auditions(Protocol):
    """A length policy that may choose who drafts, and then is told before the first round who
    foresees the prompt."""

    @property
    def chooses(self) -> bool:
        """Whether there is more than one to choose from."""
        ...

    def observe_audition(self, fits: Mapping[str, float]) -> None:
        """How probable SSMs held the prompt's last tokens: mean logarithms, by name."""
        ...
