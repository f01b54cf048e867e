"""Writes models that share one embedding as folders for transformers. The embedding is stored
once, in a file next to the folders; each folder's index names the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from core.models.lean import LeanWeights, map_tensors
from core.models.lean_weights import adopt
from core.models.loading import narrow_head
from core.models.loading.load import LoadedModels
from zoo.files import replace_folder, write_json
from zoo.shared_students import ROPE_THETA, member

__all__ = ["EMBEDDING", "LAYERS", "write_family"]

EMBEDDING, LAYERS = "embedding.safetensors", "layers.safetensors"
INDEX = "model.safetensors.index.json"
_EMBEDDING_NAME = "model.embed_tokens.weight"
_POSITIONS = 2048
_FORMAT = {"format": "pt"}  # transformers refuses files without it


def write_family(
    folder: Path,
    names: Sequence[str],
    students: LeanWeights,
    models: LoadedModels,
    figures: dict[str, Any],
) -> None:
    """Replaces `folder` by the students' folders, in bfloat16, each with the LLM's tokenizer, and
    `training.json` with the `figures`."""
    in_bfloat16 = map_tensors(
        [students], lambda parts: parts[0].detach().to("cpu", torch.bfloat16).contiguous()
    )

    def fill(new: Path) -> None:
        save_file({_EMBEDDING_NAME: in_bfloat16.embedding}, new / EMBEDDING, metadata=_FORMAT)
        for number, name in enumerate(names):
            _write_student(new / name, member(in_bfloat16, number), models)
        write_json(new / "training.json", figures)

    replace_folder(folder, fill)


def _write_student(folder: Path, weights: LeanWeights, models: LoadedModels) -> None:
    config, generation = _configs(weights, models)
    module = LlamaForCausalLM(config)
    adopt(module, replace(weights, head=weights.embedding.t()))
    state = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    for name in (_EMBEDDING_NAME, "lm_head.weight"):
        del state[name]
    models.tokenizer.save_pretrained(folder)
    config.save_pretrained(folder)
    generation.save_pretrained(folder)
    save_file(state, folder / LAYERS, metadata=_FORMAT)
    size = sum(tensor.nbytes for tensor in (weights.embedding, *state.values()))
    files = {_EMBEDDING_NAME: f"../{EMBEDDING}"} | dict.fromkeys(sorted(state), LAYERS)
    write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": files})


def _configs(weights: LeanWeights, models: LoadedModels) -> tuple[LlamaConfig, GenerationConfig]:
    layer = weights.layers[0]
    ends = models.eos_ids[0] if len(models.eos_ids) == 1 else list(models.eos_ids)
    special = {
        "bos_token_id": models.tokenizer.bos_token_id,
        "eos_token_id": ends,
        "pad_token_id": models.tokenizer.pad_token_id,
    }
    config = LlamaConfig(
        vocab_size=len(weights.embedding),
        hidden_size=len(layer.out),
        intermediate_size=len(layer.down),
        num_hidden_layers=len(weights.layers),
        num_attention_heads=weights.heads,
        num_key_value_heads=weights.kv_heads,
        head_dim=weights.head_size,
        max_position_embeddings=_POSITIONS,
        rms_norm_eps=weights.eps,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        dtype=torch.bfloat16,
        architectures=["LlamaForCausalLM"],
        **special,
    )
    setattr(config, narrow_head.FIELD, weights.head.shape[1])
    return config, GenerationConfig(**special)  # type: ignore[no-untyped-call]
