"""Turns events into units of writing.

A gap in `seq` makes a hole: later events of the run are counted, not written, except for the run's
end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.events import EndEvent, Event, RoundCompleted, RunStarted
from storage.queries import PlainSpeed
from storage.round_encoder import RoundEvent

__all__ = [
    "BOUNDARIES",
    "BaselineRecord",
    "End",
    "Hole",
    "Measurement",
    "RegretRecord",
    "UnitBuilder",
    "RoundRecord",
    "RunStart",
    "Unit",
]


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of a run; `owner`: the visitor's key."""

    event: RunStarted
    owner: str
    num_events: int = 1

    @property
    def run_id(self) -> str:
        return self.event.run_id


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """The events of one round, which is complete unless the run ended in it."""

    events: tuple[RoundEvent, ...]

    @property
    def run_id(self) -> str:
        return self.events[0].run_id

    @property
    def num_events(self) -> int:
        return len(self.events)


@dataclass(frozen=True, slots=True)
class Hole:
    """At least `num_lost` events of a run are missing."""

    run_id: str
    num_lost: int
    num_events: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run; `num_lost`: as in Hole, 0 if no event is missing."""

    event: EndEvent
    num_lost: int
    num_events: int = 1

    @property
    def run_id(self) -> str:
        return self.event.run_id


@dataclass(frozen=True, slots=True)
class BaselineRecord:
    """A run's baseline: the speed of plain decoding."""

    run_id: str
    baseline: PlainSpeed
    num_events: int = 0


@dataclass(frozen=True, slots=True)
class RegretRecord:
    """A routed run's regret (`core.routing.regret`), as JSON types."""

    run_id: str
    regret: Mapping[str, Any]
    num_events: int = 0


Measurement = BaselineRecord | RegretRecord
"""A measurement of a run. Not an event: it has no `seq`."""
Unit = RunStart | RoundRecord | Hole | End | Measurement
# An event or measurement of these types completes a unit.
BOUNDARIES = RunStarted | RoundCompleted | EndEvent | Measurement


@dataclass(slots=True)
class _Run:
    """An open run. `next_seq`: `seq` of the next event; `unwritten_seq`: `seq` of the first event
    that is not written; `pending`: the events of the round so far."""

    next_seq: int
    unwritten_seq: int
    pending: list[RoundEvent] = field(default_factory=list)
    has_hole: bool = False
    is_deleted: bool = False


class UnitBuilder:
    """Collects events by run. `dropped`: how many of the events that arrived here are lost."""

    def __init__(self) -> None:
        self.dropped = 0
        self._runs: dict[str, _Run] = {}

    def add(self, event: Event | Measurement, owner: str) -> list[Unit]:
        """The units that this event completes, in the order of writing."""
        if isinstance(event, Measurement):
            return [event]
        if isinstance(event, RunStarted):
            self._runs[event.run_id] = _Run(next_seq=event.seq + 1, unwritten_seq=event.seq + 1)
            return [RunStart(event, owner)]
        run = self._runs.get(event.run_id)
        if run is None:  # its start was lost
            self.dropped += 1
            return []
        units: list[Unit] = []
        if not run.has_hole and event.seq != run.next_seq:
            self._open_hole(run)
            units.append(Hole(event.run_id, max(1, event.seq - run.unwritten_seq)))
        run.next_seq = event.seq + 1
        if isinstance(event, EndEvent):
            del self._runs[event.run_id]
            return [] if run.is_deleted else units + self._end(run, event)
        if run.has_hole:
            self.dropped += not run.is_deleted
            return units
        run.pending.append(event)
        if isinstance(event, RoundCompleted):
            units.append(RoundRecord(tuple(run.pending)))
            run.pending, run.unwritten_seq = [], run.next_seq
        return units

    def _end(self, run: _Run, event: EndEvent) -> list[Unit]:
        partial: list[Unit] = [RoundRecord(tuple(run.pending))] if run.pending else []
        return [*partial, End(event, max(1, event.seq - run.unwritten_seq) if run.has_hole else 0)]

    def _open_hole(self, run: _Run) -> None:
        run.has_hole = True
        self.dropped += len(run.pending)
        run.pending = []

    def mark_unwritten(self, unit: Unit) -> None:
        """Marks a hole that begins with an unwritten unit."""
        self.dropped += unit.num_events
        run = self._runs.get(unit.run_id)
        # Without a hole, later units would make the run seem complete.
        if run is not None and not run.has_hole and unit.num_events:
            self._open_hole(run)
            if isinstance(unit, RoundRecord):
                run.unwritten_seq = min(run.unwritten_seq, unit.events[0].seq)

    def ignore_run(self, run_id: str) -> None:
        """The run was deleted: its further events are ignored and not counted as lost."""
        run = self._runs.get(run_id)
        if run is not None:
            run.has_hole = run.is_deleted = True
            run.pending = []
