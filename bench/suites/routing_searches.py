"""After how many tokens a router finds a good SSM, in finished texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

# A good SSM has at least this share of the best SSM's right tokens.
NEAR_BEST = 0.95

Search = Mapping[str, Any]
"""A part of a text. `good`: its good SSMs; `after`: the number of the part's tokens before the
first token that a good SSM drafts; None: no good SSM drafts."""


def search_good_ssm(
    routes: Sequence[frozenset[str]], hits: Mapping[str, Sequence[bool]], start: int, end: int
) -> Search:
    """The search in the tokens from `start` to `end` (exclusive), at least one token. `routes`: the
    SSMs that were routed, by token; `hits`: for each SSM and token, whether the SSM is right."""
    right = {name: sum(own[start:end]) for name, own in hits.items()}
    good = {name for name, count in right.items() if count >= NEAR_BEST * max(right.values())}
    return {"good": sorted(good), "after": first_routed(routes[start:end], good)}


def first_routed(routes: Sequence[frozenset[str]], names: Collection[str]) -> int | None:
    """The index of the first token that one of these SSMs drafts."""
    return next((i for i, route in enumerate(routes) if not route.isdisjoint(names)), None)


@dataclass(frozen=True, slots=True)
class SearchCounts:
    """`parts`: the number of parts of texts. `at_once`: parts in which a good SSM drafts the first
    token; `followed`: other parts in which a good SSM drafts within the limit. Fixed sets have as
    many SSMs as the router routes. `fixed`: the set that has a good SSM in the most parts;
    `fixed_parts`: the number of these parts; `mean_parts`: the mean number over all fixed sets."""

    parts: int
    at_once: int
    followed: int
    fixed: tuple[str, ...]
    fixed_parts: int
    mean_parts: float

    @property
    def late(self) -> int:
        return self.parts - self.at_once

    @property
    def within(self) -> int:
        """Parts with a good SSM at once or within the limit."""
        return self.at_once + self.followed


def count_searches(
    searches: Sequence[Search], limit: int, ssms: Sequence[str], size: int
) -> SearchCounts:
    """Counts the searches of a router that routes `size` of `ssms` (all, if there are fewer).
    `limit`: in tokens."""
    found_by = {
        names: sum(not set(names).isdisjoint(one["good"]) for one in searches)
        for names in combinations(ssms, min(size, len(ssms)))
    }
    fixed = max(found_by, key=lambda names: found_by[names])
    # At a change of domain, the routed set may already have a good SSM: it follows nothing.
    late = [one["after"] for one in searches if one["after"] != 0]
    return SearchCounts(
        parts=len(searches),
        at_once=len(searches) - len(late),
        followed=sum(after is not None and after <= limit for after in late),
        fixed=fixed,
        fixed_parts=found_by[fixed],
        mean_parts=sum(found_by.values()) / len(found_by),
    )
