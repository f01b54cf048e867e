"""Worker: serves many callers on one engine. One thread runs the rounds; callers read events.

Requests join between rounds (continuous batching).
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from core.config import Request
from core.engine.admission import chat_tokens, check, refuse_oversized
from core.engine.engine import Engine
from core.engine.round_state import ActiveRequest
from core.engine.run_events import run_cancelled, run_failed
from core.engine.snapshot import RECENT_ROUNDS, RoundFacts, Snapshot, lanes_of, live_run
from core.errors import (
    MODEL_FAULTS,
    EngineBusyError,
    EngineClosedError,
    SpecScopeError,
)
from core.events import EndEvent, Event
from core.models.machine import shorten_switch_interval, use_threads
from core.sequence import TokenSequence

__all__ = ["Run", "Tap", "Worker"]

IDLE_S = 10.0
"""The interval, in seconds, at which connections to drafter nodes are polled while no request is
live. Without polls the events of refused connections would accumulate."""
Tap = Callable[[Event], None]
"""Called in the worker's thread with each event of a run, before the event can be read. A tap that
raises is not called again; the run continues, with the error in `Run.tap_error`."""


class Run:
    """One submitted request. Its events are read once, by one reader."""

    def __init__(self, worker: Worker, sequence: TokenSequence, tap: Tap | None) -> None:
        self.run_id = sequence.run_id
        self.request = sequence.request
        self.sequence = sequence
        self.submitted = time.perf_counter()
        self.cancel_requested = False
        self._worker = worker
        self._tap = tap
        self.tap_error: Exception | None = None
        # Guarded by `_new_event`, a lock per run.
        self._unread: deque[Event] = deque()
        self._new_event = threading.Condition()
        self._has_ended = False

    @property
    def place(self) -> int:
        """Position in the queue, from 1; 0 for a run that is running or finished."""
        return self._worker.place(self)

    @property
    def is_done(self) -> bool:
        """Whether the last event has been read."""
        return self._has_ended and not self._unread

    def poll(self, timeout: float) -> list[Event]:
        """All unread events; waits up to `timeout` seconds for the first of them."""
        with self._new_event:
            self._new_event.wait_for(lambda: self._unread or self._has_ended, timeout)
            events = list(self._unread)
            self._unread.clear()
        return events

    def events(self) -> Iterator[Event]:
        """Yields all events up to the last; closing the iterator early cancels the run."""
        try:
            while not self.is_done:
                yield from self.poll(timeout=1.0)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Asks the worker to stop the run. Does nothing for a finished run."""
        # A flag is enough: the worker's thread waits only while there is no run at all.
        self.cancel_requested = True

    def deliver(self, event: Event) -> None:
        """Passes an event to the tap, then to the reader. Called in the worker's thread."""
        if self._tap is not None and self.tap_error is None:
            try:
                self._tap(event)
            except MODEL_FAULTS as error:
                self.tap_error = error
        with self._new_event:
            self._unread.append(event)
            self._has_ended = isinstance(event, EndEvent)
            self._new_event.notify_all()


