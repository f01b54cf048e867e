"""The load-time check of models."""

from typing import Any

import pytest
import torch

from core.errors import UnsupportedModelError
from core.models.forward import MaskKind
from core.models.hf_model import HfModel
from core.models.loading.tree_check import checked_model, mask_kinds, tree_error
from tests.fakes import FAMILIES, WINDOW, info_of, tiny_module

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2}
REFUSED: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},  # ALiBi
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4},  # ALiBi
    "falcon": {**SMALL, "num_attention_heads": 4, "alibi": True},
    "mamba": {**SMALL, "state_size": 4},  # state space
    "rwkv": {**SMALL, "attention_hidden_size": 32, "intermediate_size": 32},  # linear attention
    "gpt_neo": {  # the local window counts KV slots, not positions
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 64,
    },
    "lfm2": {**FAMILIES["llama"], "layer_types": ["conv", "full_attention"]},
}


def refusal(family: str) -> str:
    settings = {"initializer_range": 0.25, "pad_token_id": 0, **REFUSED[family]}
    module = tiny_module(family, seed=1, dtype=torch.float32, **settings)
    with pytest.raises(UnsupportedModelError) as caught:
        checked_model(module, info_of(module, "mine"))
    assert type(module).__name__ in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("family", REFUSED)
def test_other_architectures_are_refused_by_name(family: str) -> None:
    message = refusal(family)
    assert message.startswith("model mine has architecture ")
    assert "a decoder-only model with softmax attention, full or sliding" in message
    assert "\n" not in message


def test_a_refusal_gives_its_reason() -> None:
    assert "tree and plain passes differ by 0." in refusal("mpt")
    assert "layers of local" in refusal("gpt_neo")
    assert "layers of conv" in refusal("lfm2")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_known_families_pass_in_every_precision(family: str, dtype: torch.dtype) -> None:
    settings = {} if dtype != torch.bfloat16 else {"initializer_range": 0.02}
    if family == "opt":
        settings = {}
    module = tiny_module(family, seed=1, dtype=dtype, **settings)
    assert checked_model(module, info_of(module, family)).dtype == dtype


def test_a_model_with_a_short_context_is_checked_within_it() -> None:
    module = tiny_module("gpt2", seed=1, n_positions=16)
    assert checked_model(module, info_of(module, "short", context=16)).context_length == 16


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("llama", [MaskKind()]),
        ("gpt2", [MaskKind()]),
        ("mistral", [MaskKind(WINDOW, False), MaskKind(WINDOW, True)]),
        ("gemma2", [MaskKind(WINDOW, True)]),
        ("qwen2-sliding", [MaskKind(WINDOW, True)]),
    ],
)
def test_mask_kinds_follow_the_configuration(family: str, kinds: list[MaskKind]) -> None:
    assert mask_kinds(tiny_module(family).config) == kinds


@pytest.mark.parametrize(
    ("family", "wrong"), [("mistral", MaskKind()), ("gemma2", MaskKind()), ("llama", MaskKind(4))]
)
def test_control_a_wrong_mask_has_a_large_tree_error(family: str, wrong: MaskKind) -> None:
    module = tiny_module(family, seed=1)
    assert tree_error(HfModel(module, info_of(module, family), wrong), module) > 1e-2
    right = checked_model(module, info_of(module, family))
    assert tree_error(right, module) < 1e-6


def test_the_check_leaves_no_row_open() -> None:
    module = tiny_module("llama", seed=1)
    model = checked_model(module, info_of(module, "llama"))
    assert model.open_row() == 0
