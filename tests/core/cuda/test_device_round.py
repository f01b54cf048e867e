"""Device rounds, which run in `core.cuda`, give the events of rounds that run step by step."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config import mechanisms
from core.config.mechanisms import COMBINE_RULES
from core.cuda import device_round, round_pass
from core.cuda.device_round import DeviceRound
from core.events import Combined, Drafted, Event, RoundCompleted, Verified
from core.models.graph_cache import CachedGraph
from core.models.loading.load import LoadedModels
from core.models.protocol import chain
from core.models.stacking import stack_alike
from tests.core.engines import texts_of
from tests.fakes import CONTEXT, loaded_modules, note_results, perturb, tiny_module

TIMES = ("start_ms", "end_ms", "share", "run_id", "created_utc", "tokens_per_second")
COLD = SamplingParams(40, seed=2)
WARM = SamplingParams(40, temperature=0.9, seed=2)
TRUNCATED = SamplingParams(30, temperature=1.2, top_k=20, top_p=0.9, seed=4)
FIXED = SpeculationConfig(expansion=(2, 2, 1), speculation_length=3, max_tree_nodes="uncut")
PROMPTS = ("w3 w5 w7 w9", "w11 w2 w4 w4 w8 w1 w6", "w1")


def models(
    count: int = 3, eos: tuple[int, ...] = (), context: int = CONTEXT, device: str = "cpu"
) -> LoadedModels:
    """An LLM, and `count` SSMs that are perturbed copies of it."""
    llm = tiny_module("llama", seed=5, dtype=torch.float32)
    ssms = [perturb(llm, 0.2 + 0.1 * seed, seed).to(device) for seed in range(count)]
    result = loaded_modules(llm.to(device), ssms, eos, context)
    stack_alike(list(result.ssms.values()))
    return result


def events(loaded: LoadedModels, requests: Sequence[Request], *, on_device: bool) -> list[Event]:
    with closing(Engine(loaded, on_device=on_device)) as engine:
        return list(engine.generate_many(requests))


# Rounds that run step by step do not depend on earlier runs of the models.
reference_models = cache(models)


def in_both_ways(requests: Sequence[Request], **changes: Any) -> list[list[Event]]:
    """The events of device rounds, then the events of rounds that run step by step."""
    on_device = events(models(**changes), requests, on_device=True)
    return [on_device, events(reference_models(**changes), requests, on_device=False)]


def requests(
    sampling: SamplingParams, config: SpeculationConfig, num_requests: int = 1
) -> list[Request]:
    return [Request(prompt, sampling, config) for prompt in PROMPTS[:num_requests]]


def check_same(one: object, other: object, where: str = "") -> None:
    """Compares all fields except TIMES and `..._ms`. Floats may differ by 2e-5, since passes over
    tensors of different shapes round differently."""
    assert type(one) is type(other), where
    if is_dataclass(one):
        for field in fields(one):
            if not (field.name in TIMES or field.name.endswith("_ms")):
                path = f"{where}.{field.name}"
                check_same(getattr(one, field.name), getattr(other, field.name), path)
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other), where  # type: ignore[arg-type]
        for i, pair in enumerate(zip(one, other, strict=True)):  # type: ignore[call-overload]
            check_same(*pair, f"{where}[{i}]")
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where  # type: ignore[attr-defined]
        for key in one:
            check_same(one[key], other[key], f"{where}[{key}]")  # type: ignore[index]
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=2e-5), where
    else:
        assert one == other, where


@pytest.fixture
def device_rounds(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call of `DeviceRound.run`, whether the round ran on the device."""
    return note_results(monkeypatch, DeviceRound, "run", lambda result: result is not None)


def check_both_ways(
    sampling: SamplingParams, config: SpeculationConfig, num_requests: int = 1, **changes: Any
) -> list[Event]:
    """Compares the events of `in_both_ways`; returns the events of device rounds."""
    both_runs = in_both_ways(requests(sampling, config, num_requests), **changes)
    ids = [list(dict.fromkeys(event.run_id for event in each)) for each in both_runs]
    renamed = dict(zip(*ids, strict=True))
    for i, (one, other) in enumerate(zip(*both_runs, strict=True)):
        assert renamed[one.run_id] == other.run_id
        check_same(one, other, f"{i} {type(one).__name__}")
    return both_runs[0]


