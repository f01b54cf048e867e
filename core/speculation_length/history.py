"""The draft lengths of a run's rounds, from which a length policy explains the last length."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.config.mechanisms import is_model_free
from core.events import DraftRecord, Estimate

__all__ = ["LengthHistory", "PastRound", "deepest_draft", "round_name"]

# Patterns of the phrases that core/engine/round_state.py adds to the policy's own reason.
BOUND = re.compile(r"(?:^|; )(drafts are at most (\d+) deep \(.+\))$")
GRANTED = re.compile(r"(?:^|; )the batch grants (no draft|\d+)$")


class PastRound(Protocol):
    """One recorded round. `number`: from 0. `length`: the most steps of its drafts. `next_length`,
    `length_reason`, `estimates`: the choice for the following round. `depth`: of the verified tree.
    `draft_depths`: the depth of each drafter's draft."""

    @property
    def number(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def next_length(self) -> int: ...
    @property
    def length_reason(self) -> str: ...
    @property
    def estimates(self) -> tuple[Estimate, ...]: ...
    @property
    def depth(self) -> int: ...
    @property
    def draft_depths(self) -> tuple[tuple[str, int], ...]: ...


@dataclass(frozen=True, slots=True)
class LengthHistory:
    """`rounds`: all rounds up to the round to explain, which is the last; `drafts`: the drafts of
    this last round; `speculation`: the fields of the run's SpeculationConfig."""

    rounds: Sequence[PastRound]
    drafts: Sequence[DraftRecord] = ()
    speculation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def now(self) -> PastRound:
        """The round to explain."""
        return self.rounds[-1]

    @property
    def changed_at(self) -> int:
        """The index of the round at which the length last changed; 0 if it never changed."""
        index = len(self.rounds) - 1
        while index and self.rounds[index - 1].length == self.now.length:
            index -= 1
        return index

    def reason(self, index: int) -> str:
        """The recorded reason for the length of the round at `index`; empty for the first round,
        and if the recorded choice was replaced."""
        before = self.rounds[index - 1] if index else None
        chosen = before is not None and before.next_length == self.rounds[index].length
        return before.length_reason if before is not None and chosen else ""

    @property
    def bound(self) -> str:
        """What limits the round's drafts besides the policy, as a phrase; empty without a recorded
        limit."""
        recorded = self.reason(len(self.rounds) - 1)
        if granted := GRANTED.search(recorded):
            return f"the scheduler grants {granted[1]}"
        found = BOUND.search(recorded)
        return found[1] if found else ""

    def depth_bound(self, index: int) -> tuple[int, str] | None:
        """How deep the drafts of the round at `index` could be, and a phrase with the cause. None
        without a recorded limit."""
        found = BOUND.search(self.reason(index))
        return (int(found[2]), found[1]) if found else None

    def draft_words(self, draft: DraftRecord) -> str:
        """How deep a draft of this round is, and the same drafter's draft of the round before:
        `ssm-a drafted 4 deep (11 in round 7)`."""
        words = f"{draft.drafter} drafted {max(draft.depths)} deep"
        if len(self.rounds) < 2:
            return words
        before = self.rounds[-2]
        depth = dict(before.draft_depths).get(draft.drafter, 0)
        return f"{words} ({depth or 'nothing'} in {round_name(before)})"

    def since(self) -> str:
        """The length and when it last changed: `16 since round 5, up from 13`."""
        index, length = self.changed_at, self.now.length
        if not index:
            first = len(self.rounds) == 1
            return f"{length} to begin with" if first else f"{length} in every round so far"
        before = self.rounds[index - 1]
        change = f"{'up' if length > before.length else 'down'} from {before.length}"
        if index == len(self.rounds) - 1:
            return f"{length}, {change} in {round_name(before)}"
        return f"{length} since {round_name(self.rounds[index])}, {change}"


def round_name(one: PastRound) -> str:
    """A round's name, counted from 1 as on the page."""
    return f"round {one.number + 1}"


def deepest_draft(drafts: Sequence[DraftRecord]) -> DraftRecord | None:
    """The deepest draft of an SSM, if any."""
    by_ssms = [one for one in drafts if one.token_ids and not is_model_free(one.drafter)]
    return max(by_ssms, key=lambda one: max(one.depths), default=None)
