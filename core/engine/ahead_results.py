"""What came of drafting ahead, for a round's event (`core.drafters.ahead`).

A guess that came true is a hit only once the next round has used its draft: it may want none.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many

from core.drafters.ahead import AheadDraft
from core.engine.round_state import AheadDrafts, RoundState
from core.events import Ahead
from core.events.timing import Timed
from core.metrics import LLM_LANE

__all__ = ["unused_at_end", "hidden_ms", "ahead_results", "ahead_drafts"]


def ahead_drafts(turn: RoundState, committed: tuple[int, ...]) -> AheadDrafts | None:
    """What was drafted beside the turn's pass, for the round behind what it committed."""
    if not turn.foreseen:
        return None
    passes = tuple(t for t in turn.timed if t.lane == LLM_LANE)
    return AheadDrafts(turn.foreseen, passes, committed)


def ahead_results(turn: RoundState) -> tuple[Ahead, ...]:
    """What the drafts made for this turn came to, now that it has drafted."""
    if turn.ahead_drafts is None:
        return ()
    used = {turn.live.drafters[i].name: draft.ahead for i, draft in turn.drafts.items()}
    told = []
    for name, seen in _in_order(turn, turn.ahead_drafts):
        if turn.ahead_drafts.committed not in seen.outcomes:
            told.append(_ahead(name, seen, "wrong"))
        elif not used.get(name):
            told.append(_ahead(name, seen, "unused"))
        else:
            told.append(_ahead(name, seen, "", used[name], turn.ahead_drafts.passes))
    return tuple(told)


def unused_at_end(turn: RoundState, unasked: AheadDrafts | None) -> tuple[Ahead, ...]:
    """What was drafted for a round that will not come, since the text has ended."""
    if unasked is None:
        return ()
    return tuple(_ahead(name, seen, "ended") for name, seen in _in_order(turn, unasked))


def _in_order(turn: RoundState, what: AheadDrafts) -> Iterator[tuple[str, AheadDraft]]:
    """By the run's order of drafters."""
    for drafter in turn.live.drafters:
        if drafter.name in what.seen:
            yield drafter.name, what.seen[drafter.name]


def _ahead(
    name: str, seen: AheadDraft, reason: str, used: int = 0, passes: Many[Timed] = ()
) -> Ahead:
    """`used`: how many of the passes that drafted are in the draft; the others were for nothing, as
    is every look at the tree."""
    for_nothing = [*seen.looked, *seen.drafted[used:]]
    return Ahead(
        drafter=name,
        outcomes=len(seen.outcomes),
        probability=min(1.0, sum(seen.outcomes.values(), 0.0)),
        hit=not reason,
        saved_ms=hidden_ms(seen.drafted[:used], passes),
        wasted_ms=1000 * sum((t.seconds for t in for_nothing), 0.0),
        reason=reason,
    )


def hidden_ms(timed: Many[Timed], passes: Many[Timed]) -> float:
    """How much of a work was done while the LLM's passes ran."""
    shared = (
        one.share * max(0.0, min(one.end, other.end) - max(one.start, other.start))
        for one in timed
        for other in passes
    )
    return 1000 * sum(shared, 0.0)
