"""Live and Turn: a request that is being served, and one round of it in the making."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from core.combine import CombinedTree
from core.drafters.base import Draft, Drafter, chances_of
from core.length import Choice, DraftOutcome, LengthPolicy, RoundOutcome
from core.metrics import LLM_LANE
from core.sampling import Target
from core.sequence import Sequence, Timed
from core.tree import TokenTree
from core.verify import Verdict

__all__ = ["Live", "Turn", "outcome_of"]


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
    choice: Choice
    root_position: int
    drafts: dict[int, Draft] = field(default_factory=dict)
    combined: CombinedTree = field(default_factory=lambda: CombinedTree(TokenTree()))
    target: Target = field(init=False)
    verdict: Verdict = field(init=False)
    timed: list[Timed] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Steps that were chosen for this round's drafts."""
        return self.choice.length

    @property
    def tree(self) -> TokenTree:
        return self.combined.tree


def outcome_of(turn: Turn, committed: tuple[int, ...]) -> RoundOutcome:
    """What the length policy is told of a round that committed these tokens."""
    forward = next(t for t in turn.timed if t.lane == LLM_LANE)
    proposals, path = turn.tree.proposals, turn.verdict.path
    credit = Counter(proposals[node][0].drafter for node in path if proposals[node])
    return RoundOutcome(
        length=turn.length,
        num_tokens=len(committed),
        num_nodes=len(turn.tree),
        verify_ms=(forward.end - forward.start) * 1000,
        round_ms=sum(t.end - t.start for t in turn.timed) * 1000,
        drafts={
            turn.live.drafters[index].name: _outcome(draft, committed, credit[index])
            for index, draft in turn.drafts.items()
        },
    )


def _outcome(draft: Draft, committed: tuple[int, ...], credit: int) -> DraftOutcome:
    return DraftOutcome(
        ms=sum(t.end - t.start for t in draft.timed) * 1000,
        steps=max(0, draft.passes - 1),
        depths=draft.depths,
        chances=chances_of(draft),
        accepted_depth=len(draft.walk(committed)),
        credit=credit,
    )
