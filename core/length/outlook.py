"""Outlook: what a round of each length would cost and give, by all that is measured so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from core.budget import shares
from core.config import SpeculationConfig
from core.costs import Average, Costs, Rates
from core.events import Estimate
from core.length.base import RoundOutcome
from core.length.cover import Cover
from core.length.team import Team
from core.mechanisms import combine_rule, draft_kind

__all__ = ["Outlook"]

HORIZON = 24.0
TINY_MS = 1e-6


class Outlook:
    """Costs come from the engine's `Costs`; acceptance of each set of teams is this run's."""

    def __init__(self, config: SpeculationConfig, costs: Costs) -> None:
        self.costs = costs
        self.cover = Cover()
        self._context = 0
        # Worked out once a round.
        self._estimates: dict[frozenset[str], tuple[Estimate, ...]] = {}
        self._sizes: dict[int, list[tuple[int, float]]] = {}
        # What the configuration says, for so many drafters.
        self._budgets: dict[int, int | None] = {}
        self._longest: dict[int, int] = {}
        self._config = config
        self._most = config.max_speculation_length
        self._verified = Average(HORIZON)
        self._rates: dict[frozenset[str], Rates] = {}
        shape = config.shape(config.max_speculation_length)
        self._layers = [min(layer, 10_000) for layer in accumulate(shape, mul)]
        if draft_kind(config.draft).by_score:
            self._layers = [max(2, *shape)] * len(shape)
        self._nodes: list[int] = [0, *accumulate(self._layers)]
        # Nodes verified for each that a layer may have: what is proposed twice, or is not worth it,
        # is not verified, and of a wide layer that is most.
        self._kept = [Average(HORIZON) for _ in self._layers]
        self._expected: list[float] = list(map(float, self._nodes))

    def refresh(self, context: int) -> None:
        """New measurements are in; so many tokens are cached."""
        self._context = context
        self._estimates.clear()
        self._sizes.clear()

    # -- costs --

    def budget(self, drafters: int) -> int | None:
        """Nodes for each of so many drafters; None without a limit."""
        if drafters not in self._budgets:
            self._budgets[drafters] = self._budget(drafters)
        return self._budgets[drafters]

    def _budget(self, drafters: int) -> int | None:
        most = self._config.max_tree_nodes
        if not isinstance(most, int):
            return None
        # A pool is of all its drafters, and its largest share is the SSMs' tree.
        pooled = combine_rule(self._config.combine).pooled
        names = self._config.drafters if pooled else self._config.drafters[:drafters]
        divided = shares(self._config.combine, most, names)
        return max(1, (max if pooled else min)(divided, default=most))

    def longest(self, drafters: int) -> int:
        """The longest draft that fits in the node budget of each of so many drafters."""
        if drafters not in self._longest:
            self._longest[drafters] = self._fitting(drafters)
        return self._longest[drafters]

    def _fitting(self, drafters: int) -> int:
        budget, most = self.budget(drafters), self._most
        if budget is None or draft_kind(self._config.draft).by_score:
            return most if budget is None else min(most, budget)
        return max(1, max(s for s in range(most + 1) if self._nodes[s] <= budget))

    def limit(self, drafters: int) -> str:
        """What keeps drafts of so many drafters from being longer, in words."""
        budget, longest = self.budget(drafters), self.longest(drafters)
        if budget is None or longest >= self._most:
            return f"max_speculation_length is {self._most}"
        bound = f"max_tree_nodes is {self._config.max_tree_nodes}"
        if drafters > 1 and combine_rule(self._config.combine).node_budget != "each":
            bound += f", which leaves {budget} for each of {drafters} drafters"
        if draft_kind(self._config.draft).by_score:
            return bound
        return f"{bound}, and a draft of {longest + 1} has {self._nodes[longest + 1]} nodes"

    def nodes(self, length: int, drafters: int = 1) -> int:
        """Nodes to verify after drafts of so many steps by so many drafters."""
        budget, expected = self.budget(drafters), self._expected[length]
        return round((expected if budget is None else min(expected, budget)) * drafters)

    def sizes(self, drafters: int) -> list[tuple[int, float]]:
        """Nodes, and the milliseconds to verify them, of each length that so many drafters can."""
        if drafters not in self._sizes:
            counts = [self.nodes(s, drafters) for s in range(self.longest(drafters) + 1)]
            self._sizes[drafters] = [(n, self.verify_ms(n)) for n in counts]
        return self._sizes[drafters]

    @property
    def nodes_lately(self) -> int:
        """Nodes verified in a round with drafts, of late."""
        return round(self._verified.get())

    def verify_ms(self, nodes: int) -> float:
        return self.costs.verify_ms(nodes, self._context)

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
        reached = [min(_depth(draft.depths), self._most) for draft in outcome.drafts.values()]
        for i in range(max(reached, default=0)):
            planned = self._layers[i] * sum(1 for one in reached if one > i)
            verified = outcome.widths[i] if i < len(outcome.widths) else 0
            self._kept[i].add(verified / planned)
        share, total = 1.0, 0.0
        for i, layer in enumerate(self._layers):
            share = self._kept[i].get(share)
            total += layer * share
            self._expected[i + 1] = total
        self._verified.add(outcome.num_nodes)
        if teams:
            rates = self._rates.setdefault(_key(teams), Rates())
            rates.observe(max(0, outcome.num_tokens - 1), max(1, depth))

    def estimates(self, teams: Sequence[Team]) -> tuple[Estimate, ...]:
        """Of each length from 0 to the longest possible, were these teams to draft."""
        key = _key(teams)
        if key not in self._estimates:
            self._estimates[key] = self._estimated(key, teams)
        return self._estimates[key]

    def _estimated(self, key: frozenset[str], teams: Sequence[Team]) -> tuple[Estimate, ...]:
        plain = Estimate(0, 0, 1.0, self.plain_ms)
        if not teams:
            return (plain,)
        sizes = self.sizes(sum(len(team.names) for team in teams))[1:]
        rates = teams[0].rates.upto(len(sizes))
        if len(teams) > 1:
            rates = self._rates.get(key, Rates()).upto(len(sizes), rates)
        start, step = sum(t.start_ms for t in teams), sum(t.step_ms for t in teams)
        # Verifying nothing adds nothing: what is left of it is the books.
        ms = self.plain_ms + self.added_ms(0) - self.verify_ms(0)
        found, tokens, reach = [plain], 1.0, 1.0
        for length, (rate, (nodes, verify_ms)) in enumerate(zip(rates, sizes, strict=True), 1):
            reach *= rate
            tokens += reach
            drafting = self.cover.charged(start + (length - 1) * step)
            found.append(Estimate(length, nodes, tokens, ms + drafting + verify_ms))
        return tuple(found)


def _key(teams: Sequence[Team]) -> frozenset[str]:
    return frozenset(team.label for team in teams)


def _depth(depths: Sequence[int]) -> int:
    return max(depths, default=0)
