"""How SYNTHETIC drafters draft: some guesses right, more wrong ones, at plausible times.

Knows core's contracts only; the maker of whole runs is in tests/synthetic.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from core.events import DraftRecord, Span
from tests.synthetic_parts import Target
from tests.synthetic_rules import VOTE_LENGTH, Mechanisms, pooled

__all__ = ["EXPANSION", "Drafting"]

EXPANSION = (1, 1, 3, 1, 1, 1)


class Drafting:
    """The drafting half of a run's maker: whoever inherits it sets these."""

    drafters: tuple[str, ...]
    rng: random.Random
    uses: Mechanisms
    target: Target
    bytes: list[bytes]
    texts: list[str]
    clock: float
    committed: int
    forward: tuple[float, float]

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,) * VOTE_LENGTH if self.uses.combine == "vote" else EXPANSION

    def _drafts(self, number: int, spans: list[Span]) -> tuple[DraftRecord, ...]:
        lost = 0 <= self.uses.loses <= number
        names = self.drafters[:-1] if lost and len(self.drafters) > 1 else self.drafters
        drafts = [self._draft(name, spans) for name in names]
        if self.uses.combine == "log_pool":
            drafts = [drafts[0], *(pooled(drafts[0], d.drafter, d.spans) for d in drafts[1:])]
        return tuple(drafts)

    def _draft(self, name: str, spans: list[Span]) -> DraftRecord:
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
        ahead = self.uses.pipeline == "ahead" and self.forward[1] > 0
        own = self._drafted_ahead(name) if ahead else self._drafted_now(name)
        spans += own
        return DraftRecord(
            drafter=name,
            texts=self._shown(tokens),
            drafted_ahead=ahead,
            spans=own,
            **{field: tuple(values) for field, values in lists.items()},
        )

    def _drafted_now(self, name: str) -> tuple[Span, ...]:
        steps = 0.5 * len(EXPANSION)
        return self._span(name, "catch_up", 0.4), self._span(name, "draft", steps)

    def _drafted_ahead(self, name: str) -> tuple[Span, ...]:
        """Beside the last LLM pass; what could not be known then is caught up with now."""
        start, end = self.forward
        late = round(start + 0.6 * (end - start), 6)
        return Span(name, "draft", start, late), self._span(name, "catch_up", 0.2)

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
