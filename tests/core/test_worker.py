"""Worker: a queue with places, runs that join and leave between rounds, stops and failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from core import Engine, Request, Run, SamplingParams, SpeculationConfig, Worker
from core.errors import (
    ConfigError,
    ContextLengthError,
    EngineBusyError,
    EngineClosedError,
    SpecScopeError,
)
from core.events import Event, RoundCompleted, RunCancelled, RunCompleted, RunFailed, RunStarted
from core.models.language_model import Feed
from core.outcome import Outcome
from tests.fakes import TableModel, loaded_tables, random_table

VOCAB = 8
CONTEXT = 4000
CONFIG = SpeculationConfig(expansion=(2, 1), speculation_length=2, max_tree_nodes=6)
SOON = 20.0


class GatedModel(TableModel):
    """A table whose passes wait at a gate, counted; it can be told to fail."""

    def __init__(self) -> None:
        super().__init__("llm", VOCAB, random_table(VOCAB, 1, sharpness=2.5), CONTEXT)
        self.gate = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        self.failure: Exception | None = None

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if not self.open.is_set():
            assert self.gate.acquire(timeout=SOON), "nobody opened the gate"
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return super().forward(feeds)


@pytest.fixture
def llm() -> GatedModel:
    return GatedModel()


@pytest.fixture
def engine(llm: GatedModel) -> Engine:
    close = TableModel("close", VOCAB, random_table(VOCAB, 2, sharpness=2.5), CONTEXT)
    return Engine(loaded_tables(llm, [TableModel("same", VOCAB, llm._table, CONTEXT), close]))


@pytest.fixture
def worker(engine: Engine, llm: GatedModel) -> Iterator[Worker]:
    before = set(threading.enumerate())
    worker = Worker(engine, max_live=2, threads=1)
    yield worker
    release(llm)
    worker.close()
    assert set(threading.enumerate()) <= before, "no thread is left behind"
    assert engine.models.llm.open_rows == ()
    assert not engine.busy.locked()


def release(llm: GatedModel) -> None:
    llm.open.set()
    llm.gate.release(1000)


def request(text: str = "w1 w2", tokens: int = 20, seed: int = 3) -> Request:
    return Request(text, SamplingParams(tokens, temperature=0.9, seed=seed), CONFIG)


def all_of(run: Run) -> list[Event]:
    events: list[Event] = []
    end = time.monotonic() + SOON
    while not run.done:
        assert time.monotonic() < end, "the run did not end"
        events += run.poll(timeout=0.1)
    return events


def ids(events: Sequence[Event]) -> list[int]:
    return [t for event in events if isinstance(event, RoundCompleted) for t in event.token_ids]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def both_running(worker: Worker, llm: GatedModel) -> bool:
    if worker.running() < 2:
        llm.gate.release()
        time.sleep(0.01)
    return worker.running() == 2


# -- one run --


def test_a_run_has_the_engines_events(worker: Worker, engine: Engine) -> None:
    run = worker.submit(request())
    events = all_of(run)
    assert isinstance(events[0], RunStarted) and isinstance(events[-1], RunCompleted)
    assert [event.seq for event in events] == list(range(len(events)))
    assert {event.run_id for event in events} == {run.run_id}
    assert run.done and run.place == 0
    assert run.poll(timeout=0.0) == []
    worker.close()
    outcome = Outcome()
    for event in engine.generate(request()):
        outcome.observe(event)
    assert ids(events) == outcome.token_ids


def test_events_can_be_iterated(worker: Worker) -> None:
    assert len(ids(list(worker.submit(request()).events()))) == 20


def test_a_tap_sees_every_event_before_its_reader(worker: Worker) -> None:
    seen: list[tuple[Event, str]] = []

    def tap(event: Event) -> None:
        assert event not in handed
        seen.append((event, threading.current_thread().name))

    handed: list[Event] = []
    run = worker.submit(request(), tap=tap)
    for event in run.events():
        handed.append(event)
    assert [event for event, _ in seen] == handed
    assert {name for _, name in seen} == {"engine"}


def test_poll_waits_no_longer_than_told(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    run = worker.submit(request())
    until(lambda: worker.running() == 1)
    run.poll(timeout=SOON)
    start = time.monotonic()
    assert run.poll(timeout=0.05) == []
    assert 0.04 < time.monotonic() - start < 5.0
    assert not run.done


def test_bad_requests_are_refused_at_once(worker: Worker) -> None:
    with pytest.raises(ConfigError, match="drafters is 'nobody'"):
        worker.submit(Request("w1", speculation=SpeculationConfig(drafters=("nobody",))))
    with pytest.raises(ContextLengthError):
        worker.submit(Request("w1 " * CONTEXT))
    assert (worker.waiting(), worker.running()) == (0, 0)
    assert len(ids(all_of(worker.submit(request())))) == 20


# -- the queue --


def test_places_in_the_queue(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    runs = [worker.submit(request(seed=i)) for i in range(5)]
    # The second joins after the first one's prefill, or after a round if it came late.
    until(lambda: both_running(worker, llm))
    assert [run.place for run in runs] == [0, 0, 1, 2, 3]
    assert (worker.waiting(), worker.running()) == (3, 2)
    runs[2].cancel()
    release(llm)
    ends = [type(all_of(run)[-1]) for run in runs]
    assert ends == [RunCompleted, RunCompleted, RunCancelled, RunCompleted, RunCompleted]
    assert [run.place for run in runs] == [0] * 5


def test_the_queues_time_is_told(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    first, second = worker.submit(request(tokens=2)), worker.submit(request(tokens=2))
    third = worker.submit(request(tokens=2))
    time.sleep(0.15)
    release(llm)
    waits = []
    for run in (first, second, third):
        started = all_of(run)[0]
        assert isinstance(started, RunStarted)
        waits.append(started.queue_ms)
    assert waits[0] < waits[2] and waits[2] >= 100.0


def test_texts_do_not_depend_on_who_joins_and_leaves(worker: Worker, llm: GatedModel) -> None:
    requests = [request(f"w{i} w2", tokens=5 + 9 * (i % 3), seed=i) for i in range(8)]
    alone = [ids(all_of(worker.submit(one))) for one in requests]
    assert [len(text) for text in alone] == [5 + 9 * (i % 3) for i in range(8)]
    llm.open.clear()
    runs = [worker.submit(one) for one in requests[:3]]
    llm.gate.release(6)
    runs += [worker.submit(one) for one in requests[3:]]
    release(llm)
    assert [ids(all_of(run)) for run in runs] == alone


def test_live_runs_share_their_passes(worker: Worker, llm: GatedModel) -> None:
    all_of(worker.submit(request(tokens=30)))
    one = llm.passes
    llm.open.clear()
    runs = [worker.submit(request(tokens=30)) for _ in range(2)]
    release(llm)
    for run in runs:
        all_of(run)
    assert llm.passes - one < 2 * one


def test_many_callers_at_once(worker: Worker) -> None:
    results: dict[int, list[int]] = {}

    def call(i: int) -> None:
        results[i] = ids(list(worker.submit(request(f"w{i}", tokens=15, seed=i)).events()))

    callers = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(SOON)
    assert sorted(results) == list(range(8))
    assert all(len(result) == 15 for result in results.values())


# -- stops --


def test_a_stop_frees_the_engine_within_a_round(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    run, other = worker.submit(request(tokens=3000)), worker.submit(request(tokens=5))
    llm.gate.release(6)
    until(lambda: any(isinstance(event, RoundCompleted) for event in run.poll(0.1)))
    run.cancel()
    run.cancel()
    before = llm.passes
    llm.gate.release(2)
    until(lambda: worker.running() <= 1 or run.done or bool(run._ended))
    assert llm.passes - before <= 2
    events = all_of(run)
    assert isinstance(events[-1], RunCancelled)
    release(llm)
    assert isinstance(all_of(other)[-1], RunCompleted)
    assert len(llm.open_rows) == 0


def test_a_stopped_run_tells_what_it_had(worker: Worker, llm: GatedModel) -> None:
    run = worker.submit(request(tokens=3000))
    events: list[Event] = []
    while len(ids(events)) < 10:
        events += run.poll(timeout=1.0)
    run.cancel()
    events += all_of(run)
    last = events[-1]
    assert isinstance(last, RunCancelled)
    assert last.stats.num_new_tokens == len(ids(events)) >= 10


def test_a_stop_in_the_middle_of_a_prefill(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    run = worker.submit(request("w1 " * 3500, tokens=5))
    llm.gate.release(2)
    until(lambda: llm.passes == 2)
    run.cancel()
    llm.gate.release(1)
    events = all_of(run)
    assert [type(event) for event in events] == [RunStarted, RunCancelled]
    assert llm.passes <= 3, "seven pieces were not all read"
    assert llm.open_rows == ()


def test_a_stop_while_waiting(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    runs = [worker.submit(request()) for _ in range(4)]
    runs[3].cancel()
    llm.gate.release(3)
    assert [type(event) for event in all_of(runs[3])] == [RunCancelled]
    release(llm)
    for run in runs[:3]:
        assert isinstance(all_of(run)[-1], RunCompleted)


def test_a_reader_who_leaves_stops_the_run(worker: Worker, llm: GatedModel) -> None:
    run = worker.submit(request(tokens=3000))
    events = run.events()
    next(events)
    events.close()
    assert isinstance(all_of(run)[-1], RunCancelled)
    until(lambda: worker.running() == 0)


def test_stopping_a_finished_run_changes_nothing(worker: Worker) -> None:
    run = worker.submit(request())
    assert isinstance(all_of(run)[-1], RunCompleted)
    run.cancel()
    assert run.poll(timeout=0.05) == [] and run.done


# -- failures --


@pytest.mark.parametrize("when", [0, 1, 4])
def test_a_failing_run_says_so_and_the_next_one_works(
    worker: Worker, llm: GatedModel, when: int
) -> None:
    llm.open.clear()
    run = worker.submit(request())
    for _ in range(when):
        llm.gate.release()
    until(lambda: llm.passes == when)
    llm.failure = RuntimeError("CUDA out of memory")
    release(llm)
    last = all_of(run)[-1]
    assert isinstance(last, RunFailed)
    assert (last.error, last.message) == ("RuntimeError", "CUDA out of memory")
    assert len(ids(all_of(worker.submit(request())))) == 20
    assert llm.open_rows == ()


def test_a_failing_round_ends_every_run_in_it(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    # Prompts of one token have no prefill: what waits at the gate is a round.
    runs = [worker.submit(request("w1", tokens=100, seed=i)) for i in range(3)]
    until(lambda: both_running(worker, llm))
    llm.failure = SpecScopeError("a drafter broke")
    release(llm)
    kinds = [type(all_of(run)[-1]) for run in runs]
    assert kinds == [RunFailed, RunFailed, RunCompleted]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_unforeseen_error_is_heard_by_everyone_who_waits(
    worker: Worker, llm: GatedModel
) -> None:
    llm.open.clear()
    runs = [worker.submit(request(tokens=100, seed=i)) for i in range(4)]
    until(lambda: both_running(worker, llm))
    llm.failure = KeyError("a mistake of ours")
    release(llm)
    for run in runs:
        last = all_of(run)[-1]
        assert isinstance(last, RunFailed) and last.error == "KeyError"
    assert llm.open_rows == ()
    assert len(ids(all_of(worker.submit(request())))) == 20


# -- the end --


def test_closing_stops_everything_and_twice_is_harmless(engine: Engine, llm: GatedModel) -> None:
    worker = Worker(engine, max_live=2, threads=1)
    llm.open.clear()
    runs = [worker.submit(request(tokens=3000)) for _ in range(4)]
    until(lambda: both_running(worker, llm))
    closer = threading.Thread(target=worker.close)
    closer.start()
    release(llm)
    closer.join(SOON)
    assert not closer.is_alive()
    worker.close()
    assert [type(all_of(run)[-1]) for run in runs] == [RunCancelled] * 4
    with pytest.raises(EngineClosedError, match=r"^worker is closed: no request"):
        worker.submit(request())
    assert not engine.busy.locked()
    assert len(list(engine.generate(request()))) > 2


def test_a_worker_that_was_never_used_leaves_no_thread(engine: Engine) -> None:
    before = threading.active_count()
    worker = Worker(engine, threads=1)
    assert threading.active_count() == before
    worker.close()
    assert not engine.busy.locked()


def test_an_engine_has_one_owner(worker: Worker, engine: Engine) -> None:
    with pytest.raises(EngineBusyError, match="a worker needs it for itself"):
        Worker(engine)
    with pytest.raises(EngineBusyError):
        next(engine.generate(request()))