class Worker:
    """Serves many callers on one engine. Raises EngineBusyError if the engine is in use.

    `max_live`: the most requests decoded together. `threads`: the number of threads of a CPU pass,
    see `use_threads`.
    """

    def __init__(self, engine: Engine, max_live: int = 4, threads: int | None = None) -> None:
        use_threads(threads)
        shorten_switch_interval()
        if not engine.busy.acquire(blocking=False):
            raise EngineBusyError("engine is busy: a worker needs it for itself")
        self.engine = engine
        self._max_live = max_live
        # `_change` guards changes of the queue and the flags; only the worker's thread changes
        # `_active` and `_joining`.
        self._waiting: deque[Run] = deque()
        self._active: dict[str, tuple[Run, ActiveRequest]] = {}
        self._change = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._serving = False
        # Out of the queue but not active yet: if the thread fails now, this run must fail too.
        self._joining: Run | None = None
        # The last rounds. The tuple is replaced as a whole: any thread may read it without a lock.
        self._rounds: tuple[RoundFacts, ...] = ()

    # -- for callers, in any thread --

    def submit(self, request: Request, tap: Tap | None = None) -> Run:
        """Queues a request. Raises ConfigError, ContextLengthError, or EngineClosedError after
        `close`."""
        self._refuse_if_closed()
        refuse_oversized(self.engine.models, request)  # tokenizing could delay other callers
        sequence = self.engine.prepare(request)
        run = Run(self, sequence, tap)
        with self._change:
            self._refuse_if_closed()  # `close` may have run while the prompt was tokenized
            self._waiting.append(run)
            if not self._serving:
                self._serving = True
                # The first request, or the first after an unforeseen error.
                self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
                self._thread.start()
            self._change.notify_all()
        return run

    def check(self, request: Request) -> None:
        """Raises the errors of `submit`; queues nothing."""
        self._refuse_if_closed()
        refuse_oversized(self.engine.models, request)
        check(self.engine.models, request)

    def chat_tokens(self, messages: tuple[Mapping[str, str], ...]) -> tuple[int, ...]:
        """Token ids of the messages in the LLM's chat template. Raises ConfigError,
        ContextLengthError, or EngineClosedError after `close`."""
        self._refuse_if_closed()
        text = "\n".join(message["content"] for message in messages)
        refuse_oversized(self.engine.models, Request(text))
        return chat_tokens(self.engine.models, messages)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise EngineClosedError("worker is closed: no more requests are accepted")

    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def running(self) -> int:
        """Requests being decoded."""
        return len(self._active)

    def snapshot(self) -> Snapshot:
        """The live requests, the queue, and which models were busy in the last rounds."""
        rounds, active = self._rounds, list(self._active.values())
        return Snapshot(
            schedule=self.engine.schedule,
            num_waiting=len(self._waiting),
            max_live=self._max_live,
            runs=tuple(
                live_run(
                    run.run_id,
                    run.sequence.num_new,
                    run.sequence.sampling.max_new_tokens,
                    rounds,
                    request.max_tree_nodes,
                )
                for run, request in active
            ),
            lanes=lanes_of(rounds) if active else (),
            decision=self.engine.schedule_decision,
        )

    def place(self, run: Run) -> int:
        """See `Run.place`."""
        with self._change:
            return self._waiting.index(run) + 1 if run in self._waiting else 0

    def close(self) -> None:
        """Cancels every run, ends the thread, and closes and releases the engine. Idempotent."""
        with self._change:
            already, self._is_closed = self._is_closed, True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()
        if not already:
            self.engine.close()
            self.engine.busy.release()

    # -- the worker's thread --

    def _serve(self) -> None:
        try:
            while self._admit_or_wait():
                self._end_cancelled()
                if self._active:
                    self._round()
        finally:
            self._shut_down(sys.exception())

    def _shut_down(self, error: BaseException | None) -> None:
        # Callbacks run in reverse order: requests are released first.
        with ExitStack() as cleanup:
            cleanup.callback(self._fail_remaining, error or SpecScopeError("the worker stopped"))
            for _, active in self._active.values():
                cleanup.callback(self.engine.release, active)

    def _fail_remaining(self, error: BaseException) -> None:
        """Fails every remaining run: a reader must not wait for ever."""
        with self._change:
            joining = [] if self._joining is None else [self._joining]
            left = [*(run for run, _ in self._active.values()), *joining, *self._waiting]
            self._active.clear()
            self._waiting.clear()
            self._joining, self._serving = None, False
        for run in left:
            run.deliver(run_failed(run.sequence, error))

    def _admit_or_wait(self) -> bool:
        """Returns False once the worker is closed and no request is left."""
        with self._change:
            while not self._change.wait_for(
                lambda: self._is_closed or self._waiting or self._active, IDLE_S
            ):
                if self.engine.nodes is not None:
                    self.engine.nodes.poll()
            if self._is_closed and not self._waiting and not self._active:
                return False
        while (run := self._next_waiting()) is not None:
            self._admit(run)
            self._joining = None
        return True

    def _next_waiting(self) -> Run | None:
        with self._change:
            if self._waiting and len(self._active) < self._max_live:
                self._joining = self._waiting.popleft()
            return self._joining

    def _should_stop(self, run: Run) -> bool:
        return run.cancel_requested or self._is_closed

    def _admit(self, run: Run) -> None:
        if self._should_stop(run):
            run.deliver(run_cancelled(run.sequence))
            return
        try:
            queue_ms = (time.perf_counter() - run.submitted) * 1000
            active = self.engine.admit(run.sequence)
            # From here on `_shut_down` also releases the request.
            self._active[run.run_id], self._joining = (run, active), None
            run.deliver(self.engine.run_started_event(active, queue_ms))
            # `_end_cancelled` ends a run that is cancelled here.
            for _ in self.engine.prefill(active):
                if self._should_stop(run):
                    return
        except MODEL_FAULTS as error:
            self._end(run, run_failed(run.sequence, error))

    def _end_cancelled(self) -> None:
        with self._change:
            left = [run for run in self._waiting if self._should_stop(run)]
            self._waiting = deque(run for run in self._waiting if not self._should_stop(run))
        for run in left:
            run.deliver(run_cancelled(run.sequence))
        for run, _ in list(self._active.values()):
            if self._should_stop(run):
                self._end(run, run_cancelled(run.sequence))

    def _round(self) -> None:
        start, events = time.perf_counter(), list[Event]()
        # Before the round: runs that end in the round leave `_active`.
        start_times = {run_id: run.sequence.started for run_id, (run, _) in self._active.items()}
        try:
            # If one of several requests fails, the round yields its RunFailed. An exception fails
            # all requests.
            active = [active for _, active in self._active.values()]
            for event in self.engine.round(active, len(self._waiting)):
                run, _ = self._active[event.run_id]
                events.append(event)
                if isinstance(event, EndEvent):
                    self._end(run, event)
                else:
                    run.deliver(event)
        except MODEL_FAULTS as error:
            for run, _ in list(self._active.values()):
                self._end(run, run_failed(run.sequence, error))
        facts = RoundFacts.of(start, time.perf_counter(), events, start_times)
        # Emptied when no run is left: the pause until the next run must not count as idle time.
        self._rounds = (*self._rounds[1 - RECENT_ROUNDS :], facts) if self._active else ()

    def _end(self, run: Run, event: Event) -> None:
        entry = self._active.pop(run.run_id, None)
        with ExitStack() as cleanup:
            # Callbacks run last: the event is delivered even if the release fails.
            cleanup.callback(run.deliver, event)
            if entry is not None:
                self.engine.release(entry[1])
