"""The bundled pair, a little grown: its greedy text and what is accepted are the pair's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.grown.likeness import likeness
from bench.grown.module import grow_module
from bench.prompts import load_prompts, spread
from bench.theirs import load_module
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.events import RoundCompleted
from core.models.loading.catalog import bundled_llm, bundled_ssms
from core.models.loading.load import LoadedModels
from core.models.loading.tree_check import checked_model
from core.models.stacking import stack_alike
from tests.bench.growing import plan_of

PROMPTS = spread(load_prompts(), 4)[:3]
TOKENS = 20


pytestmark = pytest.mark.nightly  # writes grown models


@pytest.fixture(scope="module")
def grown_family(family: LoadedModels) -> LoadedModels:
    """Four times as wide; 9 layers for 8, 3 for 2."""
    made = {}
    every = {family.llm.info.name: (bundled_llm(), family.llm)}
    every |= {path.name: (path, family.ssms[path.name]) for path in bundled_ssms()}
    for name, (folder, like) in every.items():
        module = load_module(folder, torch.float32)
        large = grow_module(module, plan_of(module, 4), seed=1)
        info = replace(like.info, parameters=sum(p.numel() for p in large.parameters()))
        made[name] = checked_model(large, info)
    llm = made.pop(family.llm.info.name)
    stack_alike(list(made.values()))
    return replace(family, llm=llm, ssms={name: made[name] for name in family.ssms})


def rounds(models: LoadedModels, config: SpeculationConfig) -> list[tuple[int, ...]]:
    """The tokens of every round of every prompt."""
    engine = Engine(models)
    sampling = SamplingParams(max_new_tokens=TOKENS, ignore_eos=True)
    return [
        tuple(event.token_ids)
        for prompt in PROMPTS
        for event in engine.generate(Request(prompt.text, sampling, config))
        if isinstance(event, RoundCompleted)
    ]


@pytest.mark.parametrize(
    "config",
    [
        SpeculationConfig(expansion=(1, 1, 3, 1, 1), max_tree_nodes=24),
        SpeculationConfig(drafters=("first",), expansion=(1, 1, 1, 1), max_tree_nodes=4),
    ],
    ids=["union", "chain"],
)
def test_text_and_acceptance_are_the_small_pairs(
    family: LoadedModels, grown_family: LoadedModels, config: SpeculationConfig
) -> None:
    small, large = rounds(family, config), rounds(grown_family, config)
    assert small == large
    assert len(small) < TOKENS * len(PROMPTS)  # something was accepted
    assert grown_family.llm.info.parameters > 7 * family.llm.info.parameters


def test_the_same_tokens_are_likeliest_in_bfloat16(family: LoadedModels) -> None:
    """The bundled LLM four times as wide, over a text."""
    module = load_module(bundled_llm(), torch.bfloat16)
    large = grow_module(module, plan_of(module, 4))
    texts = [family.tokenizer(prompt.text)["input_ids"] for prompt in PROMPTS]
    found = likeness(module, large, texts)
    assert found.tokens > 60
    assert found.same == found.tokens
    assert found.difference <= 0.02 * found.largest
