"""A grown model has the small model's logits. Its weights are dense where they need not be zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from bench.grown import module as weights
from bench.grown.manifest import check_likeness, likeness
from bench.grown.module import grow_module, model_shape
from bench.grown.shape import GrowthPlan
from core.errors import UnsupportedModelError
from core.models.loading.tree_check import checked_model, tree_error
from tests.fakes import info_of, tiny_module

LARGE_EPS = {"rms_norm_eps": 0.1}
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    ("llama", {"attention_bias": True, "mlp_bias": True, **LARGE_EPS}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}}),
    ("mistral", {}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen2-sliding", {}),
    ("qwen3", LARGE_EPS),
    ("qwen3", {"head_dim": 16, "attention_bias": True, **LARGE_EPS}),
]


def plan_of(module: Any, factor: int = 4, layers: int = 1, ffn: int = 40) -> GrowthPlan:
    """A plan that multiplies the hidden size by `factor`, and adds `layers` and `ffn`."""
    small = model_shape(module)
    large = replace(
        small,
        hidden=small.hidden * factor,
        heads=small.heads * factor,
        kv_heads=small.kv_heads * factor,
        ffn=small.ffn + ffn,
        layers=small.layers + layers,
    )
    return GrowthPlan(small, large)


def random_texts(module: Any, count: int = 2, length: int = 40) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    shape = (count, length)
    return torch.randint(module.config.vocab_size, shape, generator=generator).tolist()


def small_module(family: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A module with random biases and norm weights, so that they change the logits."""
    module = tiny_module(family, seed=3, dtype=dtype, **changes)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim == 1:
                noise = torch.randn(parameter.shape, generator=generator)
                scale = 0.3 if "bias" in name else 0.15
                parameter.copy_(parameter + (scale * noise).to(dtype))
    return module


@pytest.mark.parametrize("factor", [1, 2, 4, 16])
@pytest.mark.parametrize(("family", "changes"), KINDS)
def test_grown_logits_are_those_of_the_small_model(
    family: str, changes: dict[str, Any], factor: int
) -> None:
    small = small_module(family, **changes)
    large = grow_module(small, plan_of(small, factor, layers=2, ffn=32), seed=7)
    result = likeness(small, large, random_texts(small))
    assert result.difference < 1e-3
    assert result.same == result.tokens == 80
    assert result.largest > 1.0  # the logits are not all near 0


@pytest.mark.parametrize(("family", "changes"), KINDS)
def test_in_half_precision_powers_of_four_are_exact(family: str, changes: dict[str, Any]) -> None:
    """A tolerance is needed: the grown model adds in another order than the small model."""
    small = small_module(family, torch.bfloat16, **changes)
    large = grow_module(small, plan_of(small, 4, layers=1))
    assert all(p.dtype == torch.bfloat16 for p in large.parameters())
    result = likeness(small, large, random_texts(small))
    assert result.difference <= 0.02 * result.largest
    assert result.same >= 0.95 * result.tokens


@pytest.mark.parametrize(("family", "changes"), KINDS)
def test_a_grown_model_takes_the_lean_pass_and_its_trees_are_exact(
    family: str, changes: dict[str, Any]
) -> None:
    small = small_module(family, **changes)
    large = grow_module(small, plan_of(small))
    model = checked_model(large, info_of(large, "tiny-grown"))
    assert model.lean_weights is not None
    assert tree_error(model, small) < 1e-4  # against the small model's plain passes
    assert model.info.parameters == plan_of(small).large.parameters


def test_growing_does_not_change_the_small_model() -> None:
    small = small_module("llama", tie_word_embeddings=True)
    before = {name: p.clone() for name, p in small.named_parameters()}
    shape = model_shape(small)
    large = grow_module(small, plan_of(small), seed=1)
    assert all(torch.equal(p, before[name]) for name, p in small.named_parameters())
    assert model_shape(small) == shape
    assert large.lm_head.weight is large.model.embed_tokens.weight
    stored = {p.untyped_storage().data_ptr() for p in small.parameters()}
    assert not stored & {p.untyped_storage().data_ptr() for p in large.parameters()}


