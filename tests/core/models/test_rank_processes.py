"""The bundled LLM over several processes has the logits and texts of one process."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, load_models
from core.config.ranks import ranks_of
from core.errors import ConfigError
from core.events import Combined, RoundCompleted, RunStarted, Span
from core.models.hf_model import HfModel
from core.models.loading.catalog import bundled_llm
from core.models.ranks.messages import CommitRow
from core.speculation_length.cost_model import ledger
from tests.core.engines import ids_of_events, rounds_of, texts_of, tokens_by_drafter
from tests.core.models.over_ranks import error_of, logits_of_trees, over_ranks
from tests.core.remote_ssms.served import node_at_address, pool_to, server_of
from tests.laws.runs import bundled_engine, prompts
from ui.run.pass_words import ranks_words
from ui.run.view import reduce_all

pytestmark = pytest.mark.nightly
GREEDY = SamplingParams(24)
SAMPLED = SamplingParams(24, temperature=0.8, seed=3)
TREE = SpeculationConfig.preset("specinfer")


@pytest.fixture(scope="module", autouse=True)
def _timed_once() -> Iterator[None]:
    """Timing passes over ranks takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "measure_verify_costs", cache(ledger.measure_verify_costs))
        yield


@pytest.fixture(scope="module", params=["tp=2", "pp=2"])
def rank_models(request: pytest.FixtureRequest) -> Iterator[LoadedModels]:
    one = bundled_engine().models
    with over_ranks("bundled", request.param) as model:
        yield replace(one, llm=model)


@cache
def logits_of_one_process() -> torch.Tensor:
    one: Any = bundled_engine().models.llm
    return logits_of_trees(one)


def test_logits_are_those_of_one_process(rank_models: LoadedModels) -> None:
    assert rank_models.llm.info == bundled_engine().models.llm.info
    assert error_of(logits_of_trees(rank_models.llm), logits_of_one_process()) < 1e-4  # type: ignore[arg-type]


@pytest.mark.parametrize("rank_models", ["pp=2"], indirect=True)
def test_stages_give_the_bits_of_transformers_in_one_process(rank_models: LoadedModels) -> None:
    """Pipeline stages do not split a matrix product."""
    model: Any = rank_models.llm
    module = AutoModelForCausalLM.from_pretrained(bundled_llm(), dtype=torch.float32).eval()
    one = HfModel(module, model.info, model.masks)
    assert torch.equal(logits_of_trees(model), logits_of_trees(one))


def test_control_a_wrong_commit_changes_the_logits(
    rank_models: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = rank_models.llm
    send, commits = model._send, []

    def send_corrupted(message: Any) -> None:
        if isinstance(message, CommitRow) and len(commits) < 2:
            commits.append(message)
            if len(commits) == 2:  # the commit of the first tree
                message = CommitRow(message.row, [0, 2, 5, 8], [])
        send(message)

    monkeypatch.setattr(model, "_send", send_corrupted)
    assert error_of(logits_of_trees(model), logits_of_one_process()) > 1e-3


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "match"])
@pytest.mark.parametrize(
    ("preset", "schedule"), [("autoregressive", "each"), ("specinfer", "each"), ("best", "cosine")]
)
def test_laws_1_and_2_hold_over_ranks(
    rank_models: LoadedModels, sampling: SamplingParams, preset: str, schedule: str
) -> None:
    speculation = SpeculationConfig.preset(preset, sampling.temperature)
    requests = [Request(prompt, sampling, speculation) for prompt in prompts(5)]
    engine, expected = Engine(rank_models, schedule=schedule), plain_token_ids(requests)
    if schedule == "each":
        assert [ids_of_events(engine.generate(request)) for request in requests] == expected
    assert texts_of(engine.generate_many(requests)) == expected


def plain_token_ids(requests: list[Request]) -> list[list[int]]:
    plain = SpeculationConfig.preset("autoregressive")
    return [ids_of_one_process(replace(each, speculation=plain)) for each in requests]


@cache
def ids_of_one_process(request: Request) -> list[int]:
    return ids_of_events(bundled_engine().generate(request))


