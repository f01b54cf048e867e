"""SmolLM2, whose nine heads go to three ranks."""

from dataclasses import replace
from typing import Any

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.models.loading.catalog import SMOLLM2
from tests.core.engines import ids_of_events
from tests.core.models.over_ranks import all_end, error_of, logits_of_trees, over_ranks, pids_of
from tests.smollm2 import chat_prompts, smollm2

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("split", ["tp=3", "pp=3"])
def test_smollm2_over_three(split: str) -> None:
    smollm2()
    models = load_models(SMOLLM2, [], "float32", "cpu")
    requests = [
        Request(prompt, SamplingParams(12, temperature, seed=5), chat=True)
        for prompt in chat_prompts()[:2]
        for temperature in (0.0, 0.8)
    ]
    requests = [replace(r, speculation=SpeculationConfig(drafters=("ngram",))) for r in requests]
    one: Any = models.llm
    logits, texts = (
        logits_of_trees(one),
        [ids_of_events(Engine(models).generate(r)) for r in requests],
    )
    with over_ranks(SMOLLM2, split) as model:
        assert error_of(logits_of_trees(model), logits) < 1e-4
        engine = Engine(replace(models, llm=model))
        assert [ids_of_events(engine.generate(r)) for r in requests] == texts
        pids = pids_of(model)
    assert all_end(pids, 1.0)
