"""Outcome: a whole run as one plain object, folded from its events."""

from __future__ import annotations

import dataclasses
from typing import Any

from core.events import (
    EndEvent,
    Event,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)

__all__ = ["Outcome"]


class Outcome:
    """Call `observe` with every event of one run, then `to_plain`."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self._started: RunStarted | None = None
        self._ended: EndEvent | None = None
        self._texts: list[str] = []
        # A dict as an ordered set: several rounds may have the same note.
        self._notes: dict[str, None] = {}

    def observe(self, event: Event) -> str:
        """Takes an event; returns the text that the event adds."""
        delta = ""
        if isinstance(event, RunStarted):
            self._started = event
        elif isinstance(event, RoundCompleted):
            self.token_ids.extend(event.token_ids)
            delta = "".join(event.text_deltas)
            self._notes |= dict.fromkeys(event.notes)
        elif isinstance(event, EndEvent):
            self._ended = event
            # Text that was withheld because a character was incomplete.
            delta = event.text_tail
        self._texts.append(delta)
        return delta

    @property
    def text(self) -> str:
        """The continuation so far."""
        return "".join(self._texts)

    @property
    def notes(self) -> tuple[str, ...]:
        """The rounds' notes, each note once."""
        return tuple(self._notes)

    @property
    def summary(self) -> dict[str, Any]:
        """The fields of RunStats, `finish_reason` and `wall_ms`; empty until the run has ended."""
        if self._ended is None:
            return {}
        stats = self._ended.stats
        reason = {RunCancelled: "cancelled", RunFailed: "failed"}.get(type(self._ended), "")
        if isinstance(self._ended, RunCompleted):
            reason = self._ended.finish_reason
        return {
            **dataclasses.asdict(stats),
            "finish_reason": reason,
            # `total_ms` begins when the run leaves the queue.
            "wall_ms": stats.queue_ms + stats.total_ms,
        }

    def to_plain(self) -> dict[str, Any]:
        """The run as JSON types and tuples. `token_ids`: the new tokens."""
        started = self._started
        error = self._ended if isinstance(self._ended, RunFailed) else None
        return {
            "run_id": started.run_id if started else "",
            "text": self.text,
            "token_ids": list(self.token_ids),
            "prompt_token_ids": list(started.prompt_token_ids) if started else [],
            "summary": self.summary,
            "config": started.config if started else {},
            "models": [dataclasses.asdict(model) for model in started.models] if started else [],
            "versions": started.versions if started else {},
            "warnings": list(started.warnings) if started else [],
            "error": f"{error.error}: {error.message}" if error else "",
        }
