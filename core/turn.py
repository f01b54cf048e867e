"""Live and Turn: a request that is being served, and one round of it in the making."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.combine import CombinedTree
from core.drafters.base import Draft, Drafter
from core.length import LengthPolicy
from core.sampling import Target
from core.sequence import Sequence, Timed
from core.tree import TokenTree
from core.verify import Verdict

__all__ = ["Live", "Turn"]


@dataclass(eq=False)
class Live:
    """A sequence with its place in the engine: LLM row, drafters in their fixed order, policy.

    `max_tree_nodes` None is uncut. `timed` waits for the next round: the prefill's time.
    """

    sequence: Sequence
    row: int
    drafters: tuple[Drafter, ...]
    policy: LengthPolicy
    max_tree_nodes: int | None
    opened: set[int] = field(default_factory=set)
    timed: list[Timed] = field(default_factory=list)

    def budgets(self, full: int) -> list[int]:
        """`max_tree_nodes` divided among the drafters; `full` each where it is uncut."""
        count = len(self.drafters)
        if self.max_tree_nodes is None:
            return [full] * count
        share, rest = divmod(self.max_tree_nodes, count) if count else (0, 0)
        return [share + (1 if index < rest else 0) for index in range(count)]


@dataclass(eq=False)
class Turn:
    """One live request's round; each step of the engine fills in its part."""

    live: Live
    length: int
    root_position: int
    drafts: dict[int, Draft] = field(default_factory=dict)
    combined: CombinedTree = field(default_factory=lambda: CombinedTree(TokenTree()))
    target: Target = field(init=False)
    verdict: Verdict = field(init=False)
    timed: list[Timed] = field(default_factory=list)

    @property
    def tree(self) -> TokenTree:
        return self.combined.tree
