"""SSMs for a chat LLM: its texts in batches, what its students learn from them, their folders."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import zoo.__main__ as command
import zoo.batch_generation as batch_generation
from core import load_models
from core.errors import ConfigError
from core.models.lean import map_tensors
from core.models.loading.load import LoadedModels
from core.models.protocol import chain
from tests.core.models.folders import save_tiny_model
from tests.fakes import VOCAB, tiny_module, word_tokenizer
from tests.zoo.small import TickingClock
from zoo.batch_generation import TOP, BatchGenerator, Generated, Stop
from zoo.chat_family import FAMILY, FamilyPlan, accuracy, kind_weights, make_family
from zoo.chat_prompts import chat_prompts
from zoo.own_answers import (
    OWN_QUESTIONS,
    Lengths,
    Questions,
    TrainingTokens,
    own_answers,
    training_tokens,
)
from zoo.shared_folders import EMBEDDING, write_family
from zoo.shared_students import (
    Batch,
    Shape,
    SharedTrainer,
    SoftCrossEntropy,
    hidden_states,
    member,
    new_students,
)

TEMPLATE = (
    "{% for m in messages %}w1 {{ m.content }} w2{% endfor %}"
    "{% if add_generation_prompt %} w3{% endif %}"
)
END = 9
SHAPE = Shape(layers=2, hidden=32, intermediate=48, head_size=8, head=40)
QUESTIONS = {"facts": ["w4", "w5 w6"], "code": ["w7 w8 w10"]}
PROMPTS = ([5, 6, 7], [8, 11, 12, 13, 14, 15, 16], [3])


def llm_folder(folder: Path, **changes: Any) -> Path:
    module = tiny_module("llama", seed=1, dtype=torch.float32, **changes)
    module.generation_config.eos_token_id = END
    module.save_pretrained(folder)
    tokenizer = word_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def models(tmp_path: Path) -> LoadedModels:
    return load_models(str(llm_folder(tmp_path / "llm")), [], "float32", "cpu")


def written(texts: Generated) -> list[list[int]]:
    return list(texts.new_tokens())


def module_of(models: LoadedModels, tmp_path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tmp_path / "llm", dtype=torch.float32)


# -- generation --


@pytest.mark.parametrize("prefill", [2, 512])
def test_a_batch_is_written_as_transformers_writes_each_text(
    models: LoadedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefill: int
) -> None:
    """Greedily, past a rounded number of slots, from prompts of different lengths, to the end
    token where there is one."""
    monkeypatch.setattr(batch_generation, "PREFILL_TEXTS", prefill)
    texts = BatchGenerator(models).generate(PROMPTS, [0.0] * 3, Stop(80))
    module, expected = module_of(models, tmp_path), []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        found = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=80, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        expected.append(found[0, len(prompt) :].tolist())
    assert written(texts) == expected
    assert {len(tokens) for tokens in expected} != {80}, "one ends by itself"


def test_kept_probabilities_are_those_of_each_next_token(
    models: LoadedModels, tmp_path: Path
) -> None:
    texts = BatchGenerator(models).generate(PROMPTS, [1.0, 0.0, 0.6], Stop(12))
    tokens = training_tokens(texts, [0, 1, 2])
    module = module_of(models, tmp_path)
    bounds = [*tokens.starts.tolist(), len(tokens.ids)]
    for number, prompt in enumerate(PROMPTS):
        at = slice(bounds[number], bounds[number + 1])
        ids = tokens.ids[at].long()
        assert ids.tolist() == [*prompt, *written(texts)[number]]
        assert tokens.kinds[at].tolist() == [number] * len(ids)
        p = module(ids[None]).logits[0].softmax(-1)
        p[: len(prompt) - 1] = 0  # nothing is learned of a prompt
        p[-1] = 0  # nor behind the end
        top = p.gather(1, tokens.top_ids[at].long())
        torch.testing.assert_close(tokens.top_p[at].float(), top, atol=1e-3, rtol=1e-3)
        answered = slice(len(prompt) - 1, len(ids) - 1)
        largest = p.topk(TOP).values[answered]
        torch.testing.assert_close(tokens.top_p[at].float()[answered], largest, atol=1e-3, rtol=0)


def test_temperatures_are_each_texts_own(models: LoadedModels) -> None:
    def texts(seed: int, temperatures: list[float]) -> list[list[int]]:
        generator = BatchGenerator(models, seed)
        return written(generator.generate([PROMPTS[0]] * 4, temperatures, Stop(12)))

    mixed = texts(0, [0.0, 1.0, 1.0, 0.0])
    assert mixed[0] == mixed[3] and mixed[1] != mixed[2]
    assert texts(0, [0.0, 1.0, 1.0, 0.0]) == mixed != texts(1, [0.0, 1.0, 1.0, 0.0])


def test_a_batch_ends_with_most_of_its_texts_or_at_its_deadline(models: LoadedModels) -> None:
    clock = TickingClock()
    generator = BatchGenerator(models, clock=clock)
    whole = generator.generate(PROMPTS, [0.0] * 3, Stop(80))
    late = generator.generate(PROMPTS, [0.0] * 3, Stop(80, deadline=clock.now))
    assert late.top_p.shape[1] == batch_generation.CHECKED_EVERY
    assert written(late) == [tokens[: batch_generation.CHECKED_EVERY] for tokens in written(whole)]
    some = generator.generate(PROMPTS, [0.0] * 3, Stop(80, ended=0.3))
    assert late.ids.shape[1] <= some.ids.shape[1] < whole.ids.shape[1]


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    module = tiny_module("gpt2", dtype=torch.float32)
    module.save_pretrained(tmp_path / "other")
    word_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(ConfigError, match="llm is 'other': a Llama-like model"):
        BatchGenerator(load_models(str(tmp_path / "other"), [], "float32", "cpu"))
