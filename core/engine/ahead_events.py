"""Events of drafts made ahead: hit or miss, time saved, time wasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from core.drafters.ahead import AheadDraft
from core.engine.round_state import AheadDrafts, RoundState
from core.events import Ahead
from core.events.parts import Timed
from core.metrics import LLM_LANE

__all__ = ["ahead_drafts", "ahead_results", "hidden_event", "unused_at_end"]

Reason = Literal["", "wrong", "unused", "ended"]


def ahead_drafts(state: RoundState, committed: tuple[int, ...]) -> AheadDrafts | None:
    """This round's drafts for the next round; None without drafts."""
    if not state.next_drafts:
        return None
    passes = tuple(t for t in state.timings if t.lane == LLM_LANE)
    return AheadDrafts(state.next_drafts, passes, committed)


def ahead_results(state: RoundState) -> tuple[Ahead, ...]:
    """An event per draft made ahead for this round; call it after the round's drafting."""
    if state.ahead_drafts is None:
        return ()
    num_used = {
        state.request.drafters[i].name: draft.passes_ahead for i, draft in state.drafts.items()
    }
    results = []
    for name, draft in _in_drafter_order(state, state.ahead_drafts):
        if state.ahead_drafts.committed not in draft.outcomes:
            results.append(_ahead_event(name, draft, "wrong"))
        elif not num_used.get(name):
            results.append(_ahead_event(name, draft, "unused"))
        else:
            results.append(_ahead_event(name, draft, "", num_used[name], state.ahead_drafts.passes))
    return tuple(results)


def unused_at_end(state: RoundState, drafts: AheadDrafts | None) -> tuple[Ahead, ...]:
    """An event per draft made ahead for a round that will not run."""
    if drafts is None:
        return ()
    return tuple(
        _ahead_event(name, draft, "ended") for name, draft in _in_drafter_order(state, drafts)
    )


def _in_drafter_order(state: RoundState, drafts: AheadDrafts) -> Iterator[tuple[str, AheadDraft]]:
    for drafter in state.request.drafters:
        if drafter.name in drafts.by_drafter:
            yield drafter.name, drafts.by_drafter[drafter.name]


def _ahead_event(
    name: str, draft: AheadDraft, reason: Reason, num_used: int = 0, passes: Sequence[Timed] = ()
) -> Ahead:
    """`reason`: of a miss; empty for a hit."""
    waste = [*draft.scoring_timings, *draft.draft_timings[num_used:]]
    return Ahead(
        drafter=name,
        outcomes=len(draft.outcomes),
        # Outcomes exclude each other, so their probabilities add up.
        probability=min(1.0, sum(draft.outcomes.values(), 0.0)),
        hit=not reason,
        saved_ms=_hidden_ms(draft.draft_timings[:num_used], passes),
        wasted_ms=1000 * sum((t.seconds for t in waste), 0.0),
        reason=reason,
    )


def hidden_event(state: RoundState, index: int, passes: Sequence[Timed]) -> Ahead:
    """The event of a draft that was made during the LLM's pass over other requests. Such a draft
    continues committed text, so it is always a hit."""
    name = state.request.drafters[index].name
    hidden = _hidden_ms(state.drafts[index].timings, passes)
    return Ahead(name, outcomes=0, probability=1.0, hit=True, saved_ms=hidden, wasted_ms=0.0)


def _hidden_ms(timings: Sequence[Timed], passes: Sequence[Timed]) -> float:
    overlaps = (
        one.share * max(0.0, min(one.end, other.end) - max(one.start, other.start))
        for one in timings
        for other in passes
    )
    return 1000 * sum(overlaps, 0.0)
