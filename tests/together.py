"""SYNTHETIC runs whose SSMs share passes, from runs whose SSMs draft in turn."""

from collections.abc import Sequence
from dataclasses import replace

from core.events import Drafted, Event, RoundCompleted, Span

MADE_AT_ONCE = ("catch_up", "draft")


def share_passes(events: Sequence[Event]) -> list[Event]:
    """The same run as if all SSMs of a round drafted in the same passes."""
    return [_share_pass(event) for event in events]


def _share_pass(event: Event) -> Event:
    if isinstance(event, RoundCompleted):
        return replace(event, spans=_overlaid(event.spans))
    if isinstance(event, Drafted):
        overlaid = _overlaid([span for draft in event.drafts for span in draft.spans])
        drafts = (
            replace(d, spans=tuple(span for span in overlaid if span.lane == d.drafter))
            for d in event.drafts
        )
        return replace(event, drafts=tuple(drafts))
    return event


def _overlaid(spans: Sequence[Span]) -> tuple[Span, ...]:
    own = [span for span in spans if span.name in MADE_AT_ONCE]
    if not own:
        return tuple(spans)
    start, end = min(span.start_ms for span in own), max(span.end_ms for span in own)
    middle = start + 0.2 * (end - start)
    times = {"catch_up": (start, middle), "draft": (middle, end)}
    share = 1 / len({span.lane for span in own})
    return tuple(
        Span(span.lane, span.name, *times[span.name], share) if span.name in times else span
        for span in spans
    )
