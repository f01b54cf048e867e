"""Function-preserving expansion of a transformers module (Net2Net, arXiv 1511.05641), tensor by
tensor: a "grown" module has a larger shape and the small module's logits.

These invariants imply equal logits:

1. In the residual stream the first channels are the small model's and all others are zero: the
   new columns of the embedding and the new rows (outputs) of `o_proj` and `down_proj` are zero.
2. A norm sees the small model's mean square divided by the factor (large hidden size / small hidden
   size). The grown norm has eps / factor and weights times sqrt(1 / factor). Its output is the
   small model's values in the old channels and zeros in the new channels. With a factor of 4^k both
   corrections are powers of two, which no dtype rounds.
3. A matrix of the small model is the upper left block of the grown matrix: old heads and old
   feed-forward units compute the same values from the old channels. If a matrix reads the residual
   stream, its new columns are multiplied by zeros.
4. New heads and new feed-forward units compute random values from the old channels. The columns of
   `o_proj` and `down_proj` that would add these values to the residual stream are zero.
5. A new layer computes everything and adds nothing: its `o_proj` and `down_proj` are zero.
6. Qwen3's QK-norms use the same eps as the other norms, now eps / factor. The weights of old
   queries and keys are multiplied by sqrt(1 / factor) too; a QK-norm cancels this scale.

All other values of matrices are random: every product is dense. The zeros are written to memory:
unwritten pages are all mapped to one physical page, which would be read too fast.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from bench.grown.shape import GrowthPlan, ModelShape
from core.errors import UnsupportedModelError

ZERO = frozenset({"embed_tokens", "o_proj", "down_proj"})
NORMS = frozenset({"input_layernorm", "post_attention_layernorm", "norm"})
HEAD_NORMS = frozenset({"q_norm", "k_norm"})
RANDOM = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head"})
OWNERS = ZERO | NORMS | HEAD_NORMS | RANDOM


@dataclass(frozen=True, slots=True)
class Filler:
    """Makes the tensors of a grown model on `device`. A tensor's random values depend only on
    `seed` and the tensor's name. `spread`: the standard deviation of random weights."""

    plan: GrowthPlan
    seed: int
    spread: float
    dtype: torch.dtype
    device: torch.device

    @torch.no_grad()
    def tensor(self, name: str, shape: torch.Size, old: torch.Tensor | None) -> torch.Tensor:
        """`old`: the small model's parameter, None in a new layer."""
        owner = name.split(".")[-2]
        weight = torch.empty(shape, dtype=self.dtype, device=self.device)
        if owner in ZERO:
            weight.zero_()
        elif owner in NORMS:
            weight.fill_(self.plan.norm_scale)
        elif owner in HEAD_NORMS:
            weight.fill_(1.0)
        else:
            weight.normal_(0.0, self.spread, generator=self._generator(name))
        if old is not None:
            block = tuple(slice(size) for size in old.shape)
            weight[block] = (old.float() * self._correction(owner)).to(weight)
        return weight

    def _correction(self, owner: str) -> float:
        has_correction = owner in NORMS
        # Only QK-norms cancel this correction (invariant 6).
        has_correction |= owner in ("q_proj", "k_proj") and self.plan.small.qk_norms
        return self.plan.norm_scale if has_correction else 1.0

    def _generator(self, name: str) -> torch.Generator:
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big") >> 1  # below 2**63
        return torch.Generator(self.device).manual_seed(seed)


ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def model_shape(module: Any) -> ModelShape:
    """The shape of a transformers module, which may be on the device `meta`.

    Raises UnsupportedModelError if the architecture is not in ARCHITECTURES, or if there are
    parameters other than the weights and biases of OWNERS.
    """
    kind = type(module).__name__
    strange = sorted(name for name, _ in module.named_parameters() if not _is_handled(name))
    if kind not in ARCHITECTURES or strange:
        has = f" (parameter {strange[0]})" if kind in ARCHITECTURES else ""
        raise UnsupportedModelError(
            f"architecture {kind}{has} cannot be grown; allowed: {', '.join(ARCHITECTURES)} with "
            "plain weights and biases"
        )
    config, layer = module.config, module.model.layers[0]
    attention, mlp = layer.self_attn, layer.mlp
    return ModelShape(
        hidden=int(config.hidden_size),
        ffn=int(config.intermediate_size),
        layers=int(config.num_hidden_layers),
        heads=int(config.num_attention_heads),
        kv_heads=int(config.num_key_value_heads),
        head_size=int(attention.head_dim),
        vocabulary=int(module.model.embed_tokens.weight.shape[0]),
        tied=bool(config.tie_word_embeddings),
        qkv_bias=attention.q_proj.bias is not None,
        out_bias=attention.o_proj.bias is not None,
        ffn_bias=mlp.down_proj.bias is not None,
        qk_norms=hasattr(attention, "q_norm"),
    )


def _is_handled(name: str) -> bool:
    owner, leaf = f".{name}".rsplit(".", 2)[-2:]
    return owner in OWNERS and leaf in ("weight", "bias")


def meta_module(module: Any, plan: GrowthPlan, dtype: torch.dtype) -> Any:
    """The grown module with weights on the device `meta`. Its rotary embedding is a copy of the
    small module's: old heads are rotated as before."""
    with torch.device("meta"):
        large = type(module)(_config(module, plan, dtype))
    large.tie_weights()
    large.model.rotary_emb = copy.deepcopy(module.model.rotary_emb)
    large.generation_config = copy.deepcopy(module.generation_config)
    return large.eval()


def _config(module: Any, plan: GrowthPlan, dtype: torch.dtype) -> Any:
    config, shape = copy.deepcopy(module.config), plan.large
    config.hidden_size = shape.hidden
    config.intermediate_size = shape.ffn
    config.num_hidden_layers = shape.layers
    config.num_attention_heads = shape.heads
    config.num_key_value_heads = shape.kv_heads
    config.rms_norm_eps = config.rms_norm_eps / plan.factor  # invariant 2
    config.dtype = dtype
    config.architectures = [type(module).__name__]
    kinds = getattr(config, "layer_types", None)
    if kinds:
        config.layer_types = [kinds[i % len(kinds)] for i in range(shape.layers)]
    return config


def parameter_shapes(large: Any) -> dict[str, torch.Size]:
    """The shape of every parameter of a meta module; a tied head is left out."""
    return {name: parameter.shape for name, parameter in large.named_parameters()}


def tensors(
    module: Any, large: Any, plan: GrowthPlan, seed: int, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the name and values of each parameter in the meta module `large`."""
    spread = float(module.config.initializer_range)
    filler = Filler(plan, seed, spread, dtype, next(module.parameters()).device)
    small = dict(module.named_parameters())
    # `bench.grown.writing` needs the order of `parameter_shapes`.
    for name, shape in parameter_shapes(large).items():
        yield name, filler.tensor(name, shape, small.get(name))


def grow_module(
    module: Any, plan: GrowthPlan, seed: int = 0, dtype: torch.dtype | None = None
) -> Any:
    """A module of the plan's large shape with `module`'s logits, on the same device. `dtype` None:
    `module`'s dtype."""
    dtype = dtype or next(module.parameters()).dtype
    large = meta_module(module, plan, dtype)
    for name, weight in tensors(module, large, plan, seed, dtype):
        owner, _, leaf = name.rpartition(".")
        setattr(large.get_submodule(owner), leaf, torch.nn.Parameter(weight, requires_grad=False))
    large.tie_weights()
    return large
