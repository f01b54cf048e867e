"""The laws with `repetition_penalty`."""

from __future__ import annotations

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config import COMBINES, PIPELINES, PRESETS
from core.drafters import growth as growth_module
from core.engine import round as round_module
from core.trees import sampling as sampling_module
from core.trees.tree import TokenTree
from tests.fakes import loaded_modules, perturb, tiny_module
from tests.laws.law3_cases import EXACT, NOTICED, ONE_ROUND, deviation
from tests.laws.runs import (
    bundled_engine,
    ids_of,
    ids_of_many,
    module_of,
    outcomes,
    transformers_ids,
)

PENALTY = 1.4
SAMPLING = SamplingParams(max_new_tokens=24, repetition_penalty=PENALTY)
TEXTS = ("w3 w52 w31 w24 w31", " ".join(f"w{(5 * i) % 7 + 10}" for i in range(23)))
CONFIGS = {
    **{name: SpeculationConfig.preset(name) for name in PRESETS},
    **{rule: SpeculationConfig(combine=rule, expansion=(2, 1, 2)) for rule in COMBINES},
    **{f"pipeline {mode}": SpeculationConfig(pipeline=mode) for mode in PIPELINES},
    "best first": SpeculationConfig(draft="best_first"),
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    llm = tiny_module("llama", seed=1)
    return Engine(loaded_modules(llm, [perturb(llm, 0.12, seed=3), tiny_module("llama", seed=2)]))


@pytest.fixture(scope="module")
def plain_ids(engine: Engine) -> list[list[int]]:
    models = engine.models
    return [
        transformers_ids(
            module_of(models),
            models.tokenizer(text)["input_ids"],
            SAMPLING,
            repetition_penalty=PENALTY,
        )
        for text in TEXTS
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_law_1_the_text_is_that_of_transformers_with_the_same_penalty(
    engine: Engine, plain_ids: list[list[int]], name: str
) -> None:
    requests = [Request(text, SAMPLING, CONFIGS[name]) for text in TEXTS]
    assert ids_of_many(engine, requests) == plain_ids
    assert ids_of(engine, requests[0]) == plain_ids[0]


def test_a_batch_may_mix_penalties(engine: Engine) -> None:
    config = SpeculationConfig()
    plain = SamplingParams(max_new_tokens=24)
    alone = [ids_of(engine, Request(TEXTS[1], sampling, config)) for sampling in (SAMPLING, plain)]
    assert alone[0] != alone[1], "the penalty changes this text"
    requests = [Request(TEXTS[1], sampling, config) for sampling in (SAMPLING, plain)]
    assert ids_of_many(engine, requests) == alone


@pytest.mark.usefixtures("bundled")
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_penalized_drafts_are_accepted_more_often(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts without the penalty propose repeated tokens that the LLM does not choose."""
    sampling = SamplingParams(64, temperature, seed=5, repetition_penalty=1.3)
    request = Request("Once upon a time", sampling, SpeculationConfig.preset("specinfer"))

    def tokens_and_accepted() -> tuple[list[int], int]:
        (run,) = outcomes(bundled_engine().generate_many([request])).values()
        return run.token_ids, run.summary["num_accepted_tokens"]

    tokens, accepted = tokens_and_accepted()
    monkeypatch.setattr(growth_module, "penalize_repetition", lambda logits, *_: logits)
    same_tokens, fewer_accepted = tokens_and_accepted()
    assert tokens == same_tokens
    assert accepted > fewer_accepted


@pytest.mark.parametrize("rule", ["mss", "traversal"])
def test_control_a_penalty_that_ignores_the_path_is_noticed(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enumerated = ONE_ROUND["a repetition penalty in a tree"](verify=rule)
    assert deviation(enumerated, rounds=1, count=3) <= EXACT

    def by_text_alone(logits, sampling, tokens, tree: TokenTree):  # type: ignore[no-untyped-def]
        paths = [() for _ in range(len(tree) + 1)]
        penalty = sampling.repetition_penalty
        return sampling_module.penalize_repetition(logits, penalty, tokens, paths)

    monkeypatch.setattr(round_module, "penalize_tree", by_text_alone)
    assert deviation(enumerated, rounds=1, count=3) > NOTICED
