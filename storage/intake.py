"""Turns events into units of writing: a run's start, a whole round, its end. Uses no database.

A missing event (`seq` has a gap) makes a hole: later events of that run are counted, not written,
except for the status that its end sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core.events import Event, RoundCompleted, RunCancelled, RunCompleted, RunFailed, RunStarted
from storage.codec import EndEvent
from storage.queries import PlainSpeed
from storage.round_encoder import RoundEvent

__all__ = [
    "BOUNDARIES",
    "BaselineRecord",
    "End",
    "Hole",
    "Intake",
    "RoundRecord",
    "RunStart",
    "Unit",
]

END_EVENTS = (RunCompleted, RunCancelled, RunFailed)


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
    """One whole round; at the run's end perhaps an incomplete one."""

    events: tuple[RoundEvent, ...]

    @property
    def run_id(self) -> str:
        return self.events[0].run_id

    @property
    def num_events(self) -> int:
        return len(self.events)


@dataclass(frozen=True, slots=True)
class Hole:
    """At least `num_lost` events of a run are missing; it can be read up to the first of them."""

    run_id: str
    num_lost: int
    num_events: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run."""

    event: EndEvent
    num_lost: int
    num_events: int = 1

    @property
    def run_id(self) -> str:
        return self.event.run_id


@dataclass(frozen=True, slots=True)
class BaselineRecord:
    """A run's baseline, measured during the run or after its end. Not an event: it has no `seq`."""

    run_id: str
    baseline: PlainSpeed
    num_events: int = 0


Unit = RunStart | RoundRecord | Hole | End | BaselineRecord
# After what is taken in there is a unit to write.
BOUNDARIES = (RunStarted, RoundCompleted, *END_EVENTS, BaselineRecord)


@dataclass(slots=True)
class _Run:
    """An open run: the `seq` expected next, the first one that is not written yet, the events of
    the round so far."""

    expected: int
    kept: int
    pending: list[RoundEvent] = field(default_factory=list)
    holed: bool = False
    forgotten: bool = False


class Intake:
    """Collects events by run. `dropped`: the number of events that will never be written."""

    def __init__(self) -> None:
        self.dropped = 0
        self._runs: dict[str, _Run] = {}

    def take(self, event: Event | BaselineRecord, owner: str) -> list[Unit]:
        """The units that this event completes, in the order of writing."""
        if isinstance(event, BaselineRecord):
            return [event]
        if isinstance(event, RunStarted):
            self._runs[event.run_id] = _Run(expected=event.seq + 1, kept=event.seq + 1)
            return [RunStart(event, owner)]
        run = self._runs.get(event.run_id)
        if run is None:  # its start was lost
            self.dropped += 1
            return []
        units: list[Unit] = []
        if not run.holed and event.seq != run.expected:
            self._lose(run)
            units.append(Hole(event.run_id, max(1, event.seq - run.kept)))
        run.expected = event.seq + 1
        if isinstance(event, END_EVENTS):
            del self._runs[event.run_id]
            return [] if run.forgotten else units + self._end(run, event)
        if run.holed:
            self.dropped += not run.forgotten
            return units
        run.pending.append(event)
        if isinstance(event, RoundCompleted):
            units.append(RoundRecord(tuple(run.pending)))
            run.pending, run.kept = [], run.expected
        return units

    def _end(self, run: _Run, event: EndEvent) -> list[Unit]:
        partial: list[Unit] = [RoundRecord(tuple(run.pending))] if run.pending else []
        return [*partial, End(event, max(1, event.seq - run.kept) if run.holed else 0)]

    def _lose(self, run: _Run) -> None:
        run.holed = True
        self.dropped += len(run.pending)
        run.pending = []

    def spoil(self, unit: Unit) -> None:
        """Marks a hole from a unit on that could not be written."""
        self.dropped += unit.num_events
        run = self._runs.get(unit.run_id)
        # Later events of the run would follow a gap, and a reader would take them for whole.
        if run is not None and not run.holed and unit.num_events:
            self._lose(run)
            if isinstance(unit, RoundRecord):
                run.kept = min(run.kept, unit.events[0].seq)

    def forget(self, run_id: str) -> None:
        """The run was deleted: ignore the rest of its events without counting them as lost."""
        run = self._runs.get(run_id)
        if run is not None:
            run.holed = run.forgotten = True
            run.pending = []