@pytest.mark.parametrize("num_requests", [1, 3])
@pytest.mark.parametrize("sampling", [COLD, WARM, TRUNCATED], ids=["greedy", "match", "truncated"])
def test_rounds_of_fixed_lengths_run_on_the_device(
    sampling: SamplingParams, num_requests: int, device_rounds: list[bool]
) -> None:
    first_events = check_both_ways(sampling, FIXED, num_requests)
    accepted = [event.num_accepted for event in first_events if isinstance(event, RoundCompleted)]
    # Near the end of a text one of several requests may have no token left to draft. The round then
    # runs step by step.
    assert all(device_rounds[:8]) and device_rounds.count(False) <= 2 * (num_requests - 1)
    assert len(set(accepted)) >= 3


@pytest.mark.parametrize(
    "config",
    [
        replace(FIXED, drafters=("first",)),
        replace(FIXED, carry_over=True),
        SpeculationConfig.preset("autoregressive"),
        SpeculationConfig(drafters=("ssm-1",), expansion=(1,), max_tree_nodes=8),
        SpeculationConfig(max_tree_nodes=13),
        replace(FIXED, verify="match"),
    ],
    ids=lambda config: (
        f"{config.length}-{len(config.drafters)}-{config.max_tree_nodes}-{config.verify}"
    ),
)
def test_these_settings_run_on_the_device(
    config: SpeculationConfig, device_rounds: list[bool]
) -> None:
    for sampling in (COLD, WARM):
        check_both_ways(sampling, config)
    assert all(device_rounds) and device_rounds


