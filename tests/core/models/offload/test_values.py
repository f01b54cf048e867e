"""An offloaded LLM has the logits and texts of the resident LLM."""

import time
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, load_models
from core.config.mechanisms import SCHEDULES
from core.config.offload import Offload
from core.events import Combined, RoundCompleted, RunStarted
from core.models.hf_model import HfModel
from core.models.protocol import Feed
from core.speculation_length.cost_model import Costs, verify_costs
from tests.core.engines import ids_of_events, texts_of
from tests.core.models.offload.streamed import LAYERS, PROMPT, Folder, equal, load
from tests.core.models.test_lean import LEAN, all_logits
from tests.core.speculation_length.world import Simulated, World, constant, simulate


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", LEAN)
def test_an_offloaded_llms_logits_are_those_of_the_resident_one(
    folder: Folder, way: type[Any], family: str, dtype: str
) -> None:
    path = folder(family)
    resident = load_models(str(path), [], dtype).llm
    model = load(path, dtype=dtype)
    assert type(model._forward) is way
    assert model.stream is not None and model.stream.info.streamed == LAYERS
    assert isinstance(resident, HfModel)
    assert model.info == resident.info
    assert equal(model, resident)
    assert equal(load(path, dtype=dtype), resident)  # from the existing layer file
    assert equal(load(path, "host", dtype=dtype), resident)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["host", "disk"])
