"""Differences from transformers' `generate`: the context length, and ignored fields of the
generation config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from core.plurals import number_of

__all__ = ["context_length_of", "load_warnings"]

# Context length of a model without a limit, and the largest context length of any model.
UNLIMITED, LARGEST = 1 << 20, (1 << 31) - 1
# Configuration fields for the number of positions.
POSITION_FIELDS = (
    "max_position_embeddings",
    "max_target_positions",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "max_seq_length",
    "max_seq_len",
    "seq_length",
)
# The frequencies of this rotary embedding change for all tokens of a pass if a position is past
# `switch_position`.
SWITCHING_ROPE = "longrope"
# Fields of a generation config that change the tokens of `generate` and are ignored here, with
# their neutral values.
GENERATION_FIELDS: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "bad_words_ids": (None,),
        "begin_suppress_tokens": (None,),
        "encoder_no_repeat_ngram_size": (None, 0),
        "encoder_repetition_penalty": (None, 1.0),
        "epsilon_cutoff": (None, 0.0),
        "eta_cutoff": (None, 0.0),
        "exponential_decay_length_penalty": (None,),
        "forced_bos_token_id": (None,),
        "forced_eos_token_id": (None,),
        "guidance_scale": (None, 1.0),
        "min_length": (None, 0),
        "min_new_tokens": (None, 0),
        "min_p": (None, 0.0),
        "no_repeat_ngram_size": (None, 0),
        "num_beams": (None, 1),
        "penalty_alpha": (None, 0.0),
        "repetition_penalty": (None, 1.0),
        "sequence_bias": (None,),
        "stop_strings": (None,),
        "suppress_tokens": (None,),
        "typical_p": (None, 1.0),
        "watermarking_config": (None,),
    }
)
SETTABLE = ("repetition_penalty", "min_p")
"""The GENERATION_FIELDS that SamplingParams also has."""


def context_length_of(module: Any) -> int:
    """The largest number of tokens for a transformers module, by its configuration, its tables of
    learned positions and `switch_position`."""
    configured_length = _configured_context(module)
    switch = switch_position(module.config.get_text_config())
    return configured_length if switch is None else min(configured_length, switch)


def _configured_context(module: Any) -> int:
    config = module.config.get_text_config()
    fields = (getattr(config, name, None) for name in POSITION_FIELDS)
    # Of the fields, only the first that is set counts; of the position tables, each one counts.
    lengths = [value for value in fields if isinstance(value, int) and value > 0][:1]
    tables = [
        part.num_embeddings
        for name, part in module.named_modules()
        if isinstance(part, nn.Embedding) and _is_position_table(name)
    ]
    return min(min([*lengths, *tables], default=UNLIMITED), LARGEST)


def _is_position_table(name: str) -> bool:
    # A table of relative positions has buckets of distances, which do not bound the length.
    return any(part in name for part in ("position", "pos_emb", "wpe")) and "relative" not in name


def switch_position(config: Any) -> int | None:
    """The most tokens for which rotary frequencies of type SWITCHING_ROPE stay the same; None
    without such a limit."""
    limits: list[int] = []
    for rope in _rope_parameters(config):
        # Older configurations say `type`.
        if str(rope.get("rope_type", rope.get("type"))) == SWITCHING_ROPE:
            limits += [
                value
                for value in (
                    rope.get("original_max_position_embeddings"),
                    getattr(config, "original_max_position_embeddings", None),
                )
                if isinstance(value, int) and value > 0
            ]
    return min(limits, default=None)


def _rope_parameters(config: Any) -> Iterator[dict[str, Any]]:
    for name in ("rope_parameters", "rope_scaling"):
        rope = getattr(config, name, None)
        if isinstance(rope, dict):
            yield rope
            yield from (part for part in rope.values() if isinstance(part, dict))


def load_warnings(module: Any) -> tuple[str, ...]:
    """Warnings for the user about differences between this engine and `generate`."""
    warnings = []
    configured_length = _configured_context(module)
    switch = switch_position(module.config.get_text_config())
    if switch is not None and switch < configured_length:
        warnings.append(
            f"context is {number_of(switch, 'token')}, not {configured_length}: beyond that "
            "the model's rotary frequencies change for the whole text, cached keys included"
        )
    fields = [
        f"{name}={value!r}"
        for name, neutral in GENERATION_FIELDS.items()
        if (value := getattr(getattr(module, "generation_config", None), name, None)) not in neutral
    ]
    if fields:
        settable = [
            name for name in SETTABLE if any(field.startswith(f"{name}=") for field in fields)
        ]
        hint = f"; {' and '.join(settable)} can be set for a request" if settable else ""
        warnings.append(
            f"the model's generation config asks for {', '.join(fields)}: transformers' generate "
            f"follows it, this engine does not{hint}"
        )
    return tuple(warnings)