@pytest.mark.parametrize(
    ("sampling", "schedule", "pipeline"),
    [(GREEDY, "each", "ahead"), (SAMPLED, "cosine", "across")],
    ids=["greedy, ahead", "match, across"],
)
def test_ssms_on_nodes_draft_while_the_ranks_verify(
    rank_models: LoadedModels, sampling: SamplingParams, schedule: str, pipeline: str
) -> None:
    names = [*rank_models.ssms]
    parts, without_ssms = (names[:2], names[2:]), replace(rank_models, ssms={})
    speculation = replace(TREE, pipeline=pipeline)
    requests = [Request(prompt, sampling, speculation) for prompt in prompts(3)]
    first, second = (server_of(rank_models, part) for part in parts)
    with (
        node_at_address(first, None) as one,
        node_at_address(second, None) as other,
        closing(pool_to([one, other], None, without_ssms.llm.vocab_size)) as pool,
    ):
        engine = Engine(without_ssms, nodes=pool.connect(()), schedule=schedule)
        events = list(engine.generate(requests[0]) if schedule == "each" else [])
        events += engine.generate_many(requests[1:])
    assert texts_of(events) == plain_token_ids(requests)[schedule != "each" :]
    rounds = rounds_of(events)
    # A round may lack a rank's traffic: on a busy machine the rank's report may come too late.
    assert {one.rank for each in rounds for one in each.traffic} == {0, 1}
    assert {trip.state for each in rounds for trip in each.nodes} <= {"in_time", "ahead"}
    accepted = tokens_by_drafter(events)[1]
    assert all(any(accepted[name] for name in part) for part in parts)


def test_events_have_the_traffic_of_the_ranks(rank_models: LoadedModels) -> None:
    model: Any = rank_models.llm
    events = list(Engine(rank_models).generate(Request(prompts(1)[0], GREEDY, TREE)))
    start = events[0]
    assert isinstance(start, RunStarted) and start.ranks == model.ranks
    layers, hidden, vocabulary = 16, 256, model.vocab_size
    for event in events:
        if not isinstance(event, RoundCompleted):
            continue
        assert [one.rank for one in event.traffic] == [0, 1]
        fed = 1 + next(
            len(e.token_ids) for e in events if isinstance(e, Combined) and e.round == event.round
        )
        for one in event.traffic:
            assert one.ms > 0
            if model.ranks.split == "tp":  # two all-reduces a layer and half of the logits
                assert one.collectives == 2 * layers + 1
                assert one.bytes == 4 * fed * (2 * layers * hidden + vocabulary // 2)
            else:
                assert one.collectives == 2 and one.bytes == 4 * fed * (hidden + vocabulary)


@pytest.mark.parametrize("rank_models", ["tp=2"], indirect=True)
def test_one_outlier_hardly_changes_the_pages_text_on_the_ranks(
    rank_models: LoadedModels,
) -> None:
    """Rounds get fixed times: measured times differ too much on a busy machine."""
    plain = SpeculationConfig.preset("autoregressive")
    view = reduce_all(Engine(rank_models).generate(Request(prompts(1)[0], GREEDY, plain)))
    assert view.started is not None
    info = view.started.ranks
    rounds = tuple(
        replace(
            one,
            spans=(Span("llm", "forward", 0.0, 10.0 + i % 3),),
            traffic=tuple(replace(part, ms=2.0) for part in one.traffic),
        )
        for i, one in enumerate(view.rounds)
    )
    verdict = speedup_bound_of(ranks_words(info, rounds))
    assert f"The run's {len(rounds)} passes over 1 token took" in ranks_words(info, rounds)
    traffic = tuple(replace(one, ms=0.0) for one in rounds[-1].traffic)
    for ms in (0.01, 10_000.0):
        outlier = replace(rounds[-1], spans=(Span("llm", "forward", 0.0, ms),), traffic=traffic)
        for at in range(len(rounds)):
            others = [*rounds[:at], *rounds[at + 1 :]]
            changed = speedup_bound_of(ranks_words(info, [*others, outlier]))
            assert abs(changed - verdict) < 0.25 * verdict


def speedup_bound_of(words: str) -> float:
    (bound,) = re.findall(r"([\d.]+) times as fast", words)
    return float(bound)


def test_each_rank_reports_its_part_of_the_weights(rank_models: LoadedModels) -> None:
    one, info = bundled_engine().models.llm.info, rank_models.llm.ranks  # type: ignore[attr-defined]
    embedding = 4 * one.vocab_size * 256
    all_bytes = 4 * one.parameters
    assert info.count == 2
    assert all(size <= all_bytes / 2 + embedding for size in info.weight_bytes)


def test_a_second_llm_over_ranks_is_refused(rank_models: LoadedModels) -> None:
    with pytest.raises(ConfigError, match="one LLM over ranks in a process"):
        load_models("bundled", [], "float32", "cpu", ranks=ranks_of("tp=2"))
    assert logits_of_trees(rank_models.llm).isfinite().all()  # type: ignore[arg-type]