def test_on_a_gpu_logits_agree_with_the_resident_models(folder: Folder, mode: str) -> None:
    path = folder(tie_word_embeddings=True)
    resident = load_models(str(path), [], "float32", "cuda").llm
    assert isinstance(resident, HfModel)
    streamed = load(path, mode, dtype="float32", device="cuda")
    half = load(path, mode, streamed.stream.bytes // 2, dtype="float32", device="cuda")
    for model in (streamed, half):
        for one, other in zip(all_logits(model), all_logits(resident), strict=True):
            assert torch.allclose(one, other, atol=1e-5)
        assert model.stream is not None and model.stream.take_times()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"halved": True, "intermediate_size": 64, "head_dim": 8},
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ],
)
def test_logits_are_the_same_on_several_threads_and_in_every_format(
    folder: Folder, changes: dict[str, Any], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.models.native.forward.MIN_BYTES_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    path = folder(**changes)
    resident: Any = load_models(str(path), []).llm
    model: Any = load(path)
    assert model._forward.workers == threads
    assert model._forward._weights.matrices.dtype == resident._forward._weights.matrices.dtype
    assert equal(model, resident)


def test_layers_within_the_budget_stay_in_memory(folder: Folder, way: type[Any]) -> None:
    path = folder()
    resident: Any = load_models(str(path), []).llm
    stream: Any = load(path).stream
    size = stream.bytes // LAYERS
    for budget in range(LAYERS + 2):
        model = load(path, resident=budget * size + size // 2)
        assert model.stream is not None
        info, resident_layers = model.stream.info, min(budget, LAYERS)
        assert (info.streamed, info.resident_bytes) == (
            LAYERS - resident_layers,
            resident_layers * size,
        )
        assert info.bytes_a_pass == (LAYERS - resident_layers) * size
        assert equal(model, resident)


def test_control_two_swapped_layers_are_noticed(folder: Folder, way: type[Any]) -> None:
    path = folder()
    resident: Any = load_models(str(path), []).llm
    model: Any = load(path, "host")
    layers = model.stream._reader._source.layers
    layers[1], layers[2] = layers[2], layers[1]
    assert not equal(model, resident)


# -- texts --


def texts(
    models: LoadedModels, temperature: float, verify: str, schedule: str = "each"
) -> list[list[int]]:
    speculation = SpeculationConfig(verify=verify, speculation_length=4)
    sampling = SamplingParams(24, temperature, seed=5)
    prompts = [(3, 9, 27, 17), (5,), (40, 41, 42)]
    requests = [Request("w", sampling, speculation, prompt_token_ids=one) for one in prompts]
    return texts_of(Engine(models, schedule=schedule).generate_many(requests))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("temperature", "verify"), [(0.0, "greedy"), (0.8, "match")])
def test_laws_1_and_2_hold_for_an_offloaded_llm(
    folder: Folder, dtype: str, temperature: float, verify: str
) -> None:
    """Texts equal the resident LLM's texts, with drafters and without."""
    path = str(folder(halved=True))
    ssm = [path]
    resident = texts(load_models(path, ssm, dtype), temperature, verify)
    streamed = load_models(path, ssm, dtype, offload=Offload("disk"))
    plain = load_models(path, [], dtype, offload=Offload("disk"))
    for schedule in SCHEDULES:
        assert texts(streamed, temperature, verify, schedule) == resident
    speculation = SpeculationConfig.preset("autoregressive")
    alone = Request(
        "w", SamplingParams(24, temperature, seed=5), speculation, prompt_token_ids=PROMPT
    )
    assert ids_of_events(Engine(plain).generate(alone)) == resident[0]


# -- streaming for a while, and costs --


@pytest.mark.parametrize("halved", [False, True])
def test_a_resident_model_may_be_streamed_for_a_while(folder: Folder, halved: bool) -> None:
    path = str(folder(halved=halved, intermediate_size=64, head_dim=8))
    engine = Engine(load_models(path, [path]))
    request = Request("w", SamplingParams(12), prompt_token_ids=PROMPT)
    expected = ids_of_events(engine.generate(request))
    assert engine.can_stream
    engine.stream_mbps = 2.0
    assert engine.can_stream, "also while it is streamed"
    events = list(engine.generate(request))
    assert isinstance(events[0], RunStarted) and events[0].offload is not None
    assert (events[0].offload.mbps, events[0].offload.streamed) == (2.0, LAYERS)
    assert all(e.loads for e in events if isinstance(e, RoundCompleted))
    assert ids_of_events(events) == expected
    engine.stream_mbps = 0.0
    events = list(engine.generate(request))
    assert isinstance(events[0], RunStarted) and events[0].offload is None
    assert ids_of_events(events) == expected


def test_slow_streamed_passes_are_timed_at_few_sizes(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(folder())
    streamed, resident = (load_models(path, [], offload=o).llm for o in (Offload("host"), None))
    assert len(verify_costs.measure_verify_costs(streamed).ms) > 3  # its passes are fast
    monkeypatch.setattr(verify_costs, "SLOW_S", 0.0)
    costs = verify_costs.measure_verify_costs(streamed)
    assert list(costs.ms) == [0, 16, 64]
    assert len(verify_costs.measure_verify_costs(resident).ms) > 3


def test_budgets_and_lengths_follow_the_measured_costs(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 2 MB/s, the transfer takes so long that one more token costs the streamed LLM little."""
    path = str(folder())
    monkeypatch.setattr(verify_costs, "SLOW_S", 0.0)
    engines = [
        Engine(load_models(path, [path], offload=offload))
        for offload in (Offload("host", mbps=2.0), None)
    ]
    compute_for([engine.models.llm for engine in engines], 1e-3, monkeypatch)
    streamed, resident = (engine.costs for engine in engines)
    transfer_ms = streamed.verify.ms[0]
    assert transfer_ms > 30
    assert streamed.verify_ms(16) < 1.5 * transfer_ms
    assert resident.verify_ms(16) > 3 * resident.verify_ms(0)
    assert streamed.verify.affordable_nodes() >= 16
    assert resident.verify.affordable_nodes() <= 2
    auto = SpeculationConfig(expansion=(2, 2), speculation_length=3)
    request = Request("w", SamplingParams(8, ignore_eos=True), auto, prompt_token_ids=PROMPT)
    trees = [
        [len(e.token_ids) for e in engine.generate(request) if isinstance(e, Combined)]
        for engine in engines
    ]
    assert max(trees[0]) > 4 and max(trees[1]) <= 2
    lengths = [max(simulate(world_of(costs), 100).lengths[-5:]) for costs in (streamed, resident)]
    assert lengths[0] > 2 * lengths[1]


def world_of(costs: Costs) -> World:
    """The SSM takes 1 ms for each token, and each token is right with probability 0.8."""
    ssm = Simulated("a", constant(0.8), constant(1.0), constant(1.0))
    return World((ssm,), partial(costs.table_ms, context=64), noise=0.0)


def compute_for(llms: Sequence[Any], token_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the replaced clock, passes take `token_s` seconds longer for each token."""
    added_s = [0.0]

    def slower(forward: Any, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        added_s[0] += token_s * sum(len(feed.token_ids) for feed in feeds)
        result: list[torch.Tensor] = forward(feeds)
        return result

    for llm in llms:
        llm.forward = partial(slower, llm.forward)
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + added_s[0])
    monkeypatch.setattr(verify_costs, "time", clock)
