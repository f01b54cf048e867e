"""Verification steps of a run, counted as vLLM counts drafted chains. A token tree counts as one
draft, and the tree's depth as the draft's number of tokens.

`num_drafted` of a step is the depth of the verified tree minus `num_cut`, the number of levels past
the run's last token. A round without a tree has no draft.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core.events import Combined, Event, RoundCompleted

__all__ = ["DraftCounts", "RoundStep", "StepFold"]


@dataclass(frozen=True, slots=True)
class RoundStep:
    """One round of a run. `num_drafted`: None without a tree; `at_ms`: the `at_ms` of the round's
    RoundCompleted event."""

    num_tokens: int
    num_drafted: int | None
    num_accepted: int
    at_ms: float


class StepFold:
    """Makes a RoundStep of each completed round of one run."""

    def __init__(self) -> None:
        # The depth of the round's tree. Never reset, because each round has a Combined event.
        self._depth = 0

    def observe(self, event: Event) -> RoundStep | None:
        """Takes the run's next event; returns the completed step, if any."""
        if isinstance(event, Combined):
            self._depth = max(event.depths, default=0)
        if not isinstance(event, RoundCompleted):
            return None
        drafted = max(0, self._depth - event.num_cut) if self._depth else None
        return RoundStep(len(event.token_ids), drafted, event.num_accepted, event.at_ms)


@dataclass(slots=True)
class DraftCounts:
    """Sums over drafts. `by_length[k][j]`: the number of drafts with k tokens, j of them
    accepted."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    by_length: dict[int, list[int]] = field(default_factory=dict)

    def add(self, step: RoundStep) -> None:
        """Counts the step's draft, if it has one."""
        if step.num_drafted is None:
            return
        self.num_drafts += 1
        self.num_draft_tokens += step.num_drafted
        self.num_accepted_tokens += step.num_accepted
        row = self.by_length.setdefault(step.num_drafted, [0] * (step.num_drafted + 1))
        row[step.num_accepted] += 1

    def histogram(self, longest: int = 0) -> list[int]:
        """At least `longest` + 1 entries; entry j: how many drafts had j tokens accepted."""
        size = max(longest, max(self.by_length, default=0)) + 1
        counts = [0] * size
        for row in self.by_length.values():
            for accepted, count in enumerate(row):
                counts[accepted] += count
        return counts

    def accepted_per_position(self, longest: int = 0) -> list[int]:
        """Entry i: the number of drafts with more than i accepted tokens."""
        counts = self.histogram(longest)
        return [sum(counts[i + 1 :]) for i in range(len(counts) - 1)]
