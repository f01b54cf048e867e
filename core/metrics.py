"""RunStats: the field's metrics as a fold over a run's events.

A fold takes RoundFacts, not events, so that events can carry a RunStats.
Names and definitions follow vLLM's and llama.cpp's (DESIGN, Events).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["RoundFacts", "RunStats", "StatsFold", "union_ms"]


class SpanLike(Protocol):
    """Anything with a lane, a name and a stretch of milliseconds; `core.events.Span` is one."""

    @property
    def lane(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def start_ms(self) -> float: ...
    @property
    def end_ms(self) -> float: ...


LLM_LANE = "llm"
NOT_DRAFTING = ("combine", "llm", "verify", "commit")


@dataclass(frozen=True, slots=True)
class RunStats:
    """The figures of one run.

    `num_accepted_tokens`: drafted tokens that were emitted. `num_draft_tokens`: sum over rounds of the
    verified tree's depth, less what EOS, a stop string or the limit cut off. `num_verified_nodes`: sum
    of tree sizes. `acceptance_histogram[j]`: rounds that accepted j. `acceptance_rate_per_position[i]`:
    share of rounds that accepted more than i. `overlap_ratio`: time the LLM and a drafter were both
    busy, over the LLM's busy time. `tokens_per_second`: emitted tokens over the time from the end of
    the prefill to the end. Times are milliseconds; `ttft_ms` starts when the request leaves the queue.
    """

    num_new_tokens: int = 0
    num_rounds: int = 0
    num_accepted_tokens: int = 0
    num_draft_tokens: int = 0
    num_verified_nodes: int = 0
    draft_acceptance_rate: float = 0.0
    mean_acceptance_length: float = 0.0
    acceptance_histogram: tuple[int, ...] = ()
    acceptance_rate_per_position: tuple[float, ...] = ()
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    prefill_ms: float = 0.0
    overlap_ratio: float = 0.0
    tokens_per_second: float = 0.0
    ttft_ms: float = 0.0
    queue_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What a round adds to the statistics; spans are any objects with lane, name, start_ms, end_ms."""

    num_new_tokens: int
    num_accepted: int
    num_cut: int
    tree_depth: int
    tree_nodes: int
    at_ms: float
    spans: tuple[SpanLike, ...]


class StatsFold:
    """Accumulates rounds; `stats(now_ms)` gives the figures so far. O(longest acceptance) memory."""

    def __init__(self, queue_ms: float = 0.0) -> None:
        self._queue_ms = queue_ms
        self._histogram: list[int] = []
        self._new = self._accepted = self._drafted = self._nodes = self._rounds = 0
        self._draft_ms = self._verify_ms = self._prefill_ms = 0.0
        self._llm_busy = self._both_busy = 0.0
        self._prefill_end = 0.0
        self._ttft: float | None = None

    def add(self, facts: RoundFacts) -> None:
        """Count one completed round."""
        self._rounds += 1
        self._new += facts.num_new_tokens
        self._accepted += facts.num_accepted
        self._drafted += max(0, facts.tree_depth - facts.num_cut)
        self._nodes += facts.tree_nodes
        missing = facts.num_accepted + 1 - len(self._histogram)
        self._histogram.extend([0] * max(0, missing))
        self._histogram[facts.num_accepted] += 1
        if self._ttft is None and facts.num_new_tokens:
            self._ttft = facts.at_ms
        self._add_spans(facts.spans)

    def _add_spans(self, spans: tuple[SpanLike, ...]) -> None:
        prefill = [s for s in spans if s.name == "prefill"]
        rest = [s for s in spans if s.name != "prefill"]
        if prefill:
            self._prefill_ms += union_ms((s.start_ms, s.end_ms) for s in prefill)
            self._prefill_end = max(self._prefill_end, *(s.end_ms for s in prefill))
        drafting = [(s.start_ms, s.end_ms) for s in rest if s.lane not in NOT_DRAFTING]
        llm = [(s.start_ms, s.end_ms) for s in rest if s.lane == LLM_LANE]
        self._draft_ms += sum(end - start for start, end in drafting)
        self._verify_ms += sum(end - start for start, end in llm)
        self._llm_busy += union_ms(llm)
        self._both_busy += union_ms(llm) + union_ms(drafting) - union_ms([*llm, *drafting])

    def stats(self, now_ms: float) -> RunStats:
        """The figures of a run that ended, or stands, at `now_ms`."""
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
            acceptance_rate_per_position=_per_position(self._histogram, rounds),
            draft_ms=self._draft_ms,
            verify_ms=self._verify_ms,
            prefill_ms=self._prefill_ms,
            overlap_ratio=self._both_busy / self._llm_busy if self._llm_busy else 0.0,
            tokens_per_second=self._new / decode_s if decode_s > 0 else 0.0,
            ttft_ms=self._ttft if self._ttft is not None else 0.0,
            queue_ms=self._queue_ms,
            total_ms=now_ms,
        )


def _per_position(histogram: list[int], rounds: int) -> tuple[float, ...]:
    above = [sum(histogram[i + 1 :]) for i in range(max(0, len(histogram) - 1))]
    return tuple(count / rounds for count in above)


def union_ms(intervals: Iterable[tuple[float, float]]) -> float:
    """Total length covered by the intervals (start, end), overlaps counted once."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
