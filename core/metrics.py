"""Figures of a run from its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.events import Combined, Event, RoundCompleted, RunStarted, RunStats, Span
from core.events.parts import Timed

__all__ = [
    "HOST_LANES",
    "LLM_LANE",
    "NOT_DRAFTING",
    "RunStats",
    "StatsFold",
    "audition_ms",
    "spans_union_ms",
    "stats_of",
    "timings_union_ms",
    "union_ms",
]

# Lanes that are not named after a drafter. The stages of HOST_LANES run no model.
LLM_LANE = "llm"
HOST_LANES = ("combine", "verify", "commit")
NOT_DRAFTING = (LLM_LANE, *HOST_LANES)


class StatsFold:
    """Accumulates a run's events in O(longest acceptance) memory."""

    def __init__(self) -> None:
        self._queue_ms = 0.0
        self._histogram: list[int] = []
        self._new = self._accepted = self._drafted = self._nodes = self._rounds = 0
        self._draft_ms = self._verify_ms = self._prefill_ms = 0.0
        self._llm_busy = self._draft_busy = self._both_busy = self._saved_ms = 0.0
        self._prefill_end = 0.0
        self._ttft: float | None = None
        self._tree_depth = self._tree_nodes = 0

    def observe(self, event: Event) -> None:
        """Adds an event."""
        if isinstance(event, RunStarted):
            self._queue_ms = event.queue_ms
        elif isinstance(event, Combined):
            # Counted with RoundCompleted, which says where the text was cut.
            self._tree_depth = max(event.depths, default=0)
            self._tree_nodes = len(event.depths)
        elif isinstance(event, RoundCompleted):
            self._add_round(event)

    def _add_round(self, event: RoundCompleted) -> None:
        self._rounds += 1
        self._new += len(event.token_ids)
        self._accepted += event.num_accepted
        self._drafted += max(0, self._tree_depth - event.num_cut)
        self._nodes += self._tree_nodes
        missing = event.num_accepted + 1 - len(self._histogram)
        self._histogram.extend([0] * max(0, missing))
        self._histogram[event.num_accepted] += 1
        if self._ttft is None and event.token_ids:
            self._ttft = event.at_ms
        self._saved_ms += sum(one.saved_ms for one in event.ahead if one.is_certain)
        self._add_spans(event.spans)

    def _add_spans(self, spans: tuple[Span, ...]) -> None:
        prefill = [s for s in spans if s.name == "prefill"]
        rest = [s for s in spans if s.name != "prefill"]
        if prefill:
            self._prefill_ms += spans_union_ms(prefill)
            if self._rounds == 1:  # in later rounds a new drafter prefills during decoding
                self._prefill_end = max(s.end_ms for s in prefill)
        drafters = [s for s in rest if s.lane not in NOT_DRAFTING]
        drafting = [(s.start_ms, s.end_ms) for s in drafters]
        llm = [(s.start_ms, s.end_ms) for s in rest if s.lane == LLM_LANE]
        self._draft_ms += sum(s.ms for s in drafters)
        self._verify_ms += sum(end - start for start, end in llm)
        self._llm_busy += union_ms(llm)
        self._draft_busy += union_ms(drafting)
        # |A and B| = |A| + |B| - |A or B|.
        self._both_busy += union_ms(llm) + union_ms(drafting) - union_ms([*llm, *drafting])

    def stats(self, now_ms: float) -> RunStats:
        """The statistics of the run at `now_ms`."""
        rounds = self._rounds
        decode_s = (now_ms - self._prefill_end) / 1000
        return RunStats(
            num_new_tokens=self._new,
            num_rounds=rounds,
            num_accepted_tokens=self._accepted,
            num_draft_tokens=self._drafted,
            num_verified_nodes=self._nodes,
            draft_acceptance_rate=self._accepted / self._drafted if self._drafted else 0.0,
            mean_acceptance_length=1 + self._accepted / rounds if rounds else 0.0,
            acceptance_histogram=tuple(self._histogram),
            acceptance_rate_per_position=tuple(
                sum(self._histogram[i + 1 :]) / rounds for i in range(len(self._histogram) - 1)
            ),
            draft_ms=self._draft_ms,
            verify_ms=self._verify_ms,
            prefill_ms=self._prefill_ms,
            overlap_ratio=self._overlap_ratio(),
            tokens_per_second=self._new / decode_s if decode_s > 0 else 0.0,
            ttft_ms=self._ttft if self._ttft is not None else 0.0,
            queue_ms=self._queue_ms,
            total_ms=now_ms,
        )

    def _overlap_ratio(self) -> float:
        """See RunStats. Drafting during LLM passes for other requests counts too."""
        if not self._llm_busy:
            return 0.0
        # `_saved_ms` adds up concurrent drafters: `at_once` removes their overlap.
        at_once = self._draft_busy / self._draft_ms if self._draft_ms else 0.0
        others = min(self._saved_ms * at_once, self._draft_busy - self._both_busy)
        return min(1.0, (self._both_busy + max(0.0, others)) / self._llm_busy)


def stats_of(events: Sequence[Event]) -> RunStats:
    """The statistics of a run at its last event."""
    fold = StatsFold()
    for event in events:
        fold.observe(event)
    return fold.stats(events[-1].at_ms)


def union_ms(intervals: Iterable[tuple[float, float]]) -> float:
    """Total length covered by the intervals (start, end), overlaps counted once."""
    covered, last_end = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, last_end))
        last_end = max(last_end, end)
    return covered


def spans_union_ms(spans: Iterable[Span]) -> float:
    """`union_ms` of a run's spans."""
    return union_ms((one.start_ms, one.end_ms) for one in spans)


def timings_union_ms(timings: Iterable[Timed]) -> float:
    """`union_ms` of timings, which are in seconds."""
    return union_ms((one.start * 1000, one.end * 1000) for one in timings)


def audition_ms(event: RoundCompleted) -> float:
    """Milliseconds of a routed round's auditions, in which SSMs score the text's last tokens."""
    later_ms = sum(span.ms for span in event.spans if span.name == "audition")
    # The run's first audition is recorded as prefill. A waiting SSM prefills only in that audition.
    waiting = {one.drafter for one in event.routing if one.role == "waiting"}
    ssms = {one.drafter for one in event.routing}
    first: dict[str, float] = {}
    for span in event.spans:
        if span.name == "prefill" and span.lane in ssms:
            first.setdefault(span.lane, span.ms)
    return later_ms + (sum(first.values()) if waiting & first.keys() else 0.0)
