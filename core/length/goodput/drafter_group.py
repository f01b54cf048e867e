"""Team: drafters that are judged as one, with what their drafts came to in this run.

Under `union` and `vote_tree` each drafter is a team of its own. A vote or a pool is one drafter
made of several: what one of them adds shows in no round, so all of them draft or none does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import sqrt

from core.length.base import DraftOutcome, RoundOutcome
from core.length.cost_model import Acceptance, Average, Costs

__all__ = ["Drafted", "Team"]

HORIZON = 16.0
SURE_ROUNDS = 32
TENTH = 10


@dataclass(frozen=True, slots=True)
class Drafted:
    """One round's drafts of a team: milliseconds, model passes behind the first, nodes verified,
    depth drafted, and how far it was right."""

    ms: float
    steps: int
    nodes: int
    depth: int
    reached: int


class Team:
    """`rates`: conditional acceptance by depth. `rounds`: drafts since it was last taken on;
    `idle`: how often it was last asked in vain."""

    def __init__(self, names: tuple[str, ...], costs: Costs, rates: Acceptance) -> None:
        self.names = names
        self.label = names[0] if len(names) == 1 else " + ".join(names)
        self.rates = rates.rates
        self.idle = 0
        self._costs = [costs.drafting(name) for name in names]
        self._sure: list[deque[float]] = []
        self.reset()

    def reset(self) -> None:
        """Forgets how it did, but not what its rates are."""
        self.rounds = self.idle = 0
        self.tokens, self._squares = Average(HORIZON), Average(HORIZON)
        self.nodes, self.steps = Average(HORIZON), Average(HORIZON)

    @property
    def measured(self) -> bool:
        """Whether what it costs is known."""
        return all(costs.start.value is not None for costs in self._costs)

    @property
    def start_ms(self) -> float:
        return sum(costs.start.get() for costs in self._costs)

    @property
    def step_ms(self) -> float:
        return sum(costs.step_ms for costs in self._costs)

    @property
    def ms(self) -> float:
        """A draft's as long as they have been lately: from costs, which know no outliers."""
        return self.start_ms + self.steps.get() * self.step_ms

    @property
    def hoped(self) -> float:
        """Accepted tokens a draft, half a standard error above the mean: no chance verdicts."""
        mean, count = self.tokens.get(), max(1.0, self.tokens.weight)
        return mean + sqrt(max(0.0, self._squares.get() - mean * mean) / count) / 2

    def probe_ms(self, opened: frozenset[str]) -> float:
        """What two steps cost after a pause: with a prompt to read for whom this run has not."""
        late = sum(costs.late.get(costs.start.get()) for costs in self._costs)
        pairs = zip(self.names, self._costs, strict=True)
        prefill = sum(costs.prefill.get() for name, costs in pairs if name not in opened)
        return prefill + late + self.step_ms

    def drafted(self, outcome: RoundOutcome) -> Drafted | None:
        """Its part of a round; None where it did not draft."""
        found = [outcome.drafts[name] for name in self.names if name in outcome.drafts]
        ran = [draft for draft in found if draft.ms > 0 or draft.depths]
        if not ran:
            return None
        together = len(self.names) > 1
        return Drafted(
            ms=sum(draft.ms for draft in ran),
            steps=max(draft.steps for draft in ran),
            nodes=outcome.num_nodes if together else ran[0].num_verified,
            depth=max(_deepest(draft) for draft in ran),
            reached=max(0, outcome.num_tokens - 1) if together else ran[0].accepted_depth,
        )

    def observe(self, drafted: Drafted) -> None:
        """A full draft; probes are not observed."""
        self.rounds += 1
        self.tokens.add(drafted.reached)
        self._squares.add(drafted.reached**2)
        self.nodes.add(drafted.nodes)
        self.steps.add(drafted.steps)
        # A drafter that found nothing to propose has tried one step in vain.
        self.rates.observe(drafted.reached, max(1, drafted.depth))

    # -- how sure it is of itself --

    def note_sureness(self, chances: list[float], allowed: int) -> None:
        """P(accepted) of each depth drafted; depths that were allowed and not drafted count 0."""
        self._sure += [deque(maxlen=SURE_ROUNDS) for _ in range(allowed - len(self._sure))]
        for i in range(min(allowed, len(self._sure))):
            self._sure[i].append(chances[i] if i < len(chances) else 0.0)

    @property
    def forgets(self) -> bool:
        """Whether there were more drafts than are looked at to say how sure it is."""
        return bool(self._sure) and len(self._sure[0]) == SURE_ROUNDS

    def sure(self, depth: int) -> float | None:
        """What one draft in ten reaches for P(accepted) at a depth; None if it never got there."""
        if depth == 0:
            return 1.0
        seen = sorted(self._sure[depth - 1], reverse=True) if depth <= len(self._sure) else []
        return seen[len(seen) // TENTH] if seen else None


def _deepest(draft: DraftOutcome) -> int:
    return max(draft.depths, default=0)
