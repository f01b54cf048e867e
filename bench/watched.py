"""A timed run of several live requests, with what came of pipelining in its rounds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.ours import Case, request
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import Drafted, RoundCompleted
from core.metrics import NOT_DRAFTING

__all__ = ["watched"]

NOTES = 4  # sentences kept of a run


@dataclass
class _Watch:
    """One run's rounds but the first, which has the prefills and can be no hit."""

    token_ids: list[int] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    drafts: int = 0
    before: float = 0.0

    def completed(self, event: RoundCompleted) -> None:
        self.token_ids.extend(event.token_ids)
        self.notes += [(event.round, note) for note in event.notes]
        if event.round:
            self._add(event, event.at_ms - self.before)
        self.before = event.at_ms

    def _add(self, event: RoundCompleted, wall: float) -> None:
        drafting = [
            span.ms
            for span in event.spans
            if span.lane not in NOT_DRAFTING and span.name != "prefill"
        ]
        # What was made for a round that never came was wanted by none.
        asked = [one for one in event.ahead if one.reason != "ended"]
        found = {
            "rounds": 1,
            "round_ms": wall,
            "draft_ms": sum(drafting),
            "drafts": max(self.drafts, len({one.drafter for one in asked})),
            "hits": sum(one.hit for one in asked),
            "saved_ms": sum(one.saved_ms for one in event.ahead),
            "wasted_ms": sum(one.wasted_ms for one in event.ahead),
            "on_ms": wall if asked else 0.0,
        }
        self.sums = {name: self.sums.get(name, 0) + value for name, value in found.items()}


def watched(
    engine: Engine, cases: Sequence[Case], speculation: SpeculationConfig
) -> dict[str, Any]:
    """Runs the cases live together. `tokens` and `seconds`, prefills included; sums over all rounds
    of all runs but their first: `rounds`, `round_ms`, `draft_ms`, `drafts` wanted (or made early
    for a round) and `hits` among them, `saved_ms`, `wasted_ms`, `on_ms` (of rounds with drafts made
    early); a `digest` of the texts; `notes` with their rounds."""
    runs: dict[str, _Watch] = {}
    start = time.perf_counter()
    for event in engine.generate_many([request(case, speculation) for case in cases]):
        watch = runs.setdefault(event.run_id, _Watch())
        if isinstance(event, Drafted):
            watch.drafts = len(event.drafts)
        elif isinstance(event, RoundCompleted):
            watch.completed(event)
    seconds = time.perf_counter() - start
    names = dict.fromkeys(name for watch in runs.values() for name in watch.sums)
    texts = [watch.token_ids for watch in runs.values()]
    return {
        "tokens": sum(map(len, texts)),
        "seconds": seconds,
        "digest": hashlib.sha256(repr(texts).encode()).hexdigest()[:16],
        "notes": [list(note) for watch in runs.values() for note in watch.notes[:NOTES]],
        **{name: sum(watch.sums.get(name, 0) for watch in runs.values()) for name in names},
    }
