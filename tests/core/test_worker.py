"""Worker: the queue, and runs that join and leave."""

import re
import sys
import threading
import time

import pytest

from core import Engine, Request, SpeculationConfig, Worker
from core.errors import ConfigError, ContextLengthError
from core.events import Event, RunCancelled, RunCompleted, RunStarted
from core.models.machine import SWITCH_INTERVAL_S
from tests.core.engines import ids_of_events as ids
from tests.core.gated import (
    CONTEXT,
    TIMEOUT_S,
    GatedModel,
    all_of,
    both_running,
    release,
    request,
    until,
)


def test_a_run_has_the_engines_events(worker: Worker, engine: Engine) -> None:
    run = worker.submit(request())
    events = all_of(run)
    assert isinstance(events[0], RunStarted) and isinstance(events[-1], RunCompleted)
    assert [event.seq for event in events] == list(range(len(events)))
    assert {event.run_id for event in events} == {run.run_id}
    assert run.is_done and run.place == 0
    assert run.poll(timeout=0.0) == []
    worker.close()
    assert ids(events) == ids(list(engine.generate(request())))


def test_check_refuses_what_submit_refuses(worker: Worker) -> None:
    worker.check(request())
    long = "w1 " * CONTEXT
    for refused, error in (
        (Request(long), ContextLengthError),
        (Request("x", chat=True), ConfigError),
        (Request("x", speculation=SpeculationConfig(drafters=("nobody",))), ConfigError),
    ):
        with pytest.raises(error) as raised:
            worker.check(refused)
        with pytest.raises(error, match=re.escape(str(raised.value))):
            worker.submit(refused)
    assert worker.waiting() == worker.running() == 0
    assert len(ids(all_of(worker.submit(request())))) == 20


def test_a_worker_shortens_the_switch_interval(engine: Engine) -> None:
    usual = sys.getswitchinterval()
    try:
        for before, after in (
            (0.005, SWITCH_INTERVAL_S),
            (SWITCH_INTERVAL_S / 2, SWITCH_INTERVAL_S / 2),
        ):
            sys.setswitchinterval(before)
            Worker(engine).close()
            assert sys.getswitchinterval() == pytest.approx(after)
    finally:
        sys.setswitchinterval(usual)


def test_a_tap_sees_every_event_before_its_reader(worker: Worker) -> None:
    tapped: list[tuple[Event, str]] = []

    def tap(event: Event) -> None:
        assert event not in read
        tapped.append((event, threading.current_thread().name))

    read: list[Event] = []
    run = worker.submit(request(), tap=tap)
    for event in run.events():
        read.append(event)
    assert [event for event, _ in tapped] == read
    assert {name for _, name in tapped} == {"engine"}


@pytest.mark.parametrize("error", [ValueError, OSError, NameError])
def test_a_tap_that_fails_does_not_change_its_run_or_others(worker: Worker, error) -> None:
    calls: list[Event] = []

    def tap(event: Event) -> None:
        calls.append(event)
        raise error("the log is full")

    broken, intact = worker.submit(request(), tap=tap), worker.submit(request())
    assert ids(list(broken.events())) == ids(list(intact.events()))
    assert len(calls) == 1
    assert str(broken.tap_error) == "the log is full" and intact.tap_error is None


def test_poll_waits_no_longer_than_its_timeout(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    run = worker.submit(request())
    until(lambda: worker.running() == 1)
    run.poll(timeout=TIMEOUT_S)
    start = time.monotonic()
    assert run.poll(timeout=0.05) == []
    assert 0.04 < time.monotonic() - start < 5.0
    assert not run.is_done


def test_runs_have_places_in_the_queue(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    runs = [worker.submit(request(seed=i)) for i in range(5)]
    until(lambda: both_running(worker, llm))
    assert [run.place for run in runs] == [0, 0, 1, 2, 3]
    assert (worker.waiting(), worker.running()) == (3, 2)
    runs[2].cancel()
    release(llm)
    ends = [type(all_of(run)[-1]) for run in runs]
    assert ends == [RunCompleted, RunCompleted, RunCancelled, RunCompleted, RunCompleted]
    assert [run.place for run in runs] == [0] * 5


def test_the_time_in_the_queue_is_reported(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    first, second = worker.submit(request(tokens=2)), worker.submit(request(tokens=2))
    third = worker.submit(request(tokens=2))
    time.sleep(0.15)
    release(llm)
    waits = []
    for run in (first, second, third):
        started = all_of(run)[0]
        waits.append(started.queue_ms)
    assert waits[0] < waits[2] and waits[2] >= 100.0


def test_texts_do_not_depend_on_requests_that_join_and_leave(
    worker: Worker, llm: GatedModel
) -> None:
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


def test_many_callers_may_submit_at_once(worker: Worker) -> None:
    results: dict[int, list[int]] = {}

    def call(i: int) -> None:
        results[i] = ids(list(worker.submit(request(f"w{i}", tokens=15, seed=i)).events()))

    callers = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(TIMEOUT_S)
    assert sorted(results) == list(range(8))
    assert all(len(result) == 15 for result in results.values())
