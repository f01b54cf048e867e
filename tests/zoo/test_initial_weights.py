"""Initial weights of models."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from core.errors import ConfigError
from core.models.forward import cache_argument
from tests.fakes import tiny_module
from tests.zoo.small import SMALL
from zoo.initial_weights import (
    InitialWeights,
    deepen,
    folders_by_name,
    initial_model,
    narrow_embeddings,
)
from zoo.models import open_model
from zoo.presets import ModelRecipe
from zoo.tokens import TokenStore
from zoo.train import TrainingRun, train_family, train_model
from zoo.trainer import new_model

LLM = SMALL.models[0]
DEEP = replace(LLM, num_layers=5)
MakeRun = Callable[..., TrainingRun]
IDS = torch.randint(512, (2, 40), generator=torch.Generator().manual_seed(0))


def fresh() -> Any:
    """Large random matrices, so that every layer changes the logits."""
    model = new_model(LLM, SMALL, 512, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
    return model.eval()


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    result: torch.Tensor = model.eval()(input_ids=IDS).logits
    return result


@pytest.mark.parametrize("num_layers", [2, 3, 4, 5])
def test_a_deeper_model_has_the_same_logits(num_layers: int) -> None:
    model = fresh()
    before = logits(model)
    deep = deepen(model, num_layers)
    assert len(deep.model.layers) == deep.config.num_hidden_layers == num_layers
    torch.testing.assert_close(logits(deep), before, atol=1e-4, rtol=0)


def test_a_new_layer_with_an_output_changes_the_logits() -> None:
    model = fresh()
    before = logits(model)
    deep = deepen(model, 3)
    new_layers = [one for one in deep.model.layers if not one.mlp.down_proj.weight.any()]
    assert len(new_layers) == 1
    with torch.no_grad():
        new_layers[0].mlp.down_proj.weight.normal_()
    assert (logits(deep) - before).abs().max() > 0.1


def test_a_deeper_models_logits_are_the_same_token_by_token() -> None:
    model = fresh()
    deep = deepen(model, 5).eval()
    at_once, parts = logits(deep), []
    cache = {cache_argument(deep): DynamicCache(config=deep.config)}
    with torch.no_grad():
        for position in range(IDS.shape[1]):
            one = deep(input_ids=IDS[:, position : position + 1], use_cache=True, **cache)
            parts.append(one.logits)
    torch.testing.assert_close(torch.cat(parts, 1), at_once, atol=1e-4, rtol=0)


def test_a_new_layer_has_the_type_of_the_layer_before_it() -> None:
    kinds = ["sliding_attention", "full_attention"]
    sizes = {"vocab_size": 512, "num_hidden_layers": 2, "layer_types": kinds}
    model = tiny_module(
        "qwen2", 0, torch.float32, use_sliding_window=True, sliding_window=8, **sizes
    )
    before = logits(model)
    deep = deepen(model, 5)
    assert deep.config.layer_types == [kinds[0]] * 3 + [kinds[1]] * 2
    torch.testing.assert_close(logits(deep), before, atol=1e-4, rtol=0)


def test_new_layers_learn() -> None:
    deep = deepen(fresh(), 4)
    deep(input_ids=IDS, labels=IDS).loss.backward()
    for layer in deep.model.layers:
        assert layer.self_attn.o_proj.weight.grad.abs().max() > 0
        assert layer.mlp.down_proj.weight.grad.abs().max() > 0


def test_fewer_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_layers is 1: 2 or more"):
        deepen(fresh(), 1)


def test_training_starts_from_a_folder(ticking_run: MakeRun) -> None:
    shallow = replace(SMALL, models=(LLM,))
    trained = train_model(LLM, ticking_run(shallow, 60))
    run = ticking_run(replace(SMALL, models=(DEEP,)), 1)
    folder = run.store.folder / "models" / "llm"
    moved = folder.rename(run.store.folder / "llm")
    shutil.rmtree(run.store.folder / "runs")
    deep = train_family(run, {"llm": InitialWeights(moved)})["llm"]
    assert len(open_model(folder).model.layers) == 5
    # The deep model made one step from the shallow model's weights.
    assert deep.held_out["code"].loss == pytest.approx(trained.held_out["code"].loss, abs=0.1)
    again = ticking_run(replace(SMALL, models=(DEEP,)), 2, store=run.store)
    with pytest.raises(ConfigError, match="a checkpoint of the same start"):
        train_model(DEEP, again, InitialWeights(folder))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(LLM, hidden_size=96), "hidden_size 64': hidden_size 96"),
        (replace(LLM, intermediate_size=88), "intermediate_size 176': intermediate_size 88"),
        (replace(LLM, head_dim=16), "num_attention_heads 2': num_attention_heads 4"),
    ],
)
def test_a_folder_of_other_sizes_is_refused(ticking_run: MakeRun, other: ModelRecipe, message: str):
    run = ticking_run(replace(SMALL, models=(LLM,)), 1)
    train_model(LLM, run)
    with pytest.raises(ConfigError, match=message):
        initial_model(
            other, SMALL, run.store, 0, InitialWeights(run.store.folder / "models" / "llm")
        )


def test_start_folders_are_assigned_by_their_names(store: TokenStore) -> None:
    assert folders_by_name([Path("elsewhere/llm")], SMALL.models) == {"llm": Path("elsewhere/llm")}
    with pytest.raises(ConfigError, match="start is 'mine': folders of these names: llm, ssm-code"):
        folders_by_name([Path("mine")], SMALL.models)


def test_narrowed_embeddings_have_the_least_error_of_their_width() -> None:
    wide = torch.randn(300, 24, generator=torch.Generator().manual_seed(0))
    wide = wide * torch.linspace(3.0, 0.1, 24)
    kept = narrow_embeddings(wide, torch.zeros(300, 8))
    error = torch.linalg.matrix_norm(wide @ wide.T - kept @ kept.T)
    bound = (
        torch.linalg.svdvals(wide)[8:].pow(2).norm()
    )  # the least possible error of eight columns
    assert error.item() == pytest.approx(bound.item(), rel=1e-3)
    first = wide[:, :8]
    assert error < torch.linalg.matrix_norm(wide @ wide.T - first @ first.T)


def test_embeddings_of_a_narrower_model_are_kept_completely() -> None:
    noise = torch.Generator().manual_seed(0)
    small, fresh = torch.randn(50, 6, generator=noise), torch.randn(50, 8, generator=noise)
    result = narrow_embeddings(small, fresh)
    assert torch.equal(result[:, 6:], fresh[:, 6:])
    torch.testing.assert_close(result[:, :6] @ result[:, :6].T, small @ small.T)


def test_a_new_model_begins_with_the_embeddings_of_a_folder(ticking_run: MakeRun) -> None:
    run = ticking_run(replace(SMALL, models=(LLM,)), 20)
    train_model(LLM, run)
    folder = run.store.folder / "models" / "llm"
    ssm = SMALL.models[1]
    model = initial_model(ssm, SMALL, run.store, 0, InitialWeights(embeddings=folder))
    wide = open_model(folder).get_input_embeddings().weight
    result, plain = model.get_input_embeddings().weight, initial_model(ssm, SMALL, run.store, 0)
    assert model.lm_head.weight is result
    assert torch.equal(result, narrow_embeddings(wide, plain.get_input_embeddings().weight))
    rest, fresh = model.model.layers.state_dict(), plain.model.layers.state_dict()
    assert all(torch.equal(rest[name], fresh[name]) for name in fresh)


def test_a_checkpoint_of_other_embeddings_is_refused(ticking_run: MakeRun) -> None:
    ssm = SMALL.models[1]
    run = ticking_run(replace(SMALL, models=(LLM, ssm)), 2)
    train_model(LLM, run)
    train_model(ssm, run)
    embeddings = InitialWeights(embeddings=run.store.folder / "models" / "llm")
    again = ticking_run(replace(SMALL, models=(LLM, ssm)), 4, store=run.store)
    with pytest.raises(ConfigError, match="a checkpoint of the same embeddings"):
        train_model(ssm, again, embeddings)
    shutil.rmtree(run.store.folder / "runs")
    train_model(ssm, again, embeddings)
    longer = ticking_run(replace(SMALL, models=(LLM, ssm)), 6, store=run.store)
    with pytest.raises(ConfigError, match="a checkpoint of the same embeddings"):
        train_model(ssm, longer)
