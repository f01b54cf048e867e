"""Reads configurations and modules through transformers; errors become one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pickle import UnpicklingError
from typing import Any

import torch

from core.errors import (
    MODEL_FAULTS,
    ConfigError,
    ModelLoadError,
    SpecScopeError,
    UnsupportedModelError,
    one_line,
)
from core.events import ModelInfo
from core.models.loading.catalog import ALLOWED, ModelSource
from core.models.loading.differences import context_length_of
from core.models.loading.gguf_cache import check_complete

__all__ = [
    "architecture_of",
    "info_of",
    "quiet_transformers",
    "read_config",
    "read_module",
    "reading_model",
    "read_error",
]


def read_config(source: ModelSource) -> Any:
    """The configuration of a decoder-only model. Raises ModelLoadError, UnsupportedModelError."""
    from transformers import AutoConfig

    # `trust_remote_code=False` here and below: a model's own code is never run.
    with reading_model(source):
        config: Any = AutoConfig.from_pretrained(
            source.name, local_files_only=source.local, trust_remote_code=False
        )
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"model {source} is of type {config.model_type}: a decoder-only model is allowed"
        )
    config.return_dict = True  # as in transformers' `generate`, whatever the folder's config has
    return config


def read_module(
    source: ModelSource, config: Any, dtype: torch.dtype, distributed: Any = None
) -> Any:
    """The module of this configuration with its weights, on the CPU; or, with `distributed`
    (transformers' DistributedConfig), this rank's part of it. Call this function within
    `reading_model`, since it raises any error of transformers."""
    from transformers import AutoModelForCausalLM

    # With loading info, since transformers only warns of weights that are missing.
    result: Any = AutoModelForCausalLM.from_pretrained(
        source.name,
        config=config,
        dtype=dtype,
        attn_implementation=_attention_of(config),
        output_loading_info=True,
        local_files_only=source.local,
        trust_remote_code=False,
        **({} if distributed is None else {"distributed_config": distributed}),
    )
    module, report = result
    check_complete(report)
    return module


@contextmanager
def reading_model(source: ModelSource) -> Iterator[None]:
    """Errors of transformers, and a ConfigError of the model's own configuration, become a
    ModelLoadError of one line; other errors of this project are raised unchanged."""
    try:
        yield
    except ConfigError as error:  # a field of the model's own configuration
        raise read_error("model", source, error) from error
    except SpecScopeError:
        raise
    except UnpicklingError as error:
        raise ModelLoadError.of(
            "model",
            str(source),
            "its pickled weights hold more than tensors, and nothing of "
            "them was run; a folder with safetensors is allowed",
        ) from error
    except MODEL_FAULTS as error:
        raise read_error("model", source, error) from error


def info_of(
    module: Any,
    source: ModelSource,
    role: str,
    dtype: torch.dtype,
    device: torch.device,
    fingerprint: str,
) -> ModelInfo:
    """The ModelInfo of a module that has all its layers. Its weights may be on the meta device."""
    return ModelInfo(
        name=source.title,
        role=role,
        parameters=sum(p.numel() for p in module.parameters()),
        architecture=type(module).__name__,
        # The head's, not the embedding's: with a narrow head the embedding has more rows.
        vocab_size=module.get_output_embeddings().weight.shape[0],
        context_length=context_length_of(module),
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        fingerprint=fingerprint,
    )


def read_error(what: str, source: ModelSource, error: Exception) -> ModelLoadError:
    """The error for a model or tokenizer (`what`) that cannot be read, in one line."""
    reason = one_line(error) or type(error).__name__
    if "ignore_mismatched_sizes" in reason:  # refers to a report that is turned off
        reason = "its weights have other shapes than its config.json says"
    return ModelLoadError.of(what, str(source), f"it cannot be read ({reason}); {ALLOWED}")


def architecture_of(config: Any) -> str:
    """The name of transformers' class for a configuration; empty if there is none."""
    return getattr(_class_of(config), "__name__", "")


def _class_of(config: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM._model_mapping.get(type(config), None)


def _attention_of(config: Any) -> str:
    """transformers' name of an attention implementation that takes additive 4-D masks. The
    implementation that a model's folder asks for may be missing, or may crash on such masks."""
    # torch's fused attention is faster; `eager` exists for every model.
    return "sdpa" if getattr(_class_of(config), "_supports_sdpa", False) else "eager"


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Turns off transformers' progress bars permanently, and its reports within the block."""
    from transformers.utils import logging

    quiet: Any = logging.disable_progress_bar
    quiet()
    before = logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)
