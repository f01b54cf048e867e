"""Worker: stopped runs, failed runs, and closing."""

import threading
from dataclasses import replace

import pytest

from core import Engine, Request, SamplingParams, Worker
from core.errors import EngineBusyError, EngineClosedError
from core.events import Event, RoundCompleted, RunCancelled, RunCompleted, RunFailed, RunStarted
from tests.core.engines import ids_of_events as ids
from tests.core.gated import (
    CONFIG,
    TIMEOUT_S,
    GatedModel,
    all_of,
    both_running,
    release,
    request,
    until,
)


class Mistake(BaseException): ...


class Fault(Exception): ...


def test_a_stop_frees_the_engine_within_a_round(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    run, other = worker.submit(request(tokens=3000)), worker.submit(request(tokens=5))
    llm.gate.release(6)
    until(lambda: any(isinstance(event, RoundCompleted) for event in run.poll(0.1)))
    run.cancel()
    run.cancel()
    before = llm.passes
    llm.gate.release(2)
    until(lambda: worker.running() <= 1 or run.is_done or bool(run._has_ended))
    assert llm.passes - before <= 2
    events = all_of(run)
    assert isinstance(events[-1], RunCancelled)
    release(llm)
    assert isinstance(all_of(other)[-1], RunCompleted)
    assert len(llm.open_rows) == 0


def test_a_stopped_run_reports_its_tokens(worker: Worker, llm: GatedModel) -> None:
    run = worker.submit(request(tokens=3000))
    events: list[Event] = []
    while len(ids(events)) < 10:
        events += run.poll(timeout=1.0)
    run.cancel()
    events += all_of(run)
    last = events[-1]
    assert isinstance(last, RunCancelled)
    assert last.stats.num_new_tokens == len(ids(events)) >= 10


def test_a_stop_ends_a_prefill(worker: Worker, llm: GatedModel) -> None:
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


def test_a_stop_ends_a_waiting_run(worker: Worker, llm: GatedModel) -> None:
    llm.open.clear()
    runs = [worker.submit(request()) for _ in range(4)]
    runs[3].cancel()
    llm.gate.release(3)
    assert [type(event) for event in all_of(runs[3])] == [RunCancelled]
    release(llm)
    for run in runs[:3]:
        assert isinstance(all_of(run)[-1], RunCompleted)


def test_closing_the_events_stops_the_run(worker: Worker, llm: GatedModel) -> None:
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
    assert run.poll(timeout=0.05) == [] and run.is_done


@pytest.mark.parametrize("when", [0, 1, 4])
def test_a_failing_run_reports_its_error_and_the_next_one_works(
    worker: Worker, llm: GatedModel, when: int, caplog: pytest.LogCaptureFixture
):
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
    assert f"run {run.run_id} failed" in caplog.text and "Traceback" in caplog.text
    assert len(ids(all_of(worker.submit(request())))) == 20
    assert llm.open_rows == ()


def test_a_pass_that_fails_once_changes_no_text(worker: Worker, llm: GatedModel) -> None:
    alone = ids(all_of(worker.submit(request("w1", tokens=30))))
    llm.open.clear()
    # Prompts of one token have no prefill, so a round waits at the gate.
    runs = [worker.submit(request("w1", tokens=30)) for _ in range(2)]
    until(lambda: both_running(worker, llm))
    llm.failure = RuntimeError("the device was busy")
    release(llm)
    assert [ids(all_of(run)) for run in runs] == [alone, alone]


@pytest.mark.parametrize("pipeline", ["off", "across"])
@pytest.mark.parametrize("error", [IndexError, KeyError, RuntimeError, OSError, NameError, Fault])
def test_an_error_in_the_pass_of_one_request_ends_only_this_request(worker, llm, error, pipeline):
    alone = ids(all_of(worker.submit(request("w1", tokens=30))))
    llm.open.clear()
    config = replace(CONFIG, pipeline=pipeline)
    unaffected, failing = (
        worker.submit(replace(request(text, tokens=30), speculation=config))
        for text in ("w1", "w7")
    )
    until(lambda: both_running(worker, llm))
    llm.fails_at = (7, error("index out of range"))
    llm.open.set()
    llm.gate.release(1)
    last = all_of(failing)[-1]
    llm.fails_at = None
    assert isinstance(last, RunFailed) and last.error == error.__name__
    assert ids(all_of(unaffected)) == alone
    assert llm.open_rows == ()


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("part", ["logits", "text"])
def test_other_errors_of_one_request_end_only_this_request(worker, llm, part, temperature):
    sampling = SamplingParams(30, temperature=temperature, seed=3)
    requests = [Request(text, sampling, CONFIG) for text in ("w1", "w7")]
    alone = ids(all_of(worker.submit(requests[0])))
    llm.open.clear()
    unaffected, failing = (worker.submit(one) for one in requests)
    until(lambda: both_running(worker, llm))
    if part == "logits":
        llm.narrow_at = 7
    else:
        failing.sequence.detokenizer = None  # an AttributeError
    release(llm)
    last = all_of(failing)[-1]
    assert isinstance(last, RunFailed) and last.message
    assert ids(all_of(unaffected)) == alone
    assert llm.open_rows == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_unforeseen_error_ends_every_waiting_run(worker: Worker, llm: GatedModel):
    llm.open.clear()
    runs = [worker.submit(request(tokens=100, seed=i)) for i in range(4)]
    until(lambda: both_running(worker, llm))
    llm.failure = Mistake("of ours")
    release(llm)
    for run in runs:
        last = all_of(run)[-1]
        assert isinstance(last, RunFailed) and last.error == "Mistake"
    assert llm.open_rows == ()
    assert len(ids(all_of(worker.submit(request())))) == 20


def test_closing_stops_all_runs_and_may_be_repeated(engine: Engine, llm: GatedModel) -> None:
    worker = Worker(engine, max_live=2, threads=1)
    llm.open.clear()
    runs = [worker.submit(request(tokens=3000)) for _ in range(4)]
    until(lambda: both_running(worker, llm))
    closer = threading.Thread(target=worker.close)
    closer.start()
    release(llm)
    closer.join(TIMEOUT_S)
    assert not closer.is_alive()
    worker.close()
    assert [type(all_of(run)[-1]) for run in runs] == [RunCancelled] * 4
    with pytest.raises(EngineClosedError, match=r"^worker is closed: no more requests"):
        worker.submit(request())
    assert not engine.busy.locked()
    assert len(list(engine.generate(request()))) > 2


def test_a_worker_that_was_never_used_leaves_no_thread(engine: Engine) -> None:
    before = threading.active_count()
    worker = Worker(engine, threads=1)
    assert threading.active_count() == before
    worker.close()
    assert not engine.busy.locked()


def test_an_engine_serves_only_its_worker(worker: Worker, engine: Engine) -> None:
    with pytest.raises(EngineBusyError, match="a worker needs it for itself"):
        Worker(engine)
    with pytest.raises(EngineBusyError):
        next(engine.generate(request()))
