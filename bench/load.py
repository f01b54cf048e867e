"""Load on one engine: clients that wait for their answers (a closed loop), and arrivals at given
times (an open loop).

Token times are taken in the worker's thread, not by a reader of the events.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from bench.contestants import lost_drafter_notes
from core.config import Request
from core.engine.engine import Engine
from core.engine.worker import Run, Worker
from core.errors import EngineError
from core.events import Event, RoundCompleted, RunCompleted, RunFailed

__all__ = ["ServedRequest", "arrivals", "closed_loop", "open_loop", "percentile"]


@dataclass
class ServedRequest:
    """Times are in seconds of `time.perf_counter`. `arrived`: when the request was submitted."""

    arrived: float
    token_times: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    @property
    def ttft_ms(self) -> float:
        """Milliseconds from arrival to the first token, waiting in the queue included."""
        return (self.token_times[0] - self.arrived) * 1000

    @property
    def tpot_ms(self) -> float:
        """Milliseconds per token after the first."""
        span = self.token_times[-1] - self.token_times[0]
        return span * 1000 / max(1, len(self.token_times) - 1)


class _Clients:
    def __init__(self, engine: Engine, live: int) -> None:
        # `Worker` sets the number of threads: it is kept as `--threads` says.
        self.worker = Worker(engine, max_live=live, threads=torch.get_num_threads())
        self.served: list[ServedRequest] = []
        self._ended = threading.Semaphore(0)
        self._failures: list[str] = []

    def submit(self, request: Request) -> Run:
        one = ServedRequest(time.perf_counter())
        self.served.append(one)

        # Runs in the worker's thread: a reader of the events would be late.
        def tap(event: Event) -> None:
            if isinstance(event, RoundCompleted):
                one.token_times += [time.perf_counter()] * len(event.token_ids)
                one.token_ids += event.token_ids
                self._failures += lost_drafter_notes(event)
            # A failure ends a run, too: the client must not wait forever.
            elif isinstance(event, (RunCompleted, RunFailed)):
                if isinstance(event, RunFailed):
                    self._failures.append(f"{event.error}: {event.message}")
                self._ended.release()

        return self.worker.submit(request, tap)

    def wait_for_end(self) -> None:
        """Waits until one more request has ended. Raises EngineError if any request or
        drafter failed."""
        self._ended.acquire()
        if self._failures:
            raise EngineError(self._failures[0])


def closed_loop(
    engine: Engine, requests: Sequence[Request], clients: int
) -> tuple[float, list[ServedRequest]]:
    """Runs `clients` clients; each sends its next request when its previous request has ended.
    Returns the tokens per second while all clients are busy, and every request. The measurement
    begins when `clients` requests have ended. Needs at least 2 x `clients` requests."""
    load = _Clients(engine, clients)
    start = 0.0
    try:
        for request in requests[:clients]:
            load.submit(request)
        for num_ended, request in enumerate(requests[clients:], start=1):
            load.wait_for_end()
            start = time.perf_counter() if num_ended == clients else start
            load.submit(request)
        # When the next request ends, fewer clients are busy.
        load.wait_for_end()
        end = time.perf_counter()
        for _ in range(clients - 1):
            load.wait_for_end()
    finally:
        load.worker.close()
    token_times = (moment for one in load.served for moment in one.token_times)
    tokens = sum(start < moment <= end for moment in token_times)
    return tokens / (end - start), load.served


def arrivals(count: int, per_second: float, seed: int) -> list[float]:
    """Arrival times in seconds; a Poisson process."""
    rng = random.Random(seed)
    times, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(per_second)
        times.append(now)
    return times


def open_loop(
    engine: Engine, requests: Sequence[Request], moments: Sequence[float], live: int
) -> tuple[float, list[ServedRequest]]:
    """Submits the requests at `moments` (seconds from the start). At most `live` requests run at
    once. Returns tokens per second from the first arrival to the last token, and every request."""
    load = _Clients(engine, live)
    try:
        start = time.perf_counter()
        for request, moment in zip(requests, moments, strict=True):
            time.sleep(max(0.0, start + moment - time.perf_counter()))
            load.submit(request)
        for _ in requests:
            load.wait_for_end()
    finally:
        load.worker.close()
    last = max(one.token_times[-1] for one in load.served)
    tokens = sum(len(one.token_ids) for one in load.served)
    return tokens / (last - load.served[0].arrived), load.served


def percentile(values: Sequence[float], share: float) -> float:
    """The value at `share` (0 to 1) of the sorted values, without interpolation."""
    in_order = sorted(values)
    return in_order[min(len(in_order) - 1, int(share * len(in_order)))]
