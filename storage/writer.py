"""The thread that writes events to the log. Recording an event only appends it to a queue.

While the disk is full or the file is locked the log is paused: the thread retries with a growing
delay, and events wait in memory up to a limit.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from core.events import EndEvent, Event
from storage.database import explain
from storage.sink import Sink
from storage.units import BOUNDARIES, End, Measurement, Unit, UnitBuilder

__all__ = ["LogStatus", "LogWriter"]

INTERVAL_S = 0.1
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 2.0
UPKEEP_RETRY_S = 2.0
# A lock, a full disk, or values that another program wrote into the file.
UPKEEP_FAULTS = (sqlite3.Error, LookupError, TypeError, ValueError)
UNITS_A_TRANSACTION = 64


@dataclass(frozen=True, slots=True)
class LogStatus:
    """State of the log. `reason`: a sentence while the log is paused, else empty. `waiting`: the
    number of events that wait in the queue or for the disk; `dropped`: the number of events that
    will never be written."""

    paused: bool
    reason: str
    waiting: int
    dropped: int


class LogWriter:
    """A queue of events and the thread that empties it into a sink. `upkeep`: see
    `storage.thinning.upkeep`."""

    def __init__(self, sink: Sink, max_waiting: int, upkeep: Callable[[], bool]) -> None:
        self._sink, self._max_waiting, self._upkeep = sink, max_waiting, upkeep
        self._change = threading.Condition()
        # Guarded by `_change`:
        self._queue: deque[tuple[Event | Measurement, str]] = deque()
        # Numbers of events so far. `_settled`: written, dropped or kept until their round is
        # complete. `_dropped`: refused by a full or closed queue.
        self._put = self._taken = self._settled = self._dropped = 0
        # `_due`: a unit is complete, or upkeep may be due. `_urgent`: write without waiting for the
        # interval. `_closing`: end the thread after writing.
        self._due = self._urgent = self._closing = False
        self._untidy = True
        self._reason = ""
        # Used by the thread only:
        self._builder = UnitBuilder()
        self._units: deque[Unit] = deque()
        self._next_at = 0.0
        self._retry_s = FIRST_RETRY_S
        self._upkeep_at = 0.0
        self._thread = threading.Thread(target=self._run, name="run-log", daemon=True)
        self._thread.start()

    # -- any thread --

    def enqueue(self, event: Event | Measurement, owner: str) -> None:
        """Queues an event; does not wait for the disk. After `close` the event is dropped. If too
        many events wait, the event is dropped unless it is a run's end or a measurement."""
        with self._change:
            # Without its last event a run's outcome would be lost.
            full = self._put - self._settled >= self._max_waiting
            if self._closing or (full and not isinstance(event, EndEvent | Measurement)):
                self._dropped += 1
                return
            self._queue.append((event, owner))
            self._put += 1
            # Waking the thread at every event would cost the engine time.
            if isinstance(event, BOUNDARIES) and not self._due:
                self._due = True
                self._change.notify_all()

    def flush(self, timeout: float) -> bool:
        """Writes now. Returns True once the events that were queued before are written, dropped or
        kept until their round is complete; False after `timeout` seconds."""
        with self._change:
            num_queued = self._put
            self._urgent = True
            self._change.notify_all()
            return self._change.wait_for(lambda: self._settled >= num_queued, timeout)

    def tidy(self) -> None:
        """Makes the thread check soon whether there is upkeep to do."""
        with self._change:
            self._untidy = self._due = True
            self._change.notify_all()

    def status(self) -> LogStatus:
        """The log's current state."""
        with self._change:
            reason = self._reason
            if not self._closing and not self._thread.is_alive():
                reason = "the thread that writes the log has stopped"
            waiting = self._put - self._settled
            return LogStatus(bool(reason), reason, waiting, self._dropped + self._builder.dropped)

    def close(self, timeout: float) -> None:
        """Writes queued events if possible within `timeout` seconds, and ends the thread."""
        self.flush(timeout)
        with self._change:
            self._closing = self._urgent = True
            self._change.notify_all()
        self._thread.join()

    # -- the writer's thread --

    def _run(self) -> None:
        while self._wait():
            self._take()
            self._write()
            self._do_upkeep()
        self._sink.close()

    def _wait(self) -> bool:
        """Waits for work; False if the writer is closing and either has nothing left to write or
        cannot write now."""
        with self._change:
            until_upkeep = max(0.0, self._upkeep_at - time.monotonic()) if self._untidy else None
            self._change.wait_for(
                lambda: self._writes_now() or self._due or bool(self._units), until_upkeep
            )
            pause = max(0.0, self._next_at - time.monotonic())
            self._change.wait_for(self._writes_now, pause)
            nothing_left = not self._queue and not self._units
            self._due = self._urgent = False
            return not (self._closing and (nothing_left or self._reason))

    def _writes_now(self) -> bool:
        return self._urgent or self._closing

    def _take(self) -> None:
        with self._change:
            queue, self._queue = self._queue, deque()
            self._taken = self._put
        for event, owner in queue:
            self._units += self._builder.add(event, owner)

    def _write(self) -> None:
        # In portions: other programs can write in between.
        while self._units:
            chunk = [self._units[i] for i in range(min(len(self._units), UNITS_A_TRANSACTION))]
            try:
                refused = self._sink.write(chunk)
            except sqlite3.Error as error:
                self._pause(explain(error, self._sink.path))
                return
            for unit, run_exists in refused:
                if run_exists:
                    self._builder.mark_unwritten(unit)
                else:
                    self._builder.ignore_run(unit.run_id)
            with self._change:
                self._untidy = self._untidy or any(isinstance(unit, End) for unit in chunk)
            # Removed only now: after an error the same units are tried again.
            for _ in chunk:
                self._units.popleft()
        self._resume()

    def _do_upkeep(self) -> None:
        with self._change:
            too_early = time.monotonic() < self._upkeep_at
            if not self._untidy or too_early or self._closing or self._reason:
                return
            self._untidy = False
        try:
            has_more = self._upkeep()
        except UPKEEP_FAULTS:  # tried again later: the log must continue
            has_more, self._upkeep_at = True, time.monotonic() + UPKEEP_RETRY_S
        with self._change:
            self._untidy = self._untidy or has_more

    def _pause(self, reason: str) -> None:
        self._next_at = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
        with self._change:
            self._reason = reason

    def _resume(self) -> None:
        self._next_at = time.monotonic() + INTERVAL_S
        self._retry_s = FIRST_RETRY_S
        with self._change:
            self._reason = ""
            self._settled = self._taken
            self._change.notify_all()
