"""Invented times for SYNTHETIC runs. A real clock would give different events in each run."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.events import (
    Ahead,
    DraftRecord,
    Event,
    RoundCompleted,
    Span,
)
from core.metrics import LLM_LANE

# Invented times differ from these by up to 20 %.
TYPICAL_MS = {"prefill": 8.0, "catch_up": 0.4, "draft": 3.0, "combine": 0.1, "forward": 6.0}
TYPICAL_MS |= {"verify": 0.3, "commit": 0.2, "use": 0.2, "read": 1.0}
OUTCOMES, PROBABILITY = 3, 0.625  # guessed outcomes, and their total probability


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """`loses`: the round in which the last drafter fails, or -1."""

    combine: str = "union"
    length: str = "fixed"
    pipeline: str = "off"
    routing: str = "all"
    draft: str = "auto"
    loses: int = -1

    @property
    def switches(self) -> dict[int, str]:
        """Rounds in which `auto` switches drafting ahead `on` or `off`."""
        return {3: "off", 5: "on"} if self.pipeline == "auto" else {}

    def ahead_in(self, number: int) -> bool:
        return self.pipeline == "ahead" or (
            self.pipeline == "auto" and number not in range(*self.switches)
        )


VOTE_AHEAD = Mechanisms("vote", "goodput", "ahead", loses=5)


def on_a_clock(events: Sequence[Event], uses: Mechanisms, seed: int) -> list[Event]:
    """RunStarted and whole rounds, with invented times."""
    clock = _Clock(uses, random.Random(seed))
    rounds = [events[i : i + 4] for i in range(1, len(events), 4)]
    results: list[Event] = [replace(events[0], at_ms=0.0, queue_ms=0.25)]
    for number, (drafted, combined, verified, completed) in enumerate(rounds):
        lanes = [span.lane for span in completed.spans if span.name == "prefill"]
        spans = [clock.span(lane, "prefill", "" if lane == LLM_LANE else "read") for lane in lanes]
        drafts = clock.timed_drafts(drafted.drafts, spans)
        results.append(replace(drafted, at_ms=clock.now, drafts=drafts))
        spans.append(clock.span("combine", "combine"))
        results.append(replace(combined, at_ms=clock.now))
        spans += clock.llm_pass()
        spans.append(clock.span("verify", "verify"))
        results.append(replace(verified, at_ms=clock.now))
        spans.append(clock.span("commit", "commit"))
        results.append(clock.end_round(completed, spans, last=number == len(rounds) - 1))
    return results


class _Clock:
    def __init__(self, uses: Mechanisms, rng: random.Random) -> None:
        self.now = 0.0
        self._uses, self._rng = uses, rng
        self._forward = Span(LLM_LANE, "forward", 0.0, 0.0)
        self._early: dict[str, float] = {}
        self._ahead: list[Ahead] = []
        self._drafters: list[str] = []
        self._number = 0

    def span(self, lane: str, name: str, typical: str = "") -> Span:
        """Advances the clock by a stage."""
        start = self.now
        ms = TYPICAL_MS[typical or name] * self._rng.uniform(0.8, 1.2)
        self.now = round(start + ms, 6)
        return Span(lane, name, start, self.now)

    def timed_drafts(
        self, drafts: Sequence[DraftRecord], spans: list[Span]
    ) -> tuple[DraftRecord, ...]:
        """Also adds the drafts' spans to `spans`."""
        results = []
        for draft in drafts:
            stages, ahead = self._stages(draft.drafter)
            spans += stages
            results.append(replace(draft, spans=stages, drafted_ahead=ahead))
        # Drafts made ahead for a plain round, or by a failed drafter, are unused.
        self.count_unused()
        self._drafters = [draft.drafter for draft in drafts] or self._drafters
        return tuple(results)

    def _stages(self, name: str) -> tuple[tuple[Span, ...], bool]:
        """A drafter's stages, and whether its draft was made ahead."""
        if self._uses.pipeline == "across" and self._forward.ms:
            # Drafted during the LLM's pass for another request, without a guess.
            start, end = self._forward.start_ms, self._forward.end_ms
            early = Span(name, "draft", start, round(start + 0.6 * (end - start), 6))
            self._ahead.append(Ahead(name, 0, 1.0, True, round(early.ms, 6), 0.0))
            return (early, self.span(name, "catch_up", "use")), True
        spent = self._early.pop(name, 0.0)
        if spent:
            # A third of these drafts are wasted.
            hit = (self._number + len(name)) % 3 > 0
            saved, wasted = (0.75 * spent, 0.25 * spent) if hit else (0.0, spent)
            reason = "" if hit else "unused" if self._number % 2 else "wrong"
            saved, wasted = round(saved, 6), round(wasted, 6)
            self._ahead.append(Ahead(name, OUTCOMES, PROBABILITY, hit, saved, wasted, reason))
            if hit:
                return (self.span(name, "catch_up", "use"),), True
        return (self.span(name, "catch_up"), self.span(name, "draft")), False

    def count_unused(self, reason: str = "unused") -> None:
        for name, spent in self._early.items():
            self._ahead.append(Ahead(name, OUTCOMES, PROBABILITY, False, 0.0, spent, reason))
        self._early = {}

    def llm_pass(self) -> Iterator[Span]:
        self._forward = self.span(LLM_LANE, "forward")
        yield self._forward
        for name in self._drafters if self._uses.ahead_in(self._number) else ():
            start, ms = self._forward.start_ms, self._rng.uniform(0.4, 0.9) * self._forward.ms
            span = Span(name, "ahead", start, round(start + ms, 6))
            self._early[name] = round(span.ms, 6)
            yield span

    def end_round(
        self, event: RoundCompleted, spans: Sequence[Span], *, last: bool
    ) -> RoundCompleted:
        if last:
            self.count_unused("ended")
        notes = event.notes
        if self._number in self._uses.switches:
            switch = self._uses.switches[self._number]
            notes = (f"SYNTHETIC: drafting ahead is switched {switch}", *notes)
        ahead, self._ahead = tuple(self._ahead), []
        self._number += 1
        return replace(
            event, at_ms=self.now, spans=tuple(spans), ahead=ahead, notes=notes, between_ms=0.0
        )
