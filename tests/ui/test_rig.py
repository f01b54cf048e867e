"""The rig: models exchanged while runs go on, and everything that may go wrong with it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from core.errors import ConfigError, EngineClosedError, OutOfMemoryError, VocabMismatchError
from core.events import RunCancelled, RunCompleted
from tests.synthetic import DRAFTERS
from tests.ui.fakes import FakeStore, FakeWorker, request, scripted
from tests.ui.rigs import OTHER, Loader, failing, other_worker, settled
from ui.run.source import LiveSource
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair, Say
from ui.server.session import Hub


def whole(source: LiveSource) -> list[Any]:
    """The events of a run that comes to its end."""
    source.wait_done(10)
    return list(source.events(0, source.count))


def test_what_stands_is_read_from_the_worker() -> None:
    rig = ModelHost(FakeWorker())
    assert rig.names() == ("synthetic-llm", *DRAFTERS) and rig.drafter_names == DRAFTERS
    assert not rig.chat and rig.version == 0 and rig.pair == ModelPair()
    assert rig.exchange.state == "none" and not rig.leaving()
    with pytest.raises(ConfigError, match="without a loader"):
        rig.begin(OTHER)


def test_the_first_pair_is_loaded_here_and_now() -> None:
    loader = Loader(lambda: other_worker("small"))
    rig = ModelHost.open(loader, OTHER)
    assert rig.names() == ("other", "small") and rig.pair == OTHER and rig.version == 0
    with pytest.raises(OutOfMemoryError, match="too much"):
        ModelHost.open(Loader(failing(OutOfMemoryError("too much"))), OTHER)


def test_a_run_goes_on_while_another_pair_is_loaded_and_ends_on_its_own_models() -> None:
    old, new = FakeWorker(scripted(40), speed=10.0), other_worker("small")
    loader = Loader(lambda: new, held=True)
    rig = ModelHost(old, loader)
    hub = Hub(rig, FakeStore())
    going = hub.start(request())
    rig.begin(OTHER)
    between = hub.start(request("while it is loaded"))
    assert rig.exchange.loading and rig.worker is old and len(old.requests) == 2
    loader.go.set()
    while rig.exchange.loading:
        rig.wait(rig.exchange, 0.1)
    assert rig.names() == ("other", "small") and hub.worker is new and rig.version == 1
    assert [stage.words for stage in rig.exchange.stages] == [
        "Looking for the models",
        "LLM other: weights",
        "SSM 1 of 1 small: weights",
    ]
    assert rig.exchange.state == "done" and rig.pair == OTHER
    assert not old.closed and rig.leaving() == 2, "it has runs to end"
    after = hub.start(request("for the new ones", "autoregressive"))
    assert len(new.requests) == 1 and len(old.requests) == 2
    old.speed = 0.0
    for source in (going, between, after):
        assert isinstance(whole(source)[-1], RunCompleted)
    settled(rig)
    assert old.closed and not new.closed and not rig.leaving()


def test_who_watches_a_past_run_does_not_hold_its_models() -> None:
    hub = Hub(ModelHost(FakeWorker(speed=0.0)), FakeStore())
    source = hub.start(request())
    whole(source)
    assert source._run is None and source.place == 0
    source.cancel()  # and nothing happens


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (VocabMismatchError("token id 17 is 'a' there"), "token id 17 is 'a' there"),
        (OutOfMemoryError("needs 9 GiB"), "needs 9 GiB"),
        (MemoryError(), "MemoryError"),
        (RuntimeError("the device is gone"), "the device is gone"),
    ],
)
def test_a_pair_that_cannot_be_loaded_leaves_what_stands(error: Exception, words: str) -> None:
    old = FakeWorker(scripted(4), speed=0.0)
    rig = ModelHost(old, Loader(failing(error)))
    rig.begin(OTHER)
    settled(rig)
    assert (rig.exchange.state, rig.exchange.reason) == ("failed", words)
    assert rig.worker is old and rig.version == 0 and not old.closed
    assert isinstance(whole(Hub(rig, FakeStore()).start(request()))[-1], RunCompleted)
    rig._load = Loader(lambda: other_worker("small"))
    rig.begin(OTHER)
    settled(rig)
    assert rig.exchange.state == "done" and rig.names() == ("other", "small")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_loader_ends_as_one_and_not_as_a_loading_for_ever() -> None:
    rig = ModelHost(FakeWorker(), Loader(failing(KeyError("oops"))))
    rig.begin(OTHER)
    settled(rig)
    assert rig.exchange.state == "failed"
    assert rig.exchange.reason == "internal error (KeyError): 'oops'"


def test_one_exchange_at_a_time() -> None:
    loader = Loader(lambda: other_worker("small"), held=True)
    rig = ModelHost(FakeWorker(), loader)
    rig.begin(OTHER)
    with pytest.raises(ConfigError, match="another pair is being loaded"):
        rig.begin(ModelPair("third", ()))
    loader.go.set()
    settled(rig)
    assert loader.asked == [OTHER] and rig.names()[0] == "other"


def test_many_who_ask_at_once_get_one_exchange() -> None:
    loader = Loader(lambda: other_worker("small"), held=True)
    rig = ModelHost(FakeWorker(), loader)
    refused: list[ConfigError] = []
    ready = threading.Barrier(8)

    def ask() -> None:
        ready.wait(10)
        try:
            rig.begin(OTHER)
        except ConfigError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loader.go.set()
    settled(rig)
    assert len(refused) == 7 and len(loader.asked) == 1


def test_cancelled_between_stages() -> None:
    loader = Loader(lambda: pytest.fail("it was cancelled"), held=True)
    old = FakeWorker()
    rig = ModelHost(old, loader)
    rig.cancel()  # nothing is loaded
    rig.begin(OTHER)
    rig.cancel()
    assert rig.exchange.ending
    loader.go.set()
    settled(rig)
    assert rig.exchange.state == "cancelled" and rig.worker is old and not old.closed
    assert len(rig.exchange.stages) <= 1
    rig.cancel()
    assert rig.exchange.state == "cancelled"


def test_cancelled_behind_the_last_stage_the_new_worker_is_closed() -> None:
    old, new = FakeWorker(), other_worker("small")
    rig = ModelHost(old)

    def load(pair: ModelPair, say: Say) -> Any:
        rig.cancel()
        return new

    rig._load = load
    rig.begin(OTHER)
    settled(rig)
    assert rig.exchange.state == "cancelled" and rig.worker is old
    assert new.closed and not old.closed


def test_queued_runs_end_on_the_models_they_were_queued_for() -> None:
    old = FakeWorker(scripted(10), speed=0.5, max_live=1)
    rig = ModelHost(old, Loader(lambda: other_worker("small")))
    hub = Hub(rig, FakeStore())
    sources = [hub.start(request(f"number {i}")) for i in range(4)]
    rig.begin(OTHER)
    while rig.exchange.loading:
        rig.wait(rig.exchange, 0.1)
    assert rig.leaving() >= 3
    for source in sources:
        assert isinstance(whole(source)[-1], RunCompleted)
    settled(rig)
    assert old.closed and len(old.requests) == 4


def test_a_stopped_run_and_one_whose_tap_fails_let_their_models_go() -> None:
    old = FakeWorker(scripted(400), speed=5.0)
    rig = ModelHost(old, Loader(lambda: other_worker("small")))
    source = Hub(rig, FakeStore()).start(request())

    def broken(event: Any) -> None:
        raise ValueError("a full disk")

    with pytest.raises(ValueError, match="a full disk"):
        rig._stand.enter()
        rig._stand._counting_tap(broken)(replace(whole_run()[0]))
    rig.begin(OTHER)
    while rig.exchange.loading:
        rig.wait(rig.exchange, 0.1)
    assert rig.leaving() == 1
    source.cancel()
    assert isinstance(whole(source)[-1], RunCancelled)
    settled(rig)
    assert old.closed


def whole_run() -> list[Any]:
    return scripted(2)(request(), "r")


def test_a_request_that_is_refused_is_no_run() -> None:
    old = FakeWorker()
    rig = ModelHost(old, Loader(lambda: other_worker("small")))
    old.submit = lambda *_: failing(ConfigError("prompt is ''"))()  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="prompt is"):
        rig.submit(request())
    rig.begin(OTHER)
    settled(rig)
    assert old.closed


def test_a_page_that_knows_the_drafters_of_before_is_told_to_reload() -> None:
    rig = ModelHost(FakeWorker(), Loader(lambda: other_worker("small", DRAFTERS[0])))
    rig.begin(OTHER)
    settled(rig)
    hub = Hub(rig, FakeStore())
    asked = request()

    def wanting(*names: str) -> Any:
        return replace(asked, speculation=replace(asked.speculation, drafters=names))

    with pytest.raises(ConfigError) as caught:
        hub.start(wanting(*DRAFTERS))
    assert "the models were exchanged since this page was opened: reload it" in str(caught.value)
    assert "all, first, ngram, small" in str(caught.value)
    for names in (("small",), ("all",), ("ngram",), (), (DRAFTERS[0],), ("nobody",)):
        whole(hub.start(wanting(*names)))  # what nobody ever had is the engine's to refuse
    assert not rig._stand.runs


def test_close_ends_runs_of_both_and_a_loading() -> None:
    old, new = FakeWorker(scripted(400), speed=5.0), other_worker("small", speed=5.0)
    loader = Loader(lambda: new)
    rig = ModelHost(old, loader)
    hub = Hub(rig, FakeStore())
    first = hub.start(request())
    rig.begin(OTHER)
    while rig.exchange.loading:
        rig.wait(rig.exchange, 0.1)
    second = hub.start(request(preset="autoregressive"))
    loader.go.clear()
    rig.begin(ModelPair("third", ()))
    rig.close()
    rig.close()
    assert old.closed and new.closed
    assert [type(whole(source)[-1]) for source in (first, second)] == [RunCancelled] * 2
    loader.go.set()
    settled(rig)
    assert rig.exchange.state == "cancelled"
    for late in (lambda: hub.start(request()), lambda: rig.begin(OTHER)):
        with pytest.raises(EngineClosedError, match="worker is closed"):
            late()


def test_nobody_who_submits_is_overtaken_by_an_exchange() -> None:
    rig = ModelHost(
        FakeWorker(scripted(1), speed=0.0), Loader(lambda: other_worker("s", speed=0.0))
    )
    hub = Hub(rig, FakeStore())
    ended: list[Any] = []

    def keep_submitting() -> None:
        for _ in range(20):
            ended.append(whole(hub.start(request(preset="autoregressive")))[-1])

    threads = [threading.Thread(target=keep_submitting) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if not rig.exchange.loading:
            rig.begin(OTHER)
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    settled(rig)
    assert rig.version > 1 and len(ended) == 60
    assert {type(event) for event in ended} == {RunCompleted}, "none was cut off by a close"
