"""Pipelining across requests."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config import PIPELINES
from core.drafters.ahead import CancelSignal
from core.engine.overlap import NO_OTHER_REQUEST, DraftPool, DraftThread
from core.engine.round_state import ActiveRequest
from core.engine.worker import Worker
from core.events import Event
from core.models.protocol import Feed
from tests.core.engines import (
    GREEDY,
    WARM,
    admit_all,
    engine_of,
    failing_from,
    ids_of_events,
    open_rows,
    rounds_of,
    tables,
    texts_of,
)  # fmt: skip
from tests.fakes import TableModel, loaded_tables, random_table

TREE: dict[str, Any] = {"expansion": (2, 1), "speculation_length": 3}
PROMPTS = ("w1 w2 w3", "w4", "w2 w2 w6", "w7 w1", "w5 w5")


def requests(count: int, sampling: SamplingParams = GREEDY, **fields: Any) -> list[Request]:
    config = SpeculationConfig(**{**TREE, **fields})
    return [Request(prompt, sampling, config) for prompt in PROMPTS[:count]]


def drafting_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("drafting")]


def test_sampled_drafts_draw_the_same_tokens_made_ahead_or_on_time() -> None:
    results = []
    for pipeline in PIPELINES:
        settings = {"draft": "sampled", "verify": "mss", "max_tree_nodes": "uncut"}
        request_list = requests(3, WARM, pipeline=pipeline, **settings)
        results.append(texts_of(list(engine_of(*tables()).generate_many(request_list))))
    assert list(map(len, results[0])) == [WARM.max_new_tokens] * 3
    assert all(one == results[0] for one in results)


def test_groups_take_turns() -> None:
    events = list(engine_of(*tables()).generate_many(requests(4, pipeline="across")))
    runs = list(dict.fromkeys(event.run_id for event in events))
    order = [runs.index(event.run_id) for event in rounds_of(events)]
    assert order[:8] == [0, 1, 2, 3, 0, 1, 2, 3]
    # All rounds are drafted during a pass, except the first rounds of the first two requests.
    first = [event for event in rounds_of(events) if not event.ahead]
    assert {runs.index(event.run_id) for event in first} == {0, 1}
    assert [event.round for event in first] == [0, 0]


def test_drafting_pauses_while_the_pool_has_drafts_for_a_full_pass() -> None:
    engine = engine_of(*tables())
    long = SamplingParams(30, seed=1)

    def join(count: int) -> list[ActiveRequest]:
        return admit_all(engine, requests(count, long, pipeline="across"))

    live, waiting = join(2), []
    for joining in (0, 0, 5, 0, 0, 0):
        live += join(joining)
        list(engine.round(live))
        waiting.append(len(engine._draft_pool._states))
    assert waiting == [1, 1, 4, 3, 4, 3]
    for ended in live[2:]:
        engine.release(ended)
    for _ in range(3):
        list(engine.round(live[:2]))
        assert len(engine._draft_pool._states) == 1
    for one in live[:2]:
        engine.release(one)


def test_a_single_request_is_decoded_as_in_the_plain_loop() -> None:
    events = list(engine_of(*tables()).generate_many(requests(1, pipeline="across")))
    assert not any(event.ahead for event in rounds_of(events))
    assert not drafting_threads()
    assert [(e.round, note) for e in rounds_of(events) for note in e.notes] == [
        (0, NO_OTHER_REQUEST)
    ]


class WaitingLlm(TableModel):
    def __init__(self) -> None:
        super().__init__("llm", 8, random_table(8, 1), 64)
        self.drafted_in_time: list[bool] = []
        self.drafting = threading.Event()
        self.wait = False

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if self.wait:
            self.drafted_in_time.append(self.drafting.wait(timeout=5.0))
            self.drafting.clear()
        return super().forward(feeds)


class SignallingSsm(TableModel):
    def __init__(self, llm: WaitingLlm) -> None:
        super().__init__("ssm", 8, random_table(8, 2), 64)
        self.llm = llm

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        self.llm.drafting.set()
        return super().forward(feeds)


def test_drafters_draft_during_the_llms_pass() -> None:
    llm = WaitingLlm()
    engine = Engine(loaded_tables(llm, [SignallingSsm(llm)]))
    llm.wait = False
    live = admit_all(engine, requests(2, pipeline="across"))
    events: list[Event] = []
    events += engine.round(live)  # the first request is verified, the second is drafted
    llm.drafting.clear()
    llm.wait = True
    for _ in range(3):
        events += engine.round(live)
    assert llm.drafted_in_time == [True, True, True]
    for one in live:
        engine.release(one)
    assert not drafting_threads()


def test_hidden_drafting_is_counted() -> None:
    events = list(engine_of(*tables()).generate_many(requests(4, pipeline="across")))
    ahead = [entry for event in rounds_of(events) for entry in event.ahead]
    assert ahead and all(entry.hit and entry.wasted_ms == 0 for entry in ahead)
    assert all(entry.saved_ms >= 0 for entry in ahead)


@pytest.mark.parametrize("steps", range(1, 30, 3))
def test_closing_in_mid_run_ends_rows_and_threads(steps: int) -> None:
    engine = engine_of(*tables())
    events = engine.generate_many(requests(4, pipeline="across"))
    for _ in range(steps):
        next(events)
    events.close()
    assert open_rows(engine) == [(), (), ()]
    assert not drafting_threads()
    assert not engine._draft_pool._states
    again = list(engine.generate_many(requests(2, pipeline="across")))
    assert texts_of(again) == texts_of(list(engine_of(*tables()).generate_many(requests(2))))


def test_a_worker_cancels_one_of_several() -> None:
    worker = Worker(engine_of(*tables()))
    try:
        long = SamplingParams(40, seed=1)
        runs = [worker.submit(each) for each in requests(4, long, pipeline="across")]
        runs[1].cancel()
        completed = [ids_of_events(list(run.events())) for i, run in enumerate(runs) if i != 1]
        alone = texts_of(list(engine_of(*tables()).generate_many(requests(4, long))))
        assert completed == [alone[0], alone[2], alone[3]]
    finally:
        worker.close()
    assert not drafting_threads()


@pytest.mark.loses_drafters
def test_a_drafter_that_fails_during_a_pass_does_not_change_the_text() -> None:
    llm, ssms = tables()
    failing_from(ssms[1], 6, RuntimeError("the device went away"))
    events = list(engine_of(llm, ssms).generate_many(requests(4, pipeline="across")))
    assert texts_of(events) == texts_of(list(engine_of(*tables()).generate_many(requests(4))))
    assert sum(len(event.notes) for event in rounds_of(events)) == 4


def test_an_error_of_the_llm_ends_rows_and_threads() -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    failing_from(llm, 8, RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        list(engine.generate_many(requests(4, pipeline="across")))
    assert open_rows(engine) == [(), (), ()] and not drafting_threads()


def test_a_draft_thread_raises_its_jobs_error() -> None:
    lane = DraftThread()

    def job(pass_ended: CancelSignal) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), lane.run_during([job]):
        pass
    with lane.run_during([]):
        pass
    lane.close()
    lane.close()


def test_pools_forget_requests_that_have_ended() -> None:
    engine = engine_of(*tables())
    live = [engine.admit(engine.prepare(each)) for each in requests(3, pipeline="across")]
    pools = DraftPool()
    modes = {one.sequence.run_id: "across" for one in live}
    batch = pools.take(live, modes)
    assert ([t.request for t in batch.states], [t.request for t in batch.to_draft_during_pass]) == (
        live[:2],
        live[2:],
    )
    for state in batch.states:
        state.timings.clear()
    pools.keep(batch)
    pools.forget(live[2])
    assert [state.request for state in pools.take(live, modes).to_draft] == live[:2]