def test_a_new_rule_that_keeps_all_nodes_runs_on_the_device(
    device_rounds: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = replace(COMBINE_RULES["union"], name="every")
    monkeypatch.setattr(mechanisms, "COMBINE_RULES", {**COMBINE_RULES, "every": rule})
    check_both_ways(WARM, replace(FIXED, combine="every"))
    assert all(device_rounds) and device_rounds


def test_rounds_after_an_audition_run_on_the_device(device_rounds: list[bool]) -> None:
    check_both_ways(COLD, replace(SpeculationConfig.preset("sequence"), max_tree_nodes=8))
    first = device_rounds.index(True)
    assert 0 < first < 8 and all(device_rounds[first:]) and len(device_rounds) > 8


@pytest.mark.parametrize(
    "config",
    [
        replace(FIXED, drafters=("all", "ngram"), max_tree_nodes=20),
        replace(FIXED, length="confidence"),
        replace(FIXED, combine="vote", weights="paper"),
        replace(FIXED, combine="vote_tree"),
        replace(FIXED, combine="log_pool"),
        replace(FIXED, draft="best_first"),
        replace(FIXED, draft="sampled", verify="mss"),
        replace(FIXED, record_top_k=3),
    ],
    ids=lambda config: f"{config.combine}-{config.length}-{config.draft}-{config.record_top_k}",
)
def test_these_settings_run_step_by_step(
    config: SpeculationConfig, device_rounds: list[bool]
) -> None:
    """Only a round without drafts may run on the device."""
    check_both_ways(WARM, config)
    assert sum(device_rounds) <= 1 and len(device_rounds) > 8


@pytest.mark.parametrize("config", [FIXED, SpeculationConfig.preset("autoregressive")])
def test_requests_with_different_sampling_run_step_by_step(
    config: SpeculationConfig, device_rounds: list[bool]
) -> None:
    vote = replace(FIXED, combine="vote", weights="paper")
    for others in ([Request(PROMPTS[2], COLD, vote)], []):
        requests_of_both = [
            Request(PROMPTS[0], WARM, config),
            Request(PROMPTS[1], TRUNCATED, config),
            *others,
        ]
        on_device, reference = map(texts_of, in_both_ways(requests_of_both))
        assert on_device == reference
    assert not any(device_rounds[:8])


def test_of_equal_nodes_the_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU the logits of a node and of its duplicate may differ slightly. In this test
    duplicates have wrong logits."""
    firsts = note_results(monkeypatch, round_pass, "first_equal", lambda result: result)
    outputs = round_pass.target_outputs

    def scramble(logits: torch.Tensor, *args: Any) -> Any:
        doubles = firsts[-1] != torch.arange(logits.shape[1])
        return outputs(torch.where(doubles[..., None], logits.flip(-1), logits), *args)

    monkeypatch.setattr(round_pass, "target_outputs", scramble)
    check_both_ways(WARM, FIXED, 2)
    assert sum(int((one != torch.arange(one.shape[1])).sum()) for one in firsts) > 100


@pytest.mark.parametrize("pipeline", ["ahead", "across"])
def test_pipelined_runs_have_the_same_text(pipeline: str) -> None:
    """How much is drafted during a pass depends on timing; the text does not."""
    config = replace(FIXED, pipeline=pipeline)
    results = [*map(texts_of, in_both_ways(requests(WARM, config, 3)))]
    assert results[0] == results[1] and all(len(ids) == 40 for ids in results[0])


@pytest.mark.nightly
@pytest.mark.parametrize("shape", [(2, 2, 1), (1,) * 8])
def test_texts_that_outgrow_the_cache_are_the_same(
    shape: tuple[int, ...], device_rounds: list[bool]
) -> None:
    """A KV cache that grows has another address: graphs that read it are dropped."""
    config = replace(FIXED, expansion=shape, speculation_length=len(shape))
    two_requests = requests(replace(WARM, max_new_tokens=300), config, 2)
    results = [*map(texts_of, in_both_ways(two_requests, context=700))]
    assert results[0] == results[1] and [len(ids) for ids in results[0]] == [300, 300]
    assert device_rounds.count(False) <= len(shape)


@pytest.mark.parametrize("num_requests", [1, 2])
def test_caches_hold_what_a_fresh_prefill_writes(
    num_requests: int, device_rounds: list[bool]
) -> None:
    loaded = models()
    with closing(Engine(loaded, on_device=True)) as engine:
        live = [engine.admit(engine.prepare(one)) for one in requests(WARM, FIXED, num_requests)]
        for one in live:
            list(engine.prefill(one))
        for _ in range(6):
            list(engine.round(live))
        for one in live:
            rows = [(loaded.llm, one.row)]
            for ssm in engine._drafting.ssm_pool.ssms.values():
                rows.append((ssm.model, ssm._states[one.sequence.run_id].row))
            for model, row in rows:
                _check_cache(model, row, one.sequence.tokens)
            engine.release(one)
    assert device_rounds == [True] * 6


def _check_cache(model: Any, row: int, tokens: list[int]) -> None:
    length, other = model.length(row), model.open_row()
    assert 4 < length < len(tokens) and model.pending(row) == 0
    model.forward([chain(other, tokens[:length])])
    model.commit(other, range(length))
    for part in model.arena._stacks:
        one, fresh = (part[:, model.place(r), :, :length] for r in (row, other))
        torch.testing.assert_close(one, fresh, atol=1e-4, rtol=1e-4)
    model.close_row(other)


@pytest.mark.loses_drafters
def test_a_failing_ssm_does_not_change_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = texts_of(events(reference_models(), requests(WARM, FIXED), on_device=False))
    loaded, calls = models(), []
    stack: Any = next(iter(loaded.ssms.values())).stack  # type: ignore[attr-defined]
    over = stack._forward.over

    def fail_late(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) > 10:
            raise RuntimeError("no memory")
        return over(*args, **kwargs)

    monkeypatch.setattr(stack._forward, "over", fail_late)
    first_events = events(loaded, requests(WARM, FIXED), on_device=True)
    assert texts_of(first_events) == expected
    notes = [note for e in first_events if isinstance(e, RoundCompleted) for note in e.notes]
    assert len(notes) == 3 and all("no memory" in note for note in notes)


def test_the_next_round_runs_while_events_are_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    begun_rounds, awaited = [], []
    graph = device_round._RoundGraph
    draft, finish = graph.launch_draft, graph.finish
    monkeypatch.setattr(graph, "launch_draft", lambda *of: (begun_rounds.append(1), draft(*of))[1])
    monkeypatch.setattr(graph, "finish", lambda *of: (awaited.append(1), finish(*of))[1])
    ahead = []
    with closing(Engine(models(), on_device=True)) as engine:
        for event in engine.generate_many(requests(WARM, FIXED, 2)):
            if isinstance(event, (Drafted, Combined, Verified)):
                ahead.append(len(begun_rounds) - len(awaited))
    assert set(ahead) == {0, 1} and sum(ahead) > 0.8 * len(ahead)
    assert len(begun_rounds) == len(awaited)


@pytest.mark.parametrize("config", [FIXED, SpeculationConfig.preset("autoregressive")])
def test_a_discarded_round_does_not_change_the_texts(config: SpeculationConfig) -> None:
    first, second, third = requests(WARM, config, 3)
    three_requests = (first, second, third)
    alone = [
        texts_of(events(reference_models(), [one], on_device=False))[0] for one in three_requests
    ]
    with closing(Engine(models(), on_device=True)) as engine:
        live = []
        for one in (first, second):
            live.append(engine.admit(engine.prepare(one)))
            list(engine.prefill(live[-1]))
        for _ in range(3):
            list(engine.round(live))
        engine.release(live.pop(0))
        live.append(engine.admit(engine.prepare(third)))
        list(engine.prefill(live[-1]))
        while running := [one for one in live if not one.sequence.finish_reason]:
            list(engine.round(running))
        results = [one.sequence.tokens[len(one.sequence.prompt_ids) :] for one in live]
        for one in live:
            engine.release(one)
        assert results == alone[1:]
        stopped = engine.generate(first)
        for _ in range(12):
            next(stopped)
        stopped.close()  # type: ignore[attr-defined]
        assert texts_of(list(engine.generate(second))) == [alone[1]]


class NoHostReads(TorchDispatchMode):
    """Refuses operations that a captured graph cannot hold."""

    NEVER = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "_to_copy")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name == "_to_copy":  # may change the dtype, but not the device
            assert (kwargs or {}).get("device") is None, func
        elif name != "lift_fresh" or args[0].dim():  # `lift_fresh` of a scalar is allowed
            assert name not in self.NEVER, func
        if name in ("index", "index_put", "index_put_"):
            indices = [index for index in args[1] if index is not None]
            assert all(index.dtype == torch.long for index in indices), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sampling", [COLD, WARM, TRUNCATED], ids=["greedy", "match", "truncated"])
@pytest.mark.parametrize("config", [FIXED, SpeculationConfig.preset("autoregressive")])
def test_a_pass_reads_nothing_on_the_host(sampling, config, monkeypatch):
    call, calls = CachedGraph.__call__, []

    def replay_without_reads(self: CachedGraph[Any]) -> Any:
        with NoHostReads():
            calls.append(self)
            return call(self)

    monkeypatch.setattr(CachedGraph, "__call__", replay_without_reads)
    result = texts_of(events(models(), requests(sampling, config, 2), on_device=True))
    assert [len(ids) for ids in result] == [sampling.max_new_tokens] * 2 and len(calls) > 10


def test_runs_end_at_the_same_token() -> None:
    check_both_ways(WARM, FIXED, 3, eos=(3, 17, 40, 52))
    check_both_ways(replace(COLD, stop=("w9", "w1 w")), FIXED, 3)
    check_both_ways(replace(WARM, max_new_tokens=3), FIXED, 2)
    check_both_ways(replace(WARM, max_new_tokens=1), FIXED, 1)


def test_runs_end_alike_where_the_context_is_full() -> None:
    check_both_ways(replace(WARM, max_new_tokens=500), FIXED, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("num_requests", [1, 3])
@pytest.mark.parametrize("sampling", [COLD, WARM, TRUNCATED], ids=["greedy", "match", "truncated"])
def test_captured_rounds_give_the_same_events(
    sampling: SamplingParams, num_requests: int, device_rounds: list[bool]
) -> None:
    check_both_ways(sampling, FIXED, num_requests, device="cuda")
    assert all(device_rounds[:8])


@pytest.mark.gpu
@pytest.mark.parametrize("config", [FIXED, SpeculationConfig.preset("autoregressive")])
def test_rounds_are_captured(config: SpeculationConfig) -> None:
    with closing(Engine(models(device="cuda"))) as engine:
        list(engine.generate(requests(WARM, config)[0]))
        rounds: Any = engine._device_round
        assert rounds._pool.captures
        assert any(one._verify.is_captured for one in rounds._graphs.values())
