"""What came of drafting ahead, for a round's event (`core.drafters.foresight`)."""

from __future__ import annotations

from collections.abc import Sequence as Many

from core.drafters.foresight import Foreseen
from core.events import Ahead
from core.metrics import LLM_LANE
from core.sequence import Timed
from core.turn import Turn

__all__ = ["came_of", "hidden_ms"]


def came_of(turn: Turn, committed: tuple[int, ...]) -> tuple[Ahead, ...]:
    """What the drafts behind guesses came to, now that the round's tokens are known."""
    passes = [t for t in turn.timed if t.lane == LLM_LANE]
    names = [drafter.name for drafter in turn.live.drafters]
    seen = sorted(turn.foreseen.items(), key=lambda one: names.index(one[0]))
    return tuple(_ahead(name, one, committed, passes) for name, one in seen)


def _ahead(name: str, seen: Foreseen, committed: tuple[int, ...], passes: Many[Timed]) -> Ahead:
    hit = committed in seen.outcomes
    wasted = seen.looked if hit else seen.timed
    return Ahead(
        drafter=name,
        outcomes=len(seen.outcomes),
        probability=min(1.0, sum(seen.outcomes.values())),
        hit=hit,
        saved_ms=hidden_ms(seen.drafted, passes) if hit else 0.0,
        wasted_ms=sum(t.end - t.start for t in wasted) * 1000,
    )


def hidden_ms(timed: Many[Timed], passes: Many[Timed]) -> float:
    """How much of a work was done while the LLM's passes ran."""
    return 1000 * sum(
        max(0.0, min(one.end, other.end) - max(one.start, other.start))
        for one in timed
        for other in passes
    )
