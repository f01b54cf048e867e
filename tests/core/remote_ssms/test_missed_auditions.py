"""Auditions that a node misses, and notes about missing nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import Engine, SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.events import Combined
from core.remote_ssms import run_requests
from core.remote_ssms.client import RemotePool
from core.remote_ssms.run_requests import RemoteRun
from core.trees.noise import SeededNoise
from tests.core.engines import ids_of_events, request, rounds_of, tables
from tests.core.remote_ssms.served import engine_over, pool_over, server_of
from tests.fakes import loaded_tables, sequence_of

AUTOREGRESSIVE = SpeculationConfig.preset("autoregressive")


@pytest.mark.parametrize("preset", ["sequence", "best"])
def test_an_ssm_that_misses_its_audition_gets_another(preset: str) -> None:
    llm, ssms = tables(3, context=128)
    models = loaded_tables(llm, ssms)
    warm = SamplingParams(40, temperature=1.0, seed=5)
    text = ids_of_events(
        Engine(loaded_tables(llm, [])).generate(request("w1", warm, AUTOREGRESSIVE))
    )
    local_models = loaded_tables(llm, [models.ssms["ssm-2"], models.ssms["ssm-3"]])
    results = []
    for delay_s in (0.0, 0.06):  # the first deadline is 0.05 s
        pool, transport = pool_over(models, [server_of(models, ["same"])])
        transport.delay(0, delay_s)
        config = replace(SpeculationConfig.preset(preset), max_tree_nodes=8)
        run_request = request("x", SamplingParams(60, seed=1, temperature=1.0), config)
        rounds = []
        for event in Engine(local_models, nodes=pool).generate(
            replace(run_request, prompt_token_ids=tuple(text))
        ):
            if rounds_of([event]):
                rounds.append(event)
                transport.pass_time(0.1)
        results.append(len(rounds))
        assert {trip.state for trip in rounds[0].nodes} == {"late" if delay_s else "in_time"}
    assert results[1] <= results[0] + 2, "the SSM that is always right is on the node"


def run_of(run_id: str, length: int = 3) -> RemoteRun:
    config, noise = SpeculationConfig(), SeededNoise(1, 64)
    sampling = SamplingParams(30, seed=1)
    sequence = sequence_of((1,) * length, config, sampling, noise, context_length=4096)
    sequence.run_id = run_id
    return RemoteRun(sequence, (DraftRequest(sequence, 0, "topk", (1, 1), 2, "same"),))


def next_notes(pool: RemotePool, *runs: RemoteRun) -> dict[str, list[str]]:
    pool.begin(runs)
    return {run_id: answer.notes for run_id, answer in pool.finish().items()}


def test_every_open_run_has_one_note_that_a_node_is_missing_and_one_that_it_is_back() -> None:
    llm, ssms = tables(2)
    models = loaded_tables(llm, ssms)
    pool, transport = pool_over(models, [server_of(models)])
    a, b = run_of("a"), run_of("b")
    assert next_notes(pool, a, b) == {"a": [], "b": []}
    transport.kill(0)
    for run_id, run in (("a", a), ("b", b)):
        assert "is not there" in next_notes(pool, run)[run_id][0]
    assert next_notes(pool, a, b) == {"a": [], "b": []}
    transport.start(0, server_of(models))
    for run_id, run in (("a", a), ("b", b)):
        (note,) = [one for _ in range(3) for one in next_notes(pool, run)[run_id]]
        assert "drafts again" in note


def test_a_node_that_is_connected_and_silent_is_not_reported_missing() -> None:
    llm, ssms = tables(2)
    models = loaded_tables(llm, ssms)
    server = server_of(models)
    pool, transport = pool_over(models, [server])
    server.handle = lambda *_: None  # type: ignore[method-assign]
    transport.reconnect(0)
    (note,) = next_notes(pool, run_of("a"))["a"]
    assert "is connected, but has not answered the engine's hello yet: rounds go on" in note


def test_a_node_that_still_drafts_is_not_reported_missing() -> None:
    llm, ssms = tables(2)
    models = loaded_tables(llm, ssms)
    pool, transport = pool_over(models, [server_of(models)])
    next_notes(pool, run_of("a"))
    transport.delay(0, 3.0)
    assert "did not answer within 50 ms" in next_notes(pool, run_of("a"))["a"][0]
    assert "has not answered an earlier round yet" in next_notes(pool, run_of("c"))["c"][0]


@pytest.mark.parametrize(("combine", "draft"), [("log_pool", "auto"), ("union", "fused")])
def test_a_lookup_takes_no_nodes_from_ssms_that_draft_together(combine: str, draft: str) -> None:
    llm, ssms = tables(2, context=128)
    models = loaded_tables(llm, ssms)
    config = SpeculationConfig(
        *(("all", "ngram"), draft, (2, 2, 1), 24, combine), speculation_length=8
    )
    looping = request("w1 w2 w3 w1 w2 w3 w1 w2", SamplingParams(12, seed=1), config)
    engine, _ = engine_over(models, (("same", "ssm-2"),))
    largest = [
        max(len(event.token_ids) for event in one.generate(looping) if isinstance(event, Combined))
        for one in (engine, Engine(models))
    ]
    assert largest[0] == largest[1]


def test_the_tokens_in_one_message_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_requests, "MOST_MESSAGE_TOKENS", 50)
    llm, ssms = tables(2)
    models = loaded_tables(llm, ssms)
    pool, _ = pool_over(models, [server_of(models)])
    runs = [run_of(name, 20) for name in "abcd"]
    for expected in (2, 4):  # the second time, the node has the texts of the first two runs
        pool.begin(runs)
        assert sum(bool(answer.trips) for answer in pool.finish().values()) == expected
    pool.begin([run_of("long", 60)])
    assert pool.finish()["long"].trips, "a single text is sent, whatever its length"
