"""The pass over lean weights gives the logits of the general pass, which calls transformers'
module."""

import builtins
import copy
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.models import fastest
from core.models.fastest import torch_forward
from core.models.hf_model import HfModel
from core.models.layer_ops import attend, grouped_attention
from core.models.lean import LeanForward
from core.models.lean_stacked import StackedForward
from core.models.lean_weights import lean_weights
from core.models.loading import tree_check
from core.models.loading.tree_check import checked_model
from core.models.native.forward import CompiledForward
from core.models.protocol import CACHED, Feed, chain
from tests.core.models.test_stack import alike
from tests.fakes import FAMILIES, info_of, tiny_module

LEAN = ("llama", "qwen2", "qwen3", "mistral", "qwen2-sliding")
BRANCHED = [CACHED, CACHED, 0, 1, 3, 2]


def lean_and_general(
    family: str, dtype: torch.dtype = torch.float32, **changes: Any
) -> tuple[HfModel, HfModel]:
    module = tiny_module(family, seed=3, dtype=dtype, **changes)
    unchanged = copy.deepcopy(module)
    lean = checked_model(module, info_of(module, family))
    assert lean.lean_weights is not None
    lean._forward = torch_forward(lean.lean_weights, lean.masks)
    return lean, HfModel(unchanged, lean.info, lean.masks)


def all_logits(model: HfModel) -> list[torch.Tensor]:
    one, two = model.open_row(), model.open_row()
    logits = model.forward([chain(one, range(3, 20), last_only=True)])
    logits += model.forward([chain(two, range(30, 36))])
    model.commit(one, range(17))
    model.commit(two, range(6))
    logits += model.forward([Feed(one, [5, 6, 7, 8, 9, 10], BRANCHED), chain(two, [11, 12])])
    model.commit(one, [1, 3, 4])
    model.commit(two, [0], keep=[1])
    logits += model.forward([chain(one, [4])])
    logits += model.forward([Feed(two, [9], [CACHED]), chain(one, [6], first=1)])
    return logits


@pytest.mark.parametrize("family", FAMILIES)
def test_only_some_architectures_have_lean_weights(family: str) -> None:
    module = tiny_module(family, seed=3, dtype=torch.float32)
    model = checked_model(module, info_of(module, family))
    assert (model.lean_weights is not None) == (family in LEAN)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((family, {}) for family in LEAN),
        ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
        ("llama", {"attention_bias": True}),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000}},
        ),
    ],
)
def test_lean_logits_agree_with_general_ones(family: str, changes: dict[str, Any]) -> None:
    lean, general = lean_and_general(family, **changes)
    for got, expected in zip(all_logits(lean), all_logits(general), strict=True):
        assert got.shape == expected.shape
        assert float((got - expected).abs().max() / expected.abs().max().clamp(min=1.0)) < 1e-4


@pytest.mark.parametrize("family", LEAN)
def test_bfloat16_logits_agree_within_rounding(family: str) -> None:
    lean, general = lean_and_general(family, torch.bfloat16)
    for got, expected in zip(all_logits(lean), all_logits(general), strict=True):
        assert float((got - expected).abs().max() / expected.abs().max().clamp(min=1.0)) < 0.06


def test_positions_past_the_first_rotary_table_are_rotated() -> None:
    lean, general = lean_and_general("llama", max_position_embeddings=4096)
    long = [7 + i % 50 for i in range(1500)]
    ids = [chain(model.open_row(), long, last_only=True) for model in (lean, general)]
    for model in (lean, general):
        model._info = replace(model.info, context_length=4096)
    got, expected = lean.forward(ids[:1])[0], general.forward(ids[1:])[0]
    assert float((got - expected).abs().max()) < 1e-4


def test_lean_weights_share_the_modules_memory_and_it_still_works() -> None:
    module = tiny_module("llama", seed=3, dtype=torch.float32)
    ids = torch.tensor([[3, 9, 4, 1]])
    before = module(input_ids=ids).logits
    weights = lean_weights(module)
    assert torch.allclose(module(input_ids=ids).logits, before, atol=1e-5)
    stored = {p.untyped_storage().data_ptr() for p in module.parameters()}
    for layer in weights.layers:
        for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down):
            assert matrix.untyped_storage().data_ptr() in stored
    assert weights.bytes == sum(p.nbytes for p in module.parameters())


def test_control_a_pass_with_other_logits_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_wrong_scale(module: Any) -> Any:
        weights = lean_weights(module)
        return replace(weights, rope_scale=1.001)

    monkeypatch.setattr(tree_check, "lean_weights", with_wrong_scale)
    module = tiny_module("llama", seed=3, dtype=torch.float32)
    assert checked_model(module, info_of(module, "llama")).lean_weights is None


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000}},
    ],
)
def test_another_activation_or_dynamic_rope_takes_the_general_pass(changed: dict[str, Any]) -> None:
    module = tiny_module("llama", seed=3, dtype=torch.float32, **changed)
    assert lean_weights(module) is None


def test_a_layer_that_is_no_plain_linear_takes_the_general_pass() -> None:
    class Adapted(torch.nn.Linear):
        pass

    module = tiny_module("llama", seed=3, dtype=torch.float32)
    old = module.model.layers[1].mlp.down_proj
    module.model.layers[1].mlp.down_proj = Adapted(old.in_features, old.out_features, bias=False)
    assert lean_weights(module) is None


def model_of(dtype: torch.dtype = torch.float32, **changes: Any) -> HfModel:
    module = tiny_module("llama", seed=3, dtype=dtype, **changes)
    return checked_model(module, info_of(module, "llama"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_cpu_the_pass_is_compiled(dtype: torch.dtype) -> None:
    assert isinstance(model_of(dtype)._forward, CompiledForward)


def test_double_precision_takes_the_lean_pass() -> None:
    assert isinstance(model_of(torch.float64)._forward, LeanForward)


def test_without_a_compiler_the_lean_pass_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
    assert isinstance(model_of()._forward, LeanForward)
    stack = alike(2)
    assert isinstance(stack._forward, StackedForward)
    assert all(isinstance(member._forward, LeanForward) for member in stack.members)


@pytest.mark.parametrize("error", [ImportError("another numpy"), RuntimeError("no cache")])
def test_with_a_broken_compiler_the_lean_pass_is_taken(error: Exception, monkeypatch):
    real = builtins.__import__

    def failing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "core.models.native.forward":
            raise error
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "core.models.native.forward")
    monkeypatch.setattr(builtins, "__import__", failing)
    assert isinstance(model_of()._forward, LeanForward)


def test_weights_are_copied_only_where_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    own = sum(p.nbytes for p in tiny_module("llama", dtype=torch.float32).parameters())
    for free, expected in ((None, CompiledForward), (3 * own, CompiledForward), (own, LeanForward)):
        monkeypatch.setattr(fastest, "available_bytes", lambda _, free=free: free)
        assert isinstance(model_of()._forward, expected)


@pytest.mark.parametrize("masked", [True, False])
def test_grouped_attention_equals_attention_of_each_query_head(masked: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    q = torch.randn((2, 6, 3, 8), generator=generator)
    keys, values = (torch.randn((2, 2, 5, 8), generator=generator) for _ in range(2))
    hidden = torch.rand((2, 1, 3, 5), generator=generator) < 0.4
    hidden[..., 0] = False
    mask = torch.zeros(hidden.shape).masked_fill(hidden, -1e9) if masked else None
    result = grouped_attention(q, keys, values, mask)
    assert result.shape == q.shape
    torch.testing.assert_close(result, attend(q, keys, values, mask))
