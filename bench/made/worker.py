"""A worker without models: SYNTHETIC runs, played at the speed they claim.

The same interface as core.engine.worker.Worker, as far as the page uses it.
"""

from __future__ import annotations

import math
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace

from bench.made.run import DRAFTERS, synthetic_run
from core.config import Request
from core.drafters import resolve_drafters
from core.errors import ContextLengthError, EngineClosedError
from core.events import (
    Combined,
    Drafted,
    Event,
    ModelInfo,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
    Span,
    TopK,
    Verified,
)
from core.metrics import StatsFold

__all__ = [
    "INFOS",
    "FakeRun",
    "FakeWorker",
    "Script",
    "as_asked",
    "endless",
    "plain_twin",
    "recorded",
    "scripted",
]

Script = Callable[[Request, str], list[Event]]
Tap = Callable[[Event], None]
END = (RunCompleted, RunCancelled, RunFailed)

INFOS = (
    ModelInfo("synthetic-llm", "llm", 31_000, "None", 4096, 512, "float32", "cpu"),
    *(ModelInfo(name, "ssm", 1_000, "None", 4096, 512, "float32", "cpu") for name in DRAFTERS),
)


def scripted(
    rounds: int = 12, seed: int = 0, hostile: bool = False, end: str = "completed"
) -> Script:
    """Every request gets the same SYNTHETIC text; one without drafters gets it plainly."""

    def script(request: Request, run_id: str) -> list[Event]:
        events = synthetic_run(rounds, seed=seed, run_id=run_id, hostile=hostile, end=end)
        events[0] = as_asked(events[0], request)
        return events if request.speculation.drafters else plain_twin(events)

    return script


def endless(request: Request, run_id: str) -> list[Event]:
    """Two rounds for a request of a few tokens, such as a study's warming up; else 400."""
    rounds = 400 if request.sampling.max_new_tokens > 8 else 2
    return scripted(rounds)(request, run_id)


def as_asked(event: Event, request: Request) -> Event:
    """RunStarted with the prompt and the configuration of `request`."""
    assert isinstance(event, RunStarted)
    config = replace(
        request,
        sampling=replace(request.sampling, seed=request.sampling.seed or event.seed),
        speculation=request.speculation.resolved(request.sampling.temperature),
    )
    return replace(
        event,
        prompt=request.prompt,
        config=config.to_plain(),
        asked=request.to_plain(),
        drafters=event.drafters if request.speculation.drafters else (),
    )


def plain_twin(events: list[Event], margin: float = 3.0, change: int | None = None) -> list[Event]:
    """Plain decoding of the same tokens: a round each; token `change` comes out differently.

    `margin`: by how much, in nats, each token beats the runner-up.
    """
    started = events[0]
    assert isinstance(started, RunStarted)
    started = replace(started, drafters=())
    tokens = [
        (token_id, text, delta)
        for event in events
        if isinstance(event, RoundCompleted)
        for token_id, text, delta in zip(
            event.token_ids, event.texts, event.text_deltas, strict=True
        )
    ]
    made: list[Event] = [started]
    fold = StatsFold()
    clock = 8.0
    for number, (token_id, text, delta) in enumerate(tokens):
        best, second = token_id, token_id + 1
        if number == change:
            best, second = second, best
        top = _top(best, second, text, margin)
        for event in _plain_round(started, number, (best, text, delta), clock, top):
            made.append(replace(event, seq=len(made)))
            fold.observe(event)
        clock += 6.0
    stats = fold.stats(clock)
    made.append(RunCompleted(started.run_id, len(made), clock, "length", "", stats))
    return made


def _top(best: int, second: int, text: str, margin: float) -> TopK:
    return TopK(-1, "llm", (best, second), (text, "other"), (0.6, 0.6 * math.exp(-margin)))


def _plain_round(
    started: RunStarted, number: int, token: tuple[int, str, str], clock: float, top: TopK
) -> Iterable[Event]:
    head = (started.run_id, 0, clock + 6.0, number)
    token_id, text, delta = token
    yield Drafted(*head, drafts=())
    yield Combined(*head, (), (), (), (), (), (), root_token_id=1, root_text="x")
    yield Verified(*head, "greedy", (), (), token_id, text, "plain", 0.6, (), (), top_k=(top,))
    yield RoundCompleted(
        *head,
        position=len(started.prompt_token_ids) + number,
        token_ids=(token_id,),
        texts=(text,),
        text_deltas=(delta,),
        num_accepted=0,
        num_cut=0,
        speculation_length=0,
        next_speculation_length=0,
        weights={},
        temperatures={},
        spans=(Span("llm", "forward", clock, clock + 5.5),),
        kv_used=number + 8,
        kv_capacity=512,
    )


