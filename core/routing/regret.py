"""Regret: extra LLM passes of a choice of drafters, compared with choices known only in hindsight.

Counted on a finished text that each SSM has read once, from the token that it would have drafted at
each position. An SSM's draft at a position is the chain of its tokens from there on that equal the
text's, at most `depth` of them; a round commits that chain and one more token.

The best choice for one round, the longest chain, is also the best for the whole text: of two rounds
the one that begins earlier never ends later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import comb
from typing import Any

__all__ = ["RoutingTrial", "Regret", "chain_lengths", "regret_of"]

# The largest number of groups of SSMs that are compared: each takes a walk through the text, and
# their number grows as a binomial coefficient.
MOST_GROUPS = 5000


@dataclass(frozen=True, slots=True)
class RoutingTrial:
    """One choice of drafters: with it, the text of `tokens` tokens takes `passes` LLM passes."""

    drafters: tuple[str, ...]
    passes: int
    tokens: int

    @property
    def tokens_per_pass(self) -> float:
        """Tokens per LLM pass; 0 without a pass."""
        return self.tokens / self.passes if self.passes else 0.0

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RoutingTrial:
        """From JSON's own types."""
        return cls(tuple(plain["drafters"]), plain["passes"], plain["tokens"])


@dataclass(frozen=True, slots=True)
class Regret:
    """`routed`: the choice that was made. `alone`: each SSM as the only drafter, in order;
    `fixed`: the best of these. `group`: the best fixed group of as many SSMs as were routed at
    once, None if only one was, or if there are more than MOST_GROUPS such groups. `oracle`: the
    best SSM in each round. `depth`: the most tokens of a draft."""

    depth: int
    routed: RoutingTrial
    alone: tuple[RoutingTrial, ...]
    fixed: RoutingTrial
    group: RoutingTrial | None
    oracle: RoutingTrial

    def against(self, other: RoutingTrial) -> float:
        """The regret against another choice: extra passes as a share of that choice's; below 0
        where the routed choice needed fewer."""
        return self.routed.passes / other.passes - 1 if other.passes else 0.0

    def to_plain(self) -> dict[str, Any]:
        """Only JSON's own types, but for tuples."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Regret:
        """The inverse of `to_plain`."""
        trial, group = RoutingTrial.from_plain, plain["group"]
        return cls(
            plain["depth"],
            trial(plain["routed"]),
            tuple(map(trial, plain["alone"])),
            trial(plain["fixed"]),
            trial(group) if group else None,
            trial(plain["oracle"]),
        )


def chain_lengths(hits: Sequence[bool], depth: int) -> list[int]:
    """By position, how many draft tokens from there on equal the text's, at most `depth`."""
    lengths = [0] * len(hits)
    # From the end: the run of hits from a position on is one longer than the run from the next
    # position. The run itself is not limited to `depth`.
    run = 0
    for position in range(len(hits) - 1, -1, -1):
        run = run + 1 if hits[position] else 0
        lengths[position] = min(run, depth)
    return lengths


def regret_of(
    hits: Mapping[str, Sequence[bool]], routes: Sequence[Collection[str]], depth: int
) -> Regret:
    """`hits`: by SSM, whether its token at each position is the text's; `routes`: the SSMs that
    were routed at each position. One entry per token, at least one token and one SSM."""
    chains = {name: chain_lengths(row, depth) for name, row in hits.items()}
    size = len(routes)

    def trial(
        drafters: tuple[str, ...], drafters_at: Callable[[int], Collection[str]]
    ) -> RoutingTrial:
        def chain(position: int) -> int:
            return max(
                (chains[name][position] for name in drafters_at(position) if name in chains),
                default=0,
            )

        return RoutingTrial(drafters, _passes(size, chain), size)

    def always(names: tuple[str, ...]) -> RoutingTrial:
        return trial(names, lambda _: names)

    alone = tuple(always((name,)) for name in hits)
    routed_names = tuple(name for name in hits if any(name in route for route in routes))
    routed = trial(routed_names, lambda position: routes[position])
    # The group's size: the largest number of SSMs with `hits` that were routed at one position.
    count = max((len([name for name in route if name in hits]) for route in routes), default=1)
    group = None
    if 1 < count <= len(hits) and comb(len(hits), count) <= MOST_GROUPS:
        group = min(map(always, combinations(hits, count)), key=lambda one: one.passes)
    fixed = min(alone, key=lambda one: one.passes)
    # The oracle: with all SSMs in every round `chain` is the longest of theirs.
    return Regret(depth, routed, alone, fixed, group, always(tuple(hits)))


def _passes(size: int, chain: Callable[[int], int]) -> int:
    position = passes = 0
    while position < size:
        # The accepted chain and the LLM's own token.
        position += chain(position) + 1
        passes += 1
    return passes
