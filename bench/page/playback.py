"""A fake Worker that replays runs."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

from core.config import Request
from core.drafters import resolve_drafters
from core.engine.snapshot import LiveRun, Snapshot
from core.errors import ContextLengthError, EngineClosedError
from core.events import (
    Event,
    ModelInfo,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
)
from core.plurals import number_of

Script = Callable[[Request, str], list[Event]]
Tap = Callable[[Event], None]
TERMINAL_EVENTS = (RunCompleted, RunCancelled, RunFailed)


def respace_events(events: Sequence[Event], rounds_a_second: float) -> list[Event]:
    """A run's events with times at equal intervals; four events count as one round."""
    step = 1000 / rounds_a_second / 4
    return [replace(event, at_ms=step * number) for number, event in enumerate(events)]


def playback(events: Sequence[Event]) -> Script:

    def script(request: Request, run_id: str) -> list[Event]:
        first, *rest = events
        return [replace(e, run_id=run_id) for e in (with_request(first, request), *rest)]

    return script


def with_request(event: Event, request: Request) -> Event:
    """Returns the RunStarted with `request`'s fields."""
    assert isinstance(event, RunStarted)
    config = replace(
        request,
        sampling=replace(request.sampling, seed=request.sampling.seed or event.seed),
        speculation=request.speculation.resolve(request.sampling.temperature),
    )
    return replace(
        event,
        prompt=request.prompt,
        config=config.to_plain(),
        asked=request.to_plain(),
        drafters=event.drafters if request.speculation.drafters else (),
    )


class PlaybackRun:
    """A fake core.engine.worker.Run."""

    def __init__(
        self, worker: PlaybackWorker, request: Request, run_id: str, tap: Tap | None
    ) -> None:
        self.run_id, self.request, self.tap = run_id, request, tap
        self.is_done = False
        self.has_ended, self.num_tokens = False, 0
        self._stop = threading.Event()
        self._worker = worker
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    @property
    def place(self) -> int:
        return self._worker.place(self)

    def emit(self, event: Event) -> None:
        self.has_ended = isinstance(event, TERMINAL_EVENTS)
        self.num_tokens += len(event.token_ids) if isinstance(event, RoundCompleted) else 0
        if self.tap:
            self.tap(event)
        self._queue.put(event)

    def poll(self, timeout: float) -> list[Event]:
        """Waits at most `timeout` seconds for the first event."""
        events: list[Event] = []
        try:
            events.append(self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait())
            while True:
                events.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        if events and isinstance(events[-1], TERMINAL_EVENTS):
            self.is_done = True
        return events

    @property
    def is_cancelled(self) -> bool:
        return self._stop.is_set()

    def cancel(self) -> None:
        self._stop.set()

    def pause(self, seconds: float) -> None:
        """Sleeps; `cancel` ends the sleep."""
        self._stop.wait(seconds)


class PlaybackWorker:
    """Plays `script` for every request. `slowdown`: the factor on the script's times; 0: no pauses.
    `infos`: the models to report as loaded, the LLM first."""

    def __init__(
        self, infos: Sequence[ModelInfo], script: Script, slowdown: float = 1.0, max_live: int = 4
    ) -> None:
        llm, *ssms = infos
        names = tuple(info.name for info in ssms)
        models = SimpleNamespace(infos=(llm, *ssms), drafter_names=names)
        self.engine = SimpleNamespace(models=models, schedule="each")
        self.requests: list[Request] = []
        self.runs: list[PlaybackRun] = []
        self._players: list[threading.Thread] = []
        self._queued: list[PlaybackRun] = []
        self._playing = 0
        self._lock = threading.Lock()
        self.closed = False
        self.set_script(script, slowdown, max_live)

    def set_script(self, script: Script, slowdown: float = 1.0, max_live: int = 4) -> None:
        """Call only while no run is being played."""
        self.script, self.slowdown = script, slowdown
        self._slots, self.max_live = threading.Semaphore(max_live), max_live

    def clear(self) -> None:
        """Stops and removes all runs; returns when they have ended."""
        for run in self.runs:
            run.cancel()
        for thread in self._players:
            thread.join()
        for listing in (self.runs, self.requests, self._players):
            listing.clear()

    def submit(self, request: Request, tap: Tap | None = None) -> PlaybackRun:
        """Raises EngineClosedError after `close`."""
        if self.closed:
            raise EngineClosedError("the worker is closed")
        run = PlaybackRun(self, request, f"played-{uuid.uuid4().hex[:12]}", tap)
        self.requests.append(request)
        self.runs.append(run)
        with self._lock:
            self._queued.append(run)
        player = threading.Thread(target=self._serve, args=(run,), daemon=True)
        player.start()
        self._players.append(player)  # after start(): a thread that has not begun cannot be joined
        return run

    def check(self, request: Request) -> None:
        """Refuses a prompt of too many words, and a drafter that is not loaded."""
        models = self.engine.models
        if len(request.prompt.split()) >= models.infos[0].context_length:
            raise ContextLengthError(
                f"prompt is {number_of(len(request.prompt.split()), 'word')} long"
            )
        resolve_drafters(request.speculation.drafters, models.drafter_names)

    def place(self, run: PlaybackRun) -> int:
        """A run's place in the queue, from 1; 0 if it is being played or has ended."""
        with self._lock:
            return self._queued.index(run) + 1 if run in self._queued else 0

    def waiting(self) -> int:
        return len(self._queued)

    def running(self) -> int:
        return self._playing

    def snapshot(self) -> Snapshot:
        """A Snapshot without the runs' rounds."""
        with self._lock:
            playing = [run for run in self.runs if run not in self._queued and not run.has_ended]
        live_runs = tuple(
            LiveRun(run.run_id, run.num_tokens, run.request.sampling.max_new_tokens)
            for run in playing
        )
        return Snapshot(self.engine.schedule, len(self._queued), self.max_live, live_runs)

    def close(self) -> None:
        self.closed = True
        for run in self.runs:
            run.cancel()

    def _serve(self, run: PlaybackRun) -> None:
        with self._slots:
            with self._lock:
                self._queued.remove(run)
                self._playing += 1
            try:
                self._play(run, self.script(run.request, run.run_id))
            finally:
                with self._lock:
                    self._playing -= 1

    def _play(self, run: PlaybackRun, events: list[Event]) -> None:
        start = time.monotonic()
        for event in events:
            # Relative to the start: delays do not add up.
            wait_s = event.at_ms / 1000 * self.slowdown - (time.monotonic() - start)
            if wait_s > 0:
                run.pause(wait_s)
            # RunStarted is emitted even if the run is stopped at once.
            if run.is_cancelled and not isinstance(event, (*TERMINAL_EVENTS, RunStarted)):
                stats = RunStats()
                run.emit(RunCancelled(run.run_id, event.seq, event.at_ms, "", stats))
                return
            run.emit(event)