class FakeRun:
    """core.engine.worker.Run, fed by FakeWorker."""

    def __init__(self, worker: FakeWorker, request: Request, run_id: str, tap: Tap | None) -> None:
        self.run_id, self.request, self.tap = run_id, request, tap
        self.done = False
        self.started = False
        self._stop = threading.Event()
        self._worker = worker
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    @property
    def place(self) -> int:
        return self._worker.place(self)

    def put(self, event: Event) -> None:
        if self.tap:
            self.tap(event)
        self._queue.put(event)

    def poll(self, timeout: float) -> list[Event]:
        events: list[Event] = []
        try:
            events.append(self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait())
            while True:
                events.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        if events and isinstance(events[-1], END):
            self.done = True
        return events

    @property
    def cancelled(self) -> bool:
        return self._stop.is_set()

    def cancel(self) -> None:
        self._stop.set()

    def pause(self, seconds: float) -> None:
        """Sleep, but not through a Stop."""
        self._stop.wait(seconds)


class FakeWorker:
    """Plays `script` for every request; `speed` 0 plays as fast as events can be handed out."""

    def __init__(self, script: Script | None = None, speed: float = 1.0, max_live: int = 4) -> None:
        models = SimpleNamespace(infos=INFOS, drafter_names=DRAFTERS)
        self.engine = SimpleNamespace(models=models)
        self.requests: list[Request] = []
        self.runs: list[FakeRun] = []
        self._players: list[threading.Thread] = []
        self._queued: list[FakeRun] = []
        self._playing = 0
        self._lock = threading.Lock()
        self.closed = False
        self.cast(script or scripted(), speed, max_live)

    def cast(self, script: Script, speed: float = 1.0, max_live: int = 4) -> None:
        """What it plays from now on; for a worker that plays nothing at the moment."""
        self.script, self.speed = script, speed
        self._slots = threading.Semaphore(max_live)

    def clear(self) -> None:
        """Stop every run, wait for its end and forget it."""
        for run in self.runs:
            run.cancel()
        for thread in self._players:
            thread.join()
        for kept in (self.runs, self.requests, self._players):
            kept.clear()

    def submit(self, request: Request, tap: Tap | None = None) -> FakeRun:
        if self.closed:
            raise EngineClosedError("the worker is closed")
        run = FakeRun(self, request, f"fake-{uuid.uuid4().hex[:12]}", tap)
        self.requests.append(request)
        self.runs.append(run)
        with self._lock:
            self._queued.append(run)
        player = threading.Thread(target=self._serve, args=(run,), daemon=True)
        player.start()
        self._players.append(player)  # started: whoever clears may join it at once
        return run

    def check(self, request: Request) -> None:
        """Everything can be played; as the engine it refuses a prompt that is too long, a word a
        token, and a drafter that is not loaded."""
        models = self.engine.models
        if len(request.prompt.split()) >= models.infos[0].context_length:
            raise ContextLengthError(f"prompt is {len(request.prompt.split())} words long")
        resolve_drafters(request.speculation.drafters, models.drafter_names)

    def place(self, run: FakeRun) -> int:
        with self._lock:
            return self._queued.index(run) + 1 if run in self._queued else 0

    def waiting(self) -> int:
        return len(self._queued)

    def running(self) -> int:
        return self._playing

    def close(self) -> None:
        self.closed = True
        for run in self.runs:
            run.cancel()

    def _serve(self, run: FakeRun) -> None:
        with self._slots:
            with self._lock:
                self._queued.remove(run)
                self._playing += 1
            try:
                self._play(run, self.script(run.request, run.run_id))
            finally:
                with self._lock:
                    self._playing -= 1

    def _play(self, run: FakeRun, events: list[Event]) -> None:
        began = time.monotonic()
        for event in events:
            late = event.at_ms / 1000 * self.speed - (time.monotonic() - began)
            if late > 0:
                run.pause(late)
            if run.cancelled and not isinstance(event, (*END, RunStarted)):
                stats = RunStats()
                run.put(RunCancelled(run.run_id, event.seq, event.at_ms, "", stats))
                return
            run.put(event)


def recorded(rounds: int, seed: int = 0) -> Script:
    """One SYNTHETIC run made beforehand, so that making it takes no time while it is played."""
    events = synthetic_run(rounds, seed=seed, run_id="recorded")

    def script(request: Request, run_id: str) -> list[Event]:
        played: list[Event] = [replace(event, run_id=run_id) for event in events]
        return [as_asked(played[0], request), *played[1:]]

    return script
