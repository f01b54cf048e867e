"""The result of a study's cell (lab.order.Cell): figures and token ids of its run, from events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import CellInterruptedError, StudyError
from core.events import (
    Combined,
    Event,
    RoundCompleted,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
    Scheduled,
    Verified,
)
from core.events.plain import from_plain

__all__ = ["Measured", "measure_run"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished run of a cell.

    `accepted_by`: pairs (drafter, number of accepted tokens that the drafter proposed), in the
    order of the drafters. A token that two drafters proposed counts for both drafters.
    `rejected_at[d]`: the number of rounds that wrote d accepted tokens and then a recovered token.
    `accepted_per_round`: in order of the rounds; `drafted_per_round`: the depth of each round's
    tree. `auto_nodes`: the number that `max_tree_nodes=auto` resolved to (filled in by
    lab.conductor); None if `auto` was not used or does not depend on measured times. `idle`: why
    the run's drafters drafted nothing, else empty. `schedule`: the rules that scheduled the run's
    rounds, joined by `and`; empty if no round was scheduled. `num_others`: the largest number of
    other requests in a scheduled round.
    """

    run_id: str
    token_ids: tuple[int, ...]
    stats: RunStats
    finish_reason: str
    verify: str
    accepted_by: tuple[tuple[str, int], ...] = ()
    rejected_at: tuple[int, ...] = ()
    accepted_per_round: tuple[int, ...] = ()
    drafted_per_round: tuple[int, ...] = ()
    auto_nodes: int | None = None
    idle: str = ""
    schedule: str = ""
    num_others: int = 0

    def to_plain(self) -> dict[str, Any]:
        """A dict of JSON's own types and tuples."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Measured:
        """The inverse of `to_plain`, also after conversion to JSON and back."""
        measured: Measured = from_plain(cls, values)
        return measured


def measure_run(events: Iterable[Event]) -> Measured:
    """The result of a run. Raises StudyError if the run failed, CellInterruptedError if it is
    incomplete."""
    fold = _Fold()
    for event in events:
        fold.observe(event)
    return fold.result()


_LENGTH_CHANGE = re.compile(r"^\d+ (stays|-> \d+): ")
"""The lengths at the beginning of a length policy's reason."""


class _Fold:
    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._tokens: list[int] = []
        self._accepted_by: Counter[str] = Counter()
        self._num_rejected: Counter[int] = Counter()
        self._accepted: list[int] = []
        self._drafted: list[int] = []
        self._requested: list[int] = []
        self._reason = ""
        self._scheduled: list[Scheduled] = []
        self._tree: Combined | None = None
        self._verdict: Verified | None = None
        self._last: Event | None = None

    def observe(self, event: Event) -> None:
        self._last = event
        if isinstance(event, RunStarted):
            self._started = event
        elif isinstance(event, Combined):
            self._tree = event
            # The tree's depth: the most drafted tokens that the round could accept.
            self._drafted.append(max(event.depths, default=0))
        elif isinstance(event, Verified):
            self._verdict = event
        elif isinstance(event, RoundCompleted):
            self._add_round(event)
            self._tokens += event.token_ids
            self._accepted.append(event.num_accepted)
            self._requested.append(event.speculation_length)
            self._scheduled += [event.scheduled] if event.scheduled is not None else []
            # Keeps the last reason for a length of 0.
            if event.next_speculation_length == 0:
                self._reason = event.length_reason or self._reason

    def _add_round(self, event: RoundCompleted) -> None:
        tree, verdict = self._tree, self._verdict
        if tree is None or verdict is None:
            return
        # The accepted path, up to the token at which the text was stopped.
        for node in verdict.path[: event.num_accepted]:
            self._accepted_by.update(tree.drafters_of(node))
        if verdict.own_kind == "recovered" and len(event.token_ids) > len(verdict.path):
            self._num_rejected[len(verdict.path)] += 1

    def result(self) -> Measured:
        started, end = self._started, self._last
        if isinstance(end, RunFailed):
            raise StudyError(f"run {end.run_id} failed: {end.error}: {end.message}")
        if started is None or not isinstance(end, RunCompleted):
            raise CellInterruptedError("its run was stopped before its end")
        # `rejected_at` has no zeros after the deepest rejection.
        deepest = max(self._num_rejected, default=-1) + 1
        return Measured(
            run_id=started.run_id,
            token_ids=tuple(self._tokens),
            stats=end.stats,
            finish_reason=end.finish_reason,
            verify=started.config.get("speculation", {}).get("verify", ""),
            accepted_by=tuple((name, self._accepted_by[name]) for name in started.drafters),
            rejected_at=tuple(self._num_rejected[depth] for depth in range(deepest)),
            accepted_per_round=tuple(self._accepted),
            drafted_per_round=tuple(self._drafted),
            idle=self._idle(started),
            schedule=" and ".join(dict.fromkeys(part.schedule for part in self._scheduled)),
            num_others=max((part.num_live - 1 for part in self._scheduled), default=0),
        )

    def _idle(self, started: RunStarted) -> str:
        if any(self._drafted) or not self._requested or not started.drafters:
            return ""
        drafting_rounds = sum(length > 0 for length in self._requested)
        # The majority of rounds decides: a policy that mostly chooses 0 may ask for a few drafts,
        # to measure.
        if 2 * drafting_rounds >= len(self._requested):
            rounds = f"{drafting_rounds} of {len(self._requested)} rounds"
            return f"drafts were asked for in {rounds}, and no drafter had a token to offer"
        return _LENGTH_CHANGE.sub("", self._reason.partition("; ")[0]) or "the length chosen was 0"
