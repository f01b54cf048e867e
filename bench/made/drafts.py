"""How SYNTHETIC drafters draft: some guesses right, more wrong ones, at plausible times.

Knows core's contracts only; the maker of whole runs is in bench/made/run.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from bench.made.parts import HOSTILE_TEXTS, Target
from bench.made.rules import VOTE_LENGTH, Mechanisms, ahead_of, estimates, pooled
from core.events import Ahead, DraftRecord, Span

__all__ = ["EXPANSION", "Drafting"]

EXPANSION = (1, 1, 3, 1, 1, 1)


class Drafting:
    """The drafting half of a run's maker: whoever inherits it sets these."""

    drafters: tuple[str, ...]
    hostile: bool
    rng: random.Random
    uses: Mechanisms
    target: Target
    bytes: list[bytes]
    texts: list[str]
    clock: float
    committed: int
    forward: tuple[float, float]
    early: dict[str, float]
    fates: list[Ahead]

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,) * VOTE_LENGTH if self.uses.combine == "vote" else EXPANSION

    def _drafts(self, number: int, spans: list[Span]) -> tuple[DraftRecord, ...]:
        drafts = [self._draft(name, number, spans) for name in self._living(number)]
        if self.uses.combine == "log_pool":
            drafts = [drafts[0], *(pooled(drafts[0], d.drafter, d.spans) for d in drafts[1:])]
        return tuple(drafts)

    def _living(self, number: int) -> tuple[str, ...]:
        lost = 0 <= self.uses.loses <= number
        return self.drafters[:-1] if lost and len(self.drafters) > 1 else self.drafters

    def _draft(self, name: str, number: int, spans: list[Span]) -> DraftRecord:
        skill = 0.75 - 0.05 * self.drafters.index(name)
        names = ("token_ids", "parents", "depths", "scores", "qs", "ranks")
        lists: dict[str, list[Any]] = {name: [] for name in names}
        tokens = lists["token_ids"]
        frontier = [(-1, True)]
        for depth, width in enumerate(self.shape, start=1):
            deeper = []
            for parent, on_path in frontier:
                for rank, (token, right) in enumerate(self._guesses(depth, width, on_path, skill)):
                    score = round(self.rng.uniform(0.1, 0.9) / (rank + 1), 6)
                    deeper.append((len(tokens), right))
                    for values, value in zip(
                        lists.values(), (token, parent, depth, score, 1.0, rank), strict=True
                    ):
                        values.append(value)
            frontier = deeper
        own, ready = self._worked(name, number)
        spans += own
        return DraftRecord(
            drafter=name,
            texts=self._shown(tokens),
            drafted_ahead=ready,
            spans=own,
            **{field: tuple(values) for field, values in lists.items()},
        )

    # -- when it drafted --

    def _worked(self, name: str, number: int) -> tuple[tuple[Span, ...], bool]:
        """The round's own spans of a drafter, and whether its draft was made ahead."""
        if self.uses.pipeline == "across" and self.forward[1] > 0:
            return self._drafted_across(name), True
        spent = self.early.pop(name, 0.0)
        if spent:
            self.fates.append(ahead_of(name, number, spent))
            if self.fates[-1].hit:
                return (self._span(name, "catch_up", 0.2),), True
        steps = 0.5 * len(EXPANSION)
        return (self._span(name, "catch_up", 0.4), self._span(name, "draft", steps)), False

    def _drafted_across(self, name: str) -> tuple[Span, ...]:
        """Beside the LLM's pass for another request; nothing is guessed."""
        start, end = self.forward
        late = round(start + 0.6 * (end - start), 6)
        self.fates.append(Ahead(name, 0, 1.0, True, round(late - start, 6), 0.0))
        return Span(name, "draft", start, late), self._span(name, "catch_up", 0.2)

    def _drafting_ahead(self, number: int) -> Iterator[Span]:
        """For the next round, beside this one's LLM pass."""
        if self.uses.ahead_in(number):
            start, end = self.forward
            for name in self._living(number + 1):
                late = round(start + self.rng.uniform(0.4, 0.9) * (end - start), 6)
                self.early[name] = round(late - start, 6)
                yield Span(name, "ahead", start, late)

    def _unasked(self, reason: str) -> None:
        """What nobody asked for of what was drafted ahead."""
        for name, spent in self.early.items():
            self.fates.append(Ahead(name, 3, 0.625, False, 0.0, spent, reason))
        self.early = {}

    def _told(self, number: int, following: int, last: bool) -> dict[str, Any]:
        """What a length controller, drafts made ahead and a failed drafter leave behind."""
        told: dict[str, Any] = {}
        if self.uses.length != "fixed":
            told["length_reason"] = f"{following} stays: SYNTHETIC reason of round {number}"
            told["estimates"] = estimates(number)
            told["predicted_ms"] = round(9.0 + 0.25 * (number % 4), 6)
        if last:
            self._unasked("ended")
        told["ahead"], self.fates = tuple(self.fates), []
        notes = list[str]()
        if number in self.uses.switches:
            notes.append(f"SYNTHETIC: drafting ahead is switched {self.uses.switches[number]}")
        if number == self.uses.loses:
            name = self.drafters[-1]
            failure = HOSTILE_TEXTS[0] if self.hostile else "SYNTHETIC failure"
            notes.append(f"drafter {name} failed: {failure}; the run goes on without it")
        return {**told, "notes": tuple(notes)}

    def _guesses(
        self, depth: int, width: int, on_path: bool, skill: float
    ) -> Iterator[tuple[int, bool]]:
        """`width` different tokens, the right one among them if the drafter gets this far."""
        where = self.committed + depth - 1
        hard = 0.8 * self.target.hardness[where] + 0.2 * self.rng.random()
        place = self.rng.randrange(width) if on_path and hard < skill else -1
        for rank in range(width):
            right = rank == place
            token = self.target.token_ids[where] if right else self._wrong(where, rank)
            yield token, right

    def _wrong(self, where: int, rank: int) -> int:
        # Drafters share three candidates, so that they often agree on a wrong token too.
        step = 1 + 3 * rank + self.rng.randrange(3)
        return 1 + (self.target.token_ids[where] - 1 + step) % (len(self.bytes) - 1)

    def _span(self, lane: str, name: str, typical_ms: float) -> Span:
        start = self.clock
        self.clock = round(start + typical_ms * self.rng.uniform(0.8, 1.2), 6)
        return Span(lane, name, start, self.clock)

    def _shown(self, tokens: list[int]) -> tuple[str, ...]:
        return tuple(self.texts[token] for token in tokens)
