"""Law 5: after every commit, the cached keys and values of all models equal those of a prefill."""

from functools import cache

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.engine.round_state import ActiveRequest
from core.models.hf_model import HfModel
from core.models.protocol import chain
from tests.fakes import loaded_modules, perturb, tiny_module, with_narrow_head
from tests.lanes import PunctualLane
from tests.laws.runs import bundled_engine, prompts

pytestmark = pytest.mark.usefixtures("bundled")
CLOSE = 1e-4
# `max_tree_nodes` is never `auto`: that budget depends on the machine's load.
CONFIGS = {
    "topk": SpeculationConfig(expansion=(2, 2, 1), speculation_length=4, max_tree_nodes="uncut"),
    "coupled": SpeculationConfig(draft="coupled", expansion=(3, 1), max_tree_nodes=24),
    "sampled": SpeculationConfig(
        draft="sampled", expansion=(2, 1, 2), speculation_length=3, max_tree_nodes="uncut"
    ),
    "iid": SpeculationConfig(
        draft="sampled_iid", expansion=(3, 2), speculation_length=2, max_tree_nodes="uncut"
    ),
    "best_first": SpeculationConfig(draft="best_first", expansion=(3,), max_tree_nodes=18),
    "ahead": SpeculationConfig(
        expansion=(2, 1, 1), speculation_length=4, pipeline="ahead", max_tree_nodes="uncut"
    ),
    "with ngram": SpeculationConfig(
        drafters=("ngram", "all"), expansion=(2, 1), max_tree_nodes="uncut"
    ),
    "with lookups": SpeculationConfig(
        drafters=("suffix", "table", "all"), expansion=(2, 1), max_tree_nodes="uncut"
    ),
    # Each SSM reads the fused chain and a branch of its own.
    "fused": SpeculationConfig(draft="fused", expansion=(1,) * 4, max_tree_nodes=12),
    # An SSM that was not routed reads the missed tokens when it is routed again.
    "routed": SpeculationConfig(
        routing="credit", routed_drafters=1, expansion=(2, 1), max_tree_nodes="uncut"
    ),
}


@cache
def tiny_engine(family: str) -> Engine:
    llm = tiny_module(family, seed=1, dtype=torch.float32)
    close = perturb(llm, 0.05, seed=3)
    other = with_narrow_head(tiny_module(family, seed=2, dtype=torch.float32))
    return Engine(loaded_modules(llm, [close, other]))


def kv_of(model: HfModel, row: int) -> torch.Tensor:
    length = model.length(row)
    place = model.place(row)
    stored = [part[place, :, :length] for layer in model.arena._layers for part in layer]
    return torch.cat([part.flatten() for part in stored])


def deviation(model: HfModel, row: int, tokens: list[int]) -> float:
    length = model.length(row)
    fresh = model.open_row()
    try:
        model.forward([chain(fresh, tokens[:length], last_only=True)])
        model.commit(fresh, range(length))
        expected = kv_of(model, fresh)
        got = kv_of(model, row)
        return float((got - expected).abs().max() / expected.abs().max())
    finally:
        model.close_row(fresh)


def check_row(model: HfModel, row: int, tokens: list[int]) -> None:
    result = deviation(model, row, tokens)
    assert result <= CLOSE, f"the cache of {model.info.name} deviates by {result:.2g}"


def check(engine: Engine, live: ActiveRequest) -> tuple[int, int]:
    num_ssms = ready = 0
    tokens = live.sequence.tokens
    assert engine.models.llm.length(live.row) == len(tokens) - 1, "all but the root"
    check_row(engine.models.llm, live.row, tokens)
    for index in live.open_drafters:
        name = live.sequence.speculation.drafters[index]
        if name in engine.models.ssms:
            model = engine.models.ssms[name]
            state = engine._drafting.ssm_pool.ssms[name]._states[live.sequence.run_id]
            row = state.row
            # With a draft made ahead (`ready`), the root and nodes below the root have been fed.
            assert model.pending(row) == len(state.pending) == 0 or state.ready is not None
            assert model.length(row) < len(tokens) + (state.ready is not None)
            check_row(model, row, tokens)
            num_ssms += 1
            ready += state.ready is not None
    return num_ssms, ready


def run_checked(engine: Engine, requests: list[Request], max_rounds: int) -> list[ActiveRequest]:
    num_checks = num_ssm_checks = ready = 0
    lives = [engine.admit(engine.prepare(request)) for request in requests]
    lane, engine._draft_thread = engine._draft_thread, PunctualLane()
    try:
        for live in lives:
            for _ in engine.prefill(live):
                pass
        for _ in range(max_rounds):
            if running := [live for live in lives if not live.sequence.finish_reason]:
                list(engine.round(running))
                for live in running:
                    if not live.sequence.finish_reason:
                        num_ssms, num_ready = check(engine, live)
                        num_checks += 1
                        num_ssm_checks += num_ssms
                        ready += num_ready
    finally:
        engine._draft_thread = lane
        for live in lives:
            engine.release(live)
    assert num_ssm_checks >= num_checks > 0
    assert bool(ready) == (requests[0].speculation.pipeline == "ahead")
    return lives


def requests_of(name: str, texts: tuple[str, ...]) -> list[Request]:
    greedy = name in ("topk", "with ngram", "with lookups", "ahead")
    sampling = SamplingParams(24, temperature=0.0 if greedy else 0.8, seed=5)
    return [Request(text, sampling, CONFIGS[name]) for text in texts]


@pytest.mark.parametrize("name", CONFIGS)
def test_caches_of_the_bundled_models_are_those_of_a_prefill(name: str) -> None:
    code = prompts(17)[15:]  # with these texts, guesses of drafting ahead come true
    lives = run_checked(bundled_engine(), requests_of(name, code), max_rounds=6)
    assert sum(live.sequence.fold.stats(0).num_accepted_tokens for live in lives) > 0


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gpt2", "opt", "gpt_neox", "qwen3"])
def test_caches_of_every_family_are_those_of_a_prefill(
    family: str, monkeypatch: pytest.MonkeyPatch
):
    # Random models are never certain enough to draft ahead.
    monkeypatch.setattr("core.drafters.base.MIN_OUTCOME_PROBABILITY", 0.0)
    monkeypatch.setattr("core.drafters.ahead.OUTCOMES", 60)
    texts = ("w3 w9 w27 w17 w51 w25 w11 w33 w2 w6", "w5 w25")
    for name in ("topk", "sampled", "ahead"):
        lives = run_checked(tiny_engine(family), requests_of(name, texts), max_rounds=6)
        assert sum(live.sequence.fold.stats(0).num_accepted_tokens for live in lives) > 0


def test_control_a_wrong_path_is_noticed() -> None:
    engine = tiny_engine("mistral")
    model = engine.models.llm
    row = model.open_row()
    try:
        model.forward([chain(row, [3, 9, 27])])
        model.commit(row, [0, 1])
        assert deviation(model, row, [3, 9]) <= CLOSE
        assert deviation(model, row, [3, 10]) > CLOSE
    finally:
        model.close_row(row)


@pytest.mark.parametrize("name", ["tiny", "ssm-0", "ssm-1"])
def test_control_a_commit_that_moves_nothing_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny_engine("mistral")
    model = engine.models.ssms.get(name, engine.models.llm)
    monkeypatch.setattr(model.arena, "compact", lambda row, start, slots: None)
    with pytest.raises(AssertionError, match=f"the cache of {name} deviates by "):
        run_checked(engine, requests_of("sampled", ("w3 w9 w27", "w5 w25")), max_rounds=8)
