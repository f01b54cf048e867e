"""Planned shapes, and the number of parameters of a shape."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.grown.module import meta_module, model_shape
from bench.grown.shape import TOLERANCE, ModelShape, plan_growth
from core.errors import ConfigError
from tests.fakes import tiny_module

LLM = ModelShape(256, 704, 8, 4, 4, 64, 4096, tied=True)
SSM = ModelShape(128, 352, 2, 2, 2, 64, 4096, tied=True)
QWEN = ModelShape(896, 4864, 24, 14, 2, 64, 151_936, tied=True, qkv_bias=True)
BILLION = 10**9


@pytest.mark.parametrize(
    ("small", "params", "hidden"),
    [
        (LLM, 9_000_000, 256),
        (LLM, 30_000_000, 256),
        (LLM, 500_000_000, 1024),
        (LLM, BILLION, 4096),
        (LLM, 7 * BILLION, 4096),
        (LLM, 13 * BILLION, 4096),
        (SSM, 5_000_000, 512),
        (SSM, 10_000_000, 512),
        (SSM, 68_000_000, 2048),
        (QWEN, 7 * BILLION, 3584),
    ],
)
def test_a_plan_is_near_the_requested_size_and_exact(
    small: ModelShape, params: int, hidden: int
) -> None:
    plan = plan_growth(small, params)
    large = plan.large
    assert abs(large.parameters / params - 1) <= TOLERANCE
    assert large.hidden == hidden and plan.exact
    assert plan.norm_scale**2 * plan.factor == 1.0
    assert large.head_size == small.head_size
    assert large.heads / large.kv_heads == small.heads / small.kv_heads
    assert large.heads * small.hidden == small.heads * large.hidden
    assert large.ffn >= small.ffn
    stays_shallow = small is SSM and hidden == 2048
    assert large.layers == 2 if stays_shallow else small.layers <= large.layers <= 48


@pytest.mark.parametrize("params", range(8_000_000, 2_000_000_000, 97_000_003))
def test_every_size_has_a_plan(params: int) -> None:
    assert abs(plan_growth(LLM, params).large.parameters / params - 1) <= TOLERANCE


def test_another_factor_is_taken_where_no_power_of_four_fits() -> None:
    """With four times the hidden size, the model would have too many parameters."""
    large_vocabulary = ModelShape(64, 64, 1, 2, 2, 32, 1_000_000, tied=True)
    plan = plan_growth(large_vocabulary, 130_000_000)
    assert plan.factor == 2 and not plan.exact


@pytest.mark.parametrize(
    ("small", "params", "message"),
    [
        (LLM, LLM.parameters, f"ssm-params is {LLM.parameters}: more than the {LLM.parameters}"),
        (SSM, 10**15, "params is .*: a size within 10% of what"),
    ],
)
def test_what_cannot_be_grown_is_refused(small: ModelShape, params: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_growth(small, params, "ssm-params")


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
        ("mistral", {}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 16}),
    ],
)
def test_parameters_are_those_of_the_module(family: str, changes: dict[str, Any]) -> None:
    module = tiny_module(family, dtype=torch.float32, **changes)
    small = model_shape(module)
    assert small.parameters == sum(p.numel() for p in module.parameters())
    plan = plan_growth(small, 20 * small.parameters)
    large = meta_module(module, plan, torch.float32)
    assert plan.large.parameters == sum(p.numel() for p in large.parameters())
    assert model_shape(large) == plan.large
