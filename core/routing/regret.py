"""Regret: what a choice of drafters cost, beside choices that are known only afterwards.

Counted on a text that is written: each SSM has read it once and said, at every place, which token
it would have drafted there. A draft is then a chain of at most `depth` tokens, as long as the SSM's
tokens are the text's; a round commits that chain and one more token. Every choice walks the text
with its own rounds. Plain numbers: no model, no time.

The best choice for a round alone, the longest chain, is also the best for the whole text: a round
that begins earlier never ends later than one that begins behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

__all__ = ["RoutingTrial", "Regret", "chain_lengths", "regret_of"]

# More groups than this are not tried one by one.
MOST_GROUPS = 5000


@dataclass(frozen=True, slots=True)
class RoutingTrial:
    """One way to choose drafters: `passes` of the LLM that the text takes with it."""

    drafters: tuple[str, ...]
    passes: int
    tokens: int

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / self.passes if self.passes else 0.0


@dataclass(frozen=True, slots=True)
class Regret:
    """`routed`: the choice that was made. `alone`: each SSM in every round, in their order.
    `fixed`: the best of these; `group`: the best that keeps as many SSMs as were routed, None where
    that is one or there are too many groups. `oracle`: the best choice anew in each round. Passes
    beyond another choice's, over that choice's, are the regret against it."""

    depth: int
    routed: RoutingTrial
    alone: tuple[RoutingTrial, ...]
    fixed: RoutingTrial
    group: RoutingTrial | None
    oracle: RoutingTrial

    def against(self, other: RoutingTrial) -> float:
        """As a share; below 0 where the routed choice did better."""
        return self.routed.passes / other.passes - 1 if other.passes else 0.0


def chain_lengths(hits: Sequence[bool], depth: int) -> list[int]:
    """How many tokens of a draft that begins at each place are the text's; at most `depth`."""
    lengths = [0] * len(hits)
    following = 0
    for place in range(len(hits) - 1, -1, -1):
        following = following + 1 if hits[place] else 0
        lengths[place] = min(following, depth)
    return lengths


def regret_of(
    hits: Mapping[str, Sequence[bool]], routes: Sequence[Collection[str]], depth: int
) -> Regret:
    """`hits`: of each SSM, whether its token at a place is the text's; `routes`: the SSMs that were
    routed there. All of the text's length, which is at least 1; at least one SSM."""
    chains = {name: chain_lengths(own, depth) for name, own in hits.items()}
    size = len(routes)

    def choice(
        drafters: tuple[str, ...], drafters_at: Callable[[int], Collection[str]]
    ) -> RoutingTrial:
        def chain(place: int) -> int:
            return max(
                (chains[name][place] for name in drafters_at(place) if name in chains), default=0
            )

        return RoutingTrial(drafters, _passes(size, chain), size)

    def always(names: tuple[str, ...]) -> RoutingTrial:
        return choice(names, lambda _: names)

    alone = tuple(always((name,)) for name in hits)
    routed = choice(tuple(name for name in hits if any(name in r for r in routes)), _of(routes))
    count = max((len([name for name in route if name in hits]) for route in routes), default=1)
    group = None
    if 1 < count <= len(hits) and comb(len(hits), count) <= MOST_GROUPS:
        group = min(map(always, combinations(hits, count)), key=lambda one: one.passes)
    fixed = min(alone, key=lambda one: one.passes)
    return Regret(depth, routed, alone, fixed, group, always(tuple(hits)))


def _of(routes: Sequence[Collection[str]]) -> Callable[[int], Collection[str]]:
    return lambda place: routes[place]


def _passes(size: int, chain: Callable[[int], int]) -> int:
    place = passes = 0
    while place < size:
        place += chain(place) + 1
        passes += 1
    return passes
