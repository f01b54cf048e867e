"""An SSM whose LM head covers only the first token ids: logits, stacking, refusals, texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.errors import ModelLoadError
from core.events import Combined, RoundCompleted
from core.models.protocol import chain
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.fakes import VOCAB, tiny_module, word_tokenizer

SIZE = 20
IDS = (3, VOCAB - 1, 7, SIZE)


def save(folder: Path, family: str = "llama", size: object = SIZE, **changes: Any) -> Path:
    module = tiny_module(family, seed=2, dtype=torch.float32, **changes)
    if size is not None:
        module.config.draft_vocab_size = size
    module.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    row = model.open_row()
    (result,) = model.forward([chain(row, IDS)])
    model.close_row(row)
    return torch.as_tensor(result)


@pytest.fixture
def llm(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "llm")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_logits_are_the_first_of_the_full_heads(
    llm: Path, tmp_path: Path, family: str, tied: bool
) -> None:
    full = save(tmp_path / "full", family, None, tie_word_embeddings=tied)
    narrow = save(tmp_path / "narrow", family, SIZE, tie_word_embeddings=tied)
    models = load_models(str(llm), [str(full), str(narrow)])
    ours, theirs = models.ssms["narrow"], models.ssms["full"]
    assert (ours.vocab_size, ours.num_embeddings) == (SIZE, VOCAB)
    torch.testing.assert_close(logits(ours), logits(theirs)[:, :SIZE])


@pytest.mark.parametrize("tied", [False, True])
def test_narrow_heads_are_stacked(llm: Path, tmp_path: Path, tied: bool) -> None:
    one = save(tmp_path / "one", tie_word_embeddings=tied)
    other = save(tmp_path / "other", tie_word_embeddings=tied)
    alone = logits(load_models(str(llm), [str(one)]).ssms["one"])
    models = load_models(str(llm), [str(one), str(other)])
    first: Any = models.ssms["one"]
    assert first.stack is not None
    torch.testing.assert_close(logits(first), alone)


def test_a_model_loaded_as_the_llm_has_its_full_head(tmp_path: Path) -> None:
    models = load_models(str(save(tmp_path / "narrow")), [])
    assert models.llm.vocab_size == VOCAB


@pytest.mark.parametrize("size", [0, VOCAB + 1, "many", True])
def test_a_size_that_no_head_has_is_refused(llm: Path, tmp_path: Path, size: object) -> None:
    message = refusal_of(ModelLoadError, llm, save(tmp_path / "narrow", size=size))
    assert f"draft_vocab_size is {size!r}: it must be a whole number from 1 to {VOCAB}" in message


@pytest.mark.parametrize("draft", ["topk", "best_first", "coupled", "sampled"])
def test_texts_may_have_tokens_that_the_ssm_lacks(llm: Path, tmp_path: Path, draft: str) -> None:
    names = [str(save(tmp_path / name)) for name in ("one", "two")]
    engine = Engine(load_models(str(llm), names))
    warm = draft in ("coupled", "sampled")
    sampling = SamplingParams(40, temperature=0.9 if warm else 0.0, seed=1)
    verify = {"coupled": "match", "sampled": "mss"}.get(draft, "greedy")
    rule = SpeculationConfig(draft=draft, verify=verify, expansion=(2, 2), max_tree_nodes="uncut")
    texts, drafted = [], []
    for speculation in (SpeculationConfig.preset("autoregressive", sampling.temperature), rule):
        request = Request("w3 w7", sampling, speculation, prompt_token_ids=IDS)
        events = list(engine.generate(request))
        rounds = [each for each in events if isinstance(each, RoundCompleted)]
        texts.append([token for each in rounds for token in each.token_ids])
        trees = [each for each in events if isinstance(each, Combined)]
        drafted = [token for each in trees for token in each.token_ids]
    assert drafted and max(drafted) < SIZE
    if draft != "sampled":
        assert texts[0] == texts[1]
