"""ModelHost: swaps of models while runs are decoded."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from core.errors import ConfigError, EngineClosedError, OutOfMemoryError, VocabMismatchError
from core.events import RunCancelled, RunCompleted
from tests.synthetic import DRAFTERS
from tests.ui.fakes import FakeStore, FakeWorker, request, script_of
from tests.ui.model_hosts import (
    OTHER,
    Loader,
    failing_loader,
    other_worker,
    wait_for_load,
    wait_settled,
)
from ui.run.source import LiveSource
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair, Say
from ui.server.session import Hub


def events_to_end(source: LiveSource) -> list[Any]:
    source.wait_done(10)
    return list(source.events(0, source.count))


def test_the_loaded_pair_is_read_from_the_worker_and_the_first_pair_loaded_at_once() -> None:
    model_host = ModelHost(FakeWorker())
    assert model_host.names() == ("synthetic-llm", *DRAFTERS)
    assert model_host.drafter_names == DRAFTERS
    assert not model_host.chat and model_host.version == 0 and model_host.pair == ModelPair()
    assert model_host.swap.state == "none" and not model_host.runs_on_old_models()
    with pytest.raises(ConfigError, match="without a loader"):
        model_host.begin(OTHER)
    loader = Loader(lambda: other_worker("small"))
    model_host = ModelHost.open(loader, OTHER)
    assert model_host.names() == ("other", "small") and model_host.pair == OTHER
    assert model_host.version == 0
    with pytest.raises(OutOfMemoryError, match="too much"):
        ModelHost.open(Loader(failing_loader(OutOfMemoryError("too much"))), OTHER)


def test_a_run_goes_on_while_another_pair_is_loaded_and_ends_on_its_own_models() -> None:
    old, new = FakeWorker(script_of(40), slowdown=10.0), other_worker("small")
    loader = Loader(lambda: new, held=True)
    model_host = ModelHost(old, loader)
    hub = Hub(model_host, FakeStore())
    running = hub.start(request())
    model_host.begin(OTHER)
    between = hub.start(request("while it is loaded"))
    assert model_host.swap.is_loading and model_host.worker is old and len(old.requests) == 2
    loader.go.set()
    wait_for_load(model_host)
    assert model_host.names() == ("other", "small") and hub.worker is new
    assert model_host.version == 1
    stages = [stage.words for stage in model_host.swap.stages]
    assert stages == ["Looking for the models", "LLM other: weights", "SSM 1 of 1 small: weights"]
    assert model_host.swap.state == "done" and model_host.pair == OTHER
    assert not old.closed and model_host.runs_on_old_models() == 2, "its runs have not ended"
    after = hub.start(request("for the new ones", "autoregressive"))
    assert len(new.requests) == 1 and len(old.requests) == 2
    old.slowdown = 0.0
    for source in (running, between, after):
        assert isinstance(events_to_end(source)[-1], RunCompleted)
    wait_settled(model_host)
    assert old.closed and not new.closed and not model_host.runs_on_old_models()


def test_the_source_of_a_past_run_does_not_keep_its_models() -> None:
    source = Hub(ModelHost(FakeWorker(slowdown=0.0)), FakeStore()).start(request())
    events_to_end(source)
    assert source._run is None and source.place == 0
    source.cancel()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (VocabMismatchError("token id 17 is 'a' there"), "token id 17 is 'a' there"),
        (OutOfMemoryError("needs 9 GiB"), "needs 9 GiB"),
        (MemoryError(), "MemoryError"),
        (RuntimeError("the device is gone"), "the device is gone"),
    ],
)
def test_a_pair_that_cannot_be_loaded_leaves_the_loaded_one(error: Exception, words: str) -> None:
    old = FakeWorker(script_of(4), slowdown=0.0)
    model_host = ModelHost(old, Loader(failing_loader(error)))
    model_host.begin(OTHER)
    wait_settled(model_host)
    assert (model_host.swap.state, model_host.swap.reason) == ("failed", words)
    assert model_host.worker is old and model_host.version == 0 and not old.closed
    assert isinstance(
        events_to_end(Hub(model_host, FakeStore()).start(request()))[-1], RunCompleted
    )
    model_host._load = Loader(lambda: other_worker("small"))
    model_host.begin(OTHER)
    wait_settled(model_host)
    assert model_host.swap.state == "done" and model_host.names() == ("other", "small")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_loader_ends_the_swap_and_is_reported() -> None:
    model_host = ModelHost(FakeWorker(), Loader(failing_loader(KeyError("oops"))))
    model_host.begin(OTHER)
    wait_settled(model_host)
    assert model_host.swap.state == "failed"
    assert model_host.swap.reason == "internal error (KeyError): 'oops'"


def test_of_eight_concurrent_swaps_one_begins_and_the_others_are_refused() -> None:
    loader = Loader(lambda: other_worker("small"), held=True)
    model_host = ModelHost(FakeWorker(), loader)
    refused: list[ConfigError] = []
    ready = threading.Barrier(8)

    def begin_swap() -> None:
        ready.wait(10)
        try:
            model_host.begin(OTHER)
        except ConfigError as error:
            refused.append(error)

    threads = [threading.Thread(target=begin_swap) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loader.go.set()
    wait_settled(model_host)
    assert len(refused) == 7 and loader.asked == [OTHER]
    assert all("another pair is being loaded" in str(error) for error in refused)


def test_a_swap_can_be_cancelled_between_stages() -> None:
    loader = Loader(lambda: pytest.fail("it was cancelled"), held=True)
    old = FakeWorker()
    model_host = ModelHost(old, loader)
    model_host.cancel()
    model_host.begin(OTHER)
    model_host.cancel()
    assert model_host.swap.cancel_requested
    loader.go.set()
    wait_settled(model_host)
    assert model_host.swap.state == "cancelled" and model_host.worker is old and not old.closed
    assert len(model_host.swap.stages) <= 1
    model_host.cancel()
    assert model_host.swap.state == "cancelled"


def test_a_swap_cancelled_after_the_last_stage_closes_the_new_worker() -> None:
    old, new = FakeWorker(), other_worker("small")
    model_host = ModelHost(old)

    def load(pair: ModelPair, say: Say) -> Any:
        model_host.cancel()
        return new

    model_host._load = load
    model_host.begin(OTHER)
    wait_settled(model_host)
    assert model_host.swap.state == "cancelled" and model_host.worker is old
    assert new.closed and not old.closed


def test_queued_runs_end_on_the_models_they_were_queued_for() -> None:
    old = FakeWorker(script_of(10), slowdown=0.5, max_live=1)
    model_host = ModelHost(old, Loader(lambda: other_worker("small")))
    hub = Hub(model_host, FakeStore())
    sources = [hub.start(request(f"number {i}")) for i in range(4)]
    model_host.begin(OTHER)
    wait_for_load(model_host)
    assert model_host.runs_on_old_models() >= 3
    for source in sources:
        assert isinstance(events_to_end(source)[-1], RunCompleted)
    wait_settled(model_host)
    assert old.closed and len(old.requests) == 4


def settings_of(engine: Any) -> tuple[str, float, float]:
    return engine.schedule, engine.stream_mbps, engine.wire_ms


def test_a_temporary_setting_ends_on_swapped_out_models_too() -> None:
    old = FakeWorker(script_of(40), slowdown=10.0)
    model_host = ModelHost(old, Loader(lambda: other_worker("small")))
    running = Hub(model_host, FakeStore()).start(request())
    with (
        model_host.temporary_schedule("shared"),
        model_host.temporary_slowing(stream_mbps=10.0, wire_ms=5.0),
    ):
        model_host.begin(OTHER)
        wait_for_load(model_host)
        assert settings_of(old.engine) == ("shared", 10.0, 5.0)
    for engine in (old.engine, model_host.worker.engine):
        assert settings_of(engine) == ("each", 0.0, 0.0)
    assert not running.is_done, "it still uses the old models"
    running.cancel()
    wait_settled(model_host)


def test_a_stopped_run_and_one_whose_tap_fails_release_their_models() -> None:
    old = FakeWorker(script_of(400), slowdown=5.0)
    model_host = ModelHost(old, Loader(lambda: other_worker("small")))
    source = Hub(model_host, FakeStore()).start(request())

    def fail(event: Any) -> None:
        raise ValueError("a full disk")

    with pytest.raises(ValueError, match="a full disk"):
        model_host._served.enter()
        model_host._served._counting_tap(fail)(short_run()[0])
    model_host.begin(OTHER)
    wait_for_load(model_host)
    assert model_host.runs_on_old_models() == 1
    source.cancel()
    assert isinstance(events_to_end(source)[-1], RunCancelled)
    wait_settled(model_host)
    assert old.closed


def short_run() -> list[Any]:
    return script_of(2)(request(), "r")


def test_a_request_that_is_refused_does_not_count_as_a_run() -> None:
    old = FakeWorker()
    model_host = ModelHost(old, Loader(lambda: other_worker("small")))
    old.submit = lambda *_: failing_loader(ConfigError("prompt is ''"))()
    with pytest.raises(ConfigError, match="prompt is"):
        model_host.submit(request())
    model_host.begin(OTHER)
    wait_settled(model_host)
    assert old.closed


def test_a_page_with_drafters_that_were_swapped_out_is_asked_to_reload() -> None:
    model_host = ModelHost(FakeWorker(), Loader(lambda: other_worker("small", DRAFTERS[0])))
    model_host.begin(OTHER)
    wait_settled(model_host)
    hub, run_request = Hub(model_host, FakeStore()), request()

    def request_for(*names: str) -> Any:
        return replace(run_request, speculation=replace(run_request.speculation, drafters=names))

    with pytest.raises(ConfigError) as caught:
        hub.start(request_for(*DRAFTERS))
    assert "the models were exchanged since this page was opened: reload it" in str(caught.value)
    assert "all, first, ngram, suffix, table, small" in str(caught.value)
    for names in (("small",), ("all",), ("ngram",), (), (DRAFTERS[0],), ("nobody",)):
        events_to_end(hub.start(request_for(*names)))
    assert not model_host._served.runs


def test_close_ends_the_runs_of_both_workers_and_a_load() -> None:
    old, new = FakeWorker(script_of(400), slowdown=5.0), other_worker("small", slowdown=5.0)
    loader = Loader(lambda: new)
    model_host = ModelHost(old, loader)
    hub = Hub(model_host, FakeStore())
    first = hub.start(request())
    model_host.begin(OTHER)
    wait_for_load(model_host)
    second = hub.start(request(preset="autoregressive"))
    loader.go.clear()
    model_host.begin(ModelPair("third", ()))
    model_host.close()
    model_host.close()
    assert old.closed and new.closed
    assert [type(events_to_end(source)[-1]) for source in (first, second)] == [RunCancelled] * 2
    loader.go.set()
    wait_settled(model_host)
    assert model_host.swap.state == "cancelled"
    for call in (lambda: hub.start(request()), lambda: model_host.begin(OTHER)):
        with pytest.raises(EngineClosedError, match="worker is closed"):
            call()


def test_no_submitted_run_is_lost_during_a_swap() -> None:
    model_host = ModelHost(
        FakeWorker(script_of(1), slowdown=0.0), Loader(lambda: other_worker("s", slowdown=0.0))
    )
    hub = Hub(model_host, FakeStore())
    ended: list[Any] = []

    def keep_submitting() -> None:
        for _ in range(20):
            ended.append(events_to_end(hub.start(request(preset="autoregressive")))[-1])

    threads = [threading.Thread(target=keep_submitting) for _ in range(3)]
    model_host.begin(OTHER)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if not model_host.swap.is_loading:
            model_host.begin(OTHER)
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    wait_settled(model_host)
    assert model_host.version > 1 and len(ended) == 60
    assert {type(event) for event in ended} == {RunCompleted}, "none was cut off by a close"
