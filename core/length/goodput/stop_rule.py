"""StepRule: `goodput`'s answers while a draft is made, by one price for tokens and milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.length.base import Limits
from core.length.cost_model import Acceptance
from core.length.goodput.hysteresis import Step

__all__ = ["StepRule", "Terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """One drafter's, for one round. `steps[i]`: the time of the step from i to i + 1, and the
    tokens it brings if the node before it was accepted; `share` of its tokens are beyond what the
    other drafters bring. `longest`: its own bound, drafted to in any case if `forced`."""

    acceptance: Acceptance
    steps: tuple[Step, ...]
    share: float
    longest: int
    forced: bool = False


class StepRule:
    """See Stop.

    Lossless under `mss` and `traversal` too: whether a pass is run depends on the scores of tokens
    that are drawn already, and on what earlier rounds came to, never on what the pass would draw.
    Given its path, a node's children are then drawn from q, or not at all, and the walk keeps the
    LLM's distribution in either case (ALGORITHMS 2). `keeps`, which looks at the drawn token
    itself, is not asked there.
    """

    def __init__(self, terms: Mapping[str, Terms], price: float, node_ms: float) -> None:
        self._terms = terms
        self._price = price
        self._node_ms = node_ms

    def grows(self, score: float) -> bool:
        """Single nodes are not judged: their layer is."""
        return True

    def steps(self, drafter: str, depth: int, chances: Sequence[float]) -> bool:
        """Expected tokens of the step against its time. The first step is the crew's decision."""
        terms = self._terms.get(drafter)
        if terms is None or depth > min(terms.longest, len(terms.steps)):
            return False
        if depth == 1 or terms.forced:
            return True
        odds, step = terms.acceptance.odds(depth - 1), terms.steps[depth - 1]
        reached = min(1.0, sum(odds(chance) for chance in chances))
        return Step(step.ms, reached * step.tokens * terms.share).pays(self._price)

    def limits(self, drafter: str) -> Limits | None:
        terms = self._terms.get(drafter)
        if terms is None:
            return Limits(longest=0)
        longest = min(terms.longest, len(terms.steps))
        if terms.forced:
            return Limits(longest=longest)
        rules = [(0.0, 0.0, 1.0, 0.0)]
        for depth, step in enumerate(terms.steps[1:longest], 1):
            a, b = terms.acceptance.seen(depth)
            rules.append((a, b, step.tokens * terms.share, self._price * step.ms))
        return Limits(longest=longest, rules=tuple(rules))

    def keeps(self, drafter: str, depth: int, chance: float) -> bool:
        """A node's chance against the time that verifying it adds."""
        terms = self._terms.get(drafter)
        if terms is None:
            return True
        worth = terms.acceptance.odds(depth)(chance) * terms.share
        return worth >= self._price * self._node_ms
