"""Regret: extra LLM passes of a choice of drafters, compared with choices known only in hindsight.

Regret is counted on a finished text. An SSM's draft at a position is its consecutive tokens from
this position on that equal the text's, at most `depth` tokens. A round commits the longest draft of
its SSMs and one more token.

Taking the longest draft in each round also gives the fewest passes for the whole text: of two
rounds with longest drafts, the round that begins later does not end earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import comb
from typing import Any

__all__ = ["RoutingTrial", "Regret", "chain_lengths", "regret_of"]

# The largest number of groups of SSMs that are compared.
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
    """`routed`: the choice that was made. `alone`: each SSM as the only drafter; `fixed`: the best
    of `alone`. `group`: the best fixed group; its size is the largest number of SSMs that were
    routed at one position. None if this size is below 2, or if there are more than MOST_GROUPS
    groups. `oracle`: the best SSM in each round. `depth`: the largest number of tokens in a
    draft."""

    depth: int
    routed: RoutingTrial
    alone: tuple[RoutingTrial, ...]
    fixed: RoutingTrial
    group: RoutingTrial | None
    oracle: RoutingTrial

    def against(self, other: RoutingTrial) -> float:
        """The extra passes compared with `other`, as a share of its passes; 0 if it has none."""
        return self.routed.passes / other.passes - 1 if other.passes else 0.0

    def to_plain(self) -> dict[str, Any]:
        """A dict of JSON's own types and of tuples."""
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
    """For each position, the number of consecutive hits from this position on, at most `depth`."""
    lengths = [0] * len(hits)
    run = 0
    for position in range(len(hits) - 1, -1, -1):
        run = run + 1 if hits[position] else 0
        lengths[position] = min(run, depth)
    return lengths


def regret_of(
    hits: Mapping[str, Sequence[bool]], routes: Sequence[Collection[str]], depth: int
) -> Regret:
    """`hits`: by SSM, whether its token at each position is the text's; `routes`: the SSMs that
    were routed at each position. Each sequence has one entry per token; at least one SSM is
    needed."""
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
    count = max((len([name for name in route if name in hits]) for route in routes), default=1)
    group = None
    if 1 < count <= len(hits) and comb(len(hits), count) <= MOST_GROUPS:
        group = min(map(always, combinations(hits, count)), key=lambda one: one.passes)
    fixed = min(alone, key=lambda one: one.passes)
    # The oracle: `chain` returns the longest draft of all SSMs.
    return Regret(depth, routed, alone, fixed, group, always(tuple(hits)))


def _passes(size: int, chain: Callable[[int], int]) -> int:
    position = passes = 0
    while position < size:
        # The accepted draft and the LLM's own token.
        position += chain(position) + 1
        passes += 1
    return passes
