"""Conversion to llama.cpp's layout, without llama.cpp: names, order of rows, refused models."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.ggml.layout import ends_of, header_of, interleaved_rows, tensors_of
from core.errors import UnsupportedModelError
from tests.fakes import tiny_module

HEADS, SIZE, HIDDEN = 3, 8, 16


def llama(**changes: Any) -> Any:
    return tiny_module("llama", dtype=torch.float32, **changes)


def rotate_halves(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """`x`: [heads, size]. Element i is paired with i + size / 2."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat(
        [low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()], -1
    )


def rotate_neighbours(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """`x`: [heads, size]. Element 2 i is paired with 2 i + 1, as in llama.cpp's `llama`."""
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = (even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin())
    return torch.stack(rotated, -1).flatten(-2)


def test_interleaved_rows_give_the_same_scores_under_llama_cpps_rotation() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(HEADS * SIZE, HIDDEN, generator=generator) for _ in range(2))
    x, y = (torch.randn(HIDDEN, generator=generator) for _ in range(2))
    angles = torch.arange(SIZE // 2) * 0.7 + 0.1
    interleaved = [interleaved_rows(weight, HEADS) for weight in (q, k)]

    def scores(weights: Any, rotate: Any) -> torch.Tensor:
        query, key = ((w @ v).view(HEADS, SIZE) for w, v in zip(weights, (x, y), strict=True))
        return (rotate(query, 5 * angles) * rotate(key, 3 * angles)).sum(-1)

    expected = scores((q, k), rotate_halves)
    torch.testing.assert_close(scores(interleaved, rotate_neighbours), expected)
    assert not torch.allclose(scores((q, k), rotate_neighbours), scores((q, k), rotate_halves))
    rows = interleaved_rows(torch.arange(8)[:, None], 2).flatten().tolist()
    assert rows == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_has_its_llama_cpp_name(tied: bool) -> None:
    module = llama(tie_word_embeddings=tied).to(torch.bfloat16)
    header = header_of(module)
    results = dict(tensors_of(module, header))
    for name, weight in results.items():
        assert weight.dtype == (torch.float32 if "norm" in name else torch.bfloat16), name
    of_layer = [f"attn_{name}" for name in ("norm", "q", "k", "v", "output")]
    of_layer += [f"ffn_{name}" for name in ("norm", "gate", "up", "down")]
    layers = {f"blk.{i}.{each}.weight" for i in range(header["block_count"]) for each in of_layer}
    ends = {"token_embd.weight", "output_norm.weight"} | (set() if tied else {"output.weight"})
    assert set(results) == layers | ends
    assert sum(map(torch.numel, results.values())) == sum(map(torch.numel, module.parameters()))
    attention = module.model.layers[1].self_attn
    q, k = attention.q_proj.weight, attention.k_proj.weight
    assert header["head_count"] != header["head_count_kv"]
    assert torch.equal(results["blk.1.attn_q.weight"], interleaved_rows(q, header["head_count"]))
    assert torch.equal(results["blk.1.attn_k.weight"], interleaved_rows(k, header["head_count_kv"]))
    assert torch.equal(results["blk.1.attn_v.weight"], attention.v_proj.weight)


def test_the_header_has_the_models_sizes_and_constants() -> None:
    rope = {"rope_type": "default", "rope_theta": 5e5}
    module = llama(eos_token_id=[3, 4], rope_parameters=rope, rms_norm_eps=2.5e-7)
    header, config = header_of(module), module.config
    attention = module.model.layers[0].self_attn
    assert (header["rope_freq_base"], header["layer_norm_rms_eps"]) == (5e5, 2.5e-7)
    assert header["key_length"] == header["value_length"] == attention.head_dim
    sizes = (header["embedding_length"], header["feed_forward_length"])
    assert sizes == (config.hidden_size, config.intermediate_size)
    assert header["head_count"] * header["key_length"] == len(attention.q_proj.weight)
    assert ends_of(module) == {3, 4} and ends_of(llama()) == frozenset()
    assert ends_of(llama(eos_token_id=2)) == {2}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gpt2", {}, "architecture GPT2LMHeadModel: one of LlamaForCausalLM"),
        ("qwen2", {}, "architecture Qwen2ForCausalLM"),
        ("llama", {"hidden_act": "gelu"}, "a hidden_act of its own"),
        ("mistral", {"sliding_window": 16}, "a sliding_window of its own"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "a rope_type of its own",
        ),
        ("llama", {"attention_bias": True}, "the weight model.layers.0.self_attn.q_proj.bias"),
    ],
)
def test_another_model_is_refused(family: str, changes: dict[str, Any], message: str) -> None:
    module = tiny_module(family, dtype=torch.float32, **changes)
    with pytest.raises(UnsupportedModelError, match=message):
        dict(tensors_of(module, header_of(module)))