def test_the_seed_determines_the_random_weights() -> None:
    small = small_module("llama")
    one, same, other = (grow_module(small, plan_of(small), seed) for seed in (1, 1, 2))
    query = "model.layers.2.self_attn.q_proj.weight"
    first, equal, different = (dict(m.named_parameters())[query] for m in (one, same, other))
    assert torch.equal(first, equal) and not torch.equal(first, different)
    assert likeness(one, other, random_texts(small)).difference < 1e-3


def test_weights_that_need_not_be_zero_are_dense() -> None:
    small = small_module("llama", attention_bias=True, mlp_bias=True)
    large = grow_module(small, plan_of(small, 4, layers=1))
    hidden, spread = small.config.hidden_size, small.config.initializer_range
    for name, parameter in large.named_parameters():
        owner = name.split(".")[-2]
        if owner in weights.RANDOM:
            assert int((parameter == 0).sum()) <= 2, name
            assert 0.5 * spread < float(parameter.std()) < 2 * spread, name
        elif owner == "embed_tokens":
            assert not parameter[:, hidden:].any() and parameter[:, :hidden].all()
        elif owner in weights.ZERO:
            new_layer = name.startswith("model.layers.2.")
            assert not parameter[0 if new_layer else hidden :].any(), name


@pytest.mark.parametrize(
    ("family", "changes"), [("gpt2", {}), ("phi3", {}), ("opt", {}), ("gemma2", {})]
)
def test_other_architectures_are_refused(family: str, changes: dict[str, Any]) -> None:
    module = tiny_module(family, dtype=torch.float32, **changes)
    refusal = "architecture .* cannot be grown; allowed: LlamaForCausalLM"
    with pytest.raises(UnsupportedModelError, match=refusal):
        model_shape(module)


def test_further_parameters_are_refused() -> None:
    module = tiny_module("llama", dtype=torch.float32)
    module.model.layers[0].self_attn.q_proj.lora = torch.nn.Linear(2, 2)
    with pytest.raises(UnsupportedModelError, match=r"parameter model\.layers\.0\.self_attn"):
        model_shape(module)


# -- negative controls: each error makes the comparison fail --


def assert_refused(small: Any, large: Any, difference: str = "") -> None:
    """`difference`: how the printed difference begins."""
    result = likeness(small, large, random_texts(small))
    message = f"grown differs from the small model by {difference}"
    with pytest.raises(UnsupportedModelError, match=message):
        check_likeness(result, torch.float32, "tiny")


def test_control_a_wrong_correction_of_the_norms_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    small = small_module("llama")
    monkeypatch.setattr(GrowthPlan, "norm_scale", property(lambda plan: 0.99 * plan.factor**-0.5))
    assert_refused(small, grow_module(small, plan_of(small)))


def test_control_an_uncorrected_eps_is_caught() -> None:
    small = small_module("llama", **LARGE_EPS)
    large = grow_module(small, plan_of(small))
    for module in large.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = small.config.rms_norm_eps
    assert_refused(small, large)


@pytest.mark.parametrize("owner", ["o_proj", "down_proj", "embed_tokens"])
def test_control_random_values_in_place_of_zeros_are_caught(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "ZERO", weights.ZERO - {owner})
    small = small_module("llama")
    assert_refused(small, grow_module(small, plan_of(small)))


@pytest.mark.parametrize("grown", [True, False])
def test_control_a_nan_weight_of_either_model_is_caught(grown: bool) -> None:
    small = small_module("llama")
    large = grow_module(small, plan_of(small))
    with torch.no_grad():
        (large if grown else small).model.norm.weight[0] = float("nan")
    assert_refused(small, large, "inf")
