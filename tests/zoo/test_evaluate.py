"""Held-out figures equal a plain computation; models of another tokenizer are refused."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from core.errors import ConfigError, ModelLoadError, VocabMismatchError
from tests.zoo.small import SMALL
from zoo.evaluate import HeldOut, as_json, evaluate_folder, measure, table, trained_models
from zoo.tokenizer import first_differing_id, open_tokenizer, train_tokenizer
from zoo.tokens import TokenStore
from zoo.train import TrainingRun, train_model
from zoo.trainer import new_model

CPU = torch.device("cpu")


@pytest.fixture
def trained_folder(ticking_run: Callable[..., TrainingRun], store: TokenStore) -> Path:
    train_model(SMALL.models[1], ticking_run(replace(SMALL, models=SMALL.models[1:2]), 3))
    (folder,) = trained_models(store.folder)
    return folder


@pytest.mark.parametrize("context", [7, 64, 256])
def test_measure_equals_token_by_token_prediction(store: TokenStore, context: int) -> None:
    model = new_model(SMALL.models[1], SMALL, store.manifest.vocab_size, seed=1)
    scores = measure(model, store, context)
    for name, ids in store.held_out.items():
        tokens = torch.from_numpy(ids.astype(np.int64))
        nats = 0.0
        for start in range(0, len(tokens) - 1, context):
            window = tokens[start : start + context + 1]
            logits = model(input_ids=window[None, :-1]).logits[0]
            picked = functional.log_softmax(logits, -1)[range(len(window) - 1), window[1:]]
            nats -= picked.sum().item()
        num_bytes = store.byte_lengths[ids[1:]].sum()
        assert scores[name].num_tokens == len(ids) - 1
        assert scores[name].loss == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
        assert scores[name].bits_per_byte == pytest.approx(nats / math.log(2) / num_bytes, rel=1e-5)


def test_the_loss_of_uniform_predictions_is_the_logarithm_of_the_vocabulary(
    store: TokenStore,
) -> None:
    model = new_model(SMALL.models[1], SMALL, store.manifest.vocab_size, seed=1)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    for score in measure(model, store, 64).values():
        assert score.loss == pytest.approx(math.log(store.manifest.vocab_size), rel=1e-5)


def test_measuring_leaves_the_model_in_its_mode(store: TokenStore) -> None:
    model = new_model(SMALL.models[1], SMALL, store.manifest.vocab_size, seed=1).train()
    measure(model, store, 64, max_tokens=65)
    assert model.training
    assert measure(model.eval(), store, 64, max_tokens=65)["code"].num_tokens == 64
    assert not model.training


def test_too_few_held_out_tokens_are_named(store: TokenStore) -> None:
    model = new_model(SMALL.models[1], SMALL, store.manifest.vocab_size, seed=1)
    message = "out is .*: a folder with at least two held-out tokens of text in every domain; .* 1$"
    with pytest.raises(ConfigError, match=message):
        measure(model.train(), store, 64, max_tokens=1)
    assert model.training


def test_a_context_beyond_the_model_is_refused(trained_folder: Path, store: TokenStore) -> None:
    with pytest.raises(ConfigError, match="context is 257: 1 to 256"):
        evaluate_folder(trained_folder, store, 257, CPU)
    with pytest.raises(ConfigError, match="context is 0: 1 to 256"):
        evaluate_folder(trained_folder, store, 0, CPU)


def test_another_tokenizer_is_refused_with_the_first_id_that_differs(
    trained_folder, store, tmp_path
):
    other = shutil.copytree(trained_folder, tmp_path / "other")
    train_tokenizer(["a quite different text"] * 9, 280, 64).save_pretrained(other)
    first = first_differing_id(open_tokenizer(other), open_tokenizer(trained_folder))
    assert first is not None and first > 256
    message = f"token id {first} is .* there and .* in the corpora"
    with pytest.raises(VocabMismatchError, match=message):
        evaluate_folder(other, store, 64, CPU)


def test_missing_and_incomplete_folders_are_refused(trained_folder, store, tmp_path):
    with pytest.raises(ConfigError, match=r"models is .*nothing.*config\.json"):
        evaluate_folder(tmp_path / "nothing", store, 64, CPU)
    weights = trained_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelLoadError, match="models is .*a folder that opens"):
        evaluate_folder(trained_folder, store, 64, CPU)


def test_scores_as_table_and_as_json() -> None:
    scores = {"llm": {"code": HeldOut(2.5, 1.25, 10)}, "ssm-code": {"code": HeldOut(3.0, 1.5, 10)}}
    head, unit, *rows = table(scores)
    assert head.split() == ["model", "code"] and unit.split() == ["nats/tok", "bits/byte"]
    assert [row.split() for row in rows] == [
        ["llm", "2.500", "1.250"],
        ["ssm-code", "3.000", "1.500"],
    ]
    assert len({len(line) for line in (head, unit, *rows)}) == 1
    assert as_json(scores, 64) == {
        "context": 64,
        "models": {
            "llm": {"code": {"loss": 2.5, "bits_per_byte": 1.25, "num_tokens": 10}},
            "ssm-code": {"code": {"loss": 3.0, "bits_per_byte": 1.5, "num_tokens": 10}},
        },
    }
