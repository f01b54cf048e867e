"""SmolLM2, which has nine heads, over three ranks."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, load_models
from core.models.loading.catalog import SMOLLM2
from tests.core.engines import ids_of_events
from tests.core.models.forked_ranks import forked_ranks
from tests.core.models.over_ranks import all_end, error_of, logits_of_trees, over_ranks, pids_of
from tests.smollm2 import chat_prompts, smollm2

pytestmark = pytest.mark.nightly
# With a given node limit, no costs are measured.
DRAFTS = SpeculationConfig(drafters=("ngram",), max_tree_nodes=12)
REQUESTS = [
    Request(prompt, SamplingParams(12, temperature, seed=5), DRAFTS, chat=True)
    for prompt in chat_prompts()[:2]
    for temperature in (0.0, 0.8)
]


@dataclass(frozen=True)
class OneProcess:
    models: LoadedModels
    logits: torch.Tensor
    texts: list[list[int]]


def texts_of(models: LoadedModels) -> list[list[int]]:
    engine = Engine(models)
    return [ids_of_events(engine.generate(request)) for request in REQUESTS]


@pytest.fixture(scope="module")
def one_process() -> OneProcess:
    smollm2()
    models = load_models(SMOLLM2, [], "float32", "cpu")
    llm: Any = models.llm
    return OneProcess(models, logits_of_trees(llm), texts_of(models))


@pytest.mark.parametrize("split", ["tp=3", "pp=3"])
def test_smollm2_over_three_ranks_has_the_texts_of_one_process(
    one_process: OneProcess, split: str
) -> None:
    with forked_ranks(), over_ranks(SMOLLM2, split) as model:
        assert error_of(logits_of_trees(model), one_process.logits) < 1e-4
        assert texts_of(replace(one_process.models, llm=model)) == one_process.texts
        pids = pids_of(model)
    assert all_end(pids, 1.0)
