"""Outlook: what a round of each length would cost and give, by all that is measured so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from core.config import SpeculationConfig
from core.costs import Average, Costs, Rates
from core.events import Estimate
from core.length.base import RoundOutcome
from core.length.team import Team

__all__ = ["Outlook"]

HORIZON = 24.0
TINY_MS = 1e-6


class Outlook:
    """Costs come from the engine's `Costs`; acceptance of each set of teams is this run's."""

    def __init__(self, config: SpeculationConfig, costs: Costs) -> None:
        self.costs = costs
        self.context = 0
        self._config = config
        # Nodes verified for each node drafted: what is proposed twice or dropped is not verified.
        self._density = Average(HORIZON)
        self._rates: dict[frozenset[str], Rates] = {}
        shape = config.shape(config.max_speculation_length)
        layers = accumulate(shape, mul)
        self._nodes = [0, *accumulate(min(layer, 10_000) for layer in layers)]
        if config.draft == "best_first":
            self._nodes = [max(2, *shape) * s for s in range(len(shape) + 1)]

    # -- costs --

    def budget(self, drafters: int) -> int | None:
        """Nodes for each of so many drafters; None without a limit."""
        most = self._config.max_tree_nodes
        return max(1, most // max(1, drafters)) if isinstance(most, int) else None

    def longest(self, drafters: int) -> int:
        """The longest draft that fits in the node budget of each of so many drafters."""
        budget, most = self.budget(drafters), self._config.max_speculation_length
        if budget is None or self._config.draft == "best_first":
            return most if budget is None else min(most, budget)
        return max(1, max(s for s in range(most + 1) if self._nodes[s] <= budget))

    def nodes(self, length: int, drafters: int = 1) -> int:
        """Nodes to verify after drafts of so many steps by so many drafters."""
        budget = self.budget(drafters)
        drafted = self._nodes[length] if budget is None else min(self._nodes[length], budget)
        return round(drafted * drafters * self._density.get(1.0))

    def verify_ms(self, nodes: int) -> float:
        return self.costs.verify_ms(nodes, self.context)

    def added_ms(self, nodes: int) -> float:
        """What verifying so many nodes, and keeping the books of a draft, adds to a plain round."""
        overhead = self.costs.overhead
        books = overhead[True].get(overhead[False].get()) - overhead[False].get()
        return self.verify_ms(nodes) - self.verify_ms(0) + max(0.0, books)

    @property
    def plain_ms(self) -> float:
        """A round without drafts."""
        return max(TINY_MS, self.verify_ms(0) + self.costs.overhead[False].get())

    def node_ms(self, nodes: int) -> float:
        """What the last node of so many adds, by the slope over the larger half of them."""
        half = nodes // 2
        span = max(1, nodes - half)
        return (self.verify_ms(half + span) - self.verify_ms(half)) / span

    # -- what comes of it --

    def observe(self, outcome: RoundOutcome, teams: Sequence[Team], depth: int) -> None:
        """A round in which these teams drafted, to this depth in all."""
        drafted = sum(
            self._nodes[min(_depth(o.depths), len(self._nodes) - 1)]
            for o in outcome.drafts.values()
            if o.depths
        )
        if drafted:
            self._density.add(outcome.num_nodes / drafted)
        if teams:
            rates = self._rates.setdefault(_key(teams), Rates())
            rates.observe(max(0, outcome.num_tokens - 1), max(1, depth))

    def estimates(self, teams: Sequence[Team]) -> tuple[Estimate, ...]:
        """Of each length from 0 to the longest possible, were these teams to draft."""
        drafters = sum(len(team.names) for team in teams)
        plain = Estimate(0, 0, 1.0, self.plain_ms)
        if not teams:
            return (plain,)
        longest = self.longest(drafters)
        rates = self._rates.get(_key(teams), Rates()).list(longest, teams[0].rates.list(longest))
        start = sum(team.start_ms for team in teams) + self.plain_ms
        step = sum(team.step_ms for team in teams)
        found, tokens, reach = [plain], 1.0, 1.0
        for length, rate in enumerate(rates, 1):
            reach *= rate
            tokens += reach
            nodes = self.nodes(length, drafters)
            ms = start + (length - 1) * step + self.added_ms(nodes)
            found.append(Estimate(length, nodes, tokens, ms))
        return tuple(found)


def _key(teams: Sequence[Team]) -> frozenset[str]:
    return frozenset(team.label for team in teams)


def _depth(depths: Sequence[int]) -> int:
    return max(depths, default=0)
