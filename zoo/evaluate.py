"""Held-out loss and bits per byte of a model with the corpora's tokenizer, domain by domain.

Every measured token but the first of each domain is predicted once, from the tokens before it in
its window.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from core.errors import ConfigError, VocabMismatchError
from zoo.files import is_whole
from zoo.models import open_model, weights_id
from zoo.result_cache import NO_CACHE, ResultCache
from zoo.tokenizer import first_differing_id, open_tokenizer
from zoo.tokens import TokenStore

__all__ = ["HeldOut", "check_vocabulary", "evaluate_folder", "measure", "table", "trained_models"]

_WINDOWS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well a model predicts one domain's held-out text."""

    loss: float  # nats a token, mean
    bits_per_byte: float  # of the predicted tokens' text; comparable between tokenizers
    num_tokens: int


Scores = Mapping[str, HeldOut]


def evaluate_folder(
    folder: Path, store: TokenStore, context: int, device: torch.device
) -> dict[str, HeldOut]:
    """Measures the model in `folder` in float32 on all held-out tokens of `store`.

    Raises ConfigError if `context` is below 1 or above the model's number of positions,
    ModelLoadError if the model cannot be loaded, VocabMismatchError if it has another tokenizer.
    """
    model = open_model(folder)
    limit = model.config.max_position_embeddings
    if not 1 <= context <= limit:
        raise ConfigError.of("context", context, f"1 to {limit}, the positions of {folder.name}")
    check_vocabulary(folder, store)
    cache = ResultCache.for_inputs(
        store.folder / "measured" / folder.resolve().name,
        {
            "weights": weights_id(folder),
            "held out": {name: _hash_of(ids) for name, ids in store.held_out.items()},
            # A cached result is a sum over at most _WINDOWS_AT_ONCE windows of at most `context`
            # tokens.
            "windows": [context, _WINDOWS_AT_ONCE],
            "on": [device.type, torch.__version__],
        },
    )
    return measure(model.to(device), store, context, cache=cache)


def measure(
    model: nn.Module,
    store: TokenStore,
    context: int,
    max_tokens: int | None = None,
    cache: ResultCache = NO_CACHE,
) -> dict[str, HeldOut]:
    """Held-out scores on the first `max_tokens` tokens of each domain, None: on all tokens."""
    was_training = model.training
    model.eval()
    try:
        return {
            name: _score(model, store, name, context, max_tokens, cache.subcache(name))
            for name in store.held_out
        }
    finally:
        model.train(was_training)


def _score(
    model: nn.Module,
    store: TokenStore,
    name: str,
    context: int,
    max_tokens: int | None,
    cache: ResultCache,
) -> HeldOut:
    ids = store.held_out[name][:max_tokens]
    num_tokens, num_bytes = len(ids) - 1, int(store.byte_lengths[ids[1:]].sum())
    if num_tokens < 1 or num_bytes < 1:
        raise ConfigError.of(
            "out",
            str(store.folder),
            "a folder with at least two held-out tokens of text in every domain; "
            f"{name} has {len(ids)}",
        )
    nats = _nats(model, ids, context, cache)
    return HeldOut(nats / num_tokens, nats / math.log(2) / num_bytes, num_tokens)


def _nats(model: nn.Module, ids: np.ndarray, context: int, cache: ResultCache) -> float:
    """The summed cross entropy of a domain's tokens, in nats."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(ids.astype(np.int64)).to(device)
    nats: list[float] = [
        cache.get_or_compute(f"{number:04}", partial(_nats_of, model, *windows))
        for number, windows in enumerate(_windows(tokens, context))
    ]
    return sum(nats)


@torch.inference_mode()
def _nats_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    logits = model(input_ids=inputs, use_cache=False).logits.flatten(0, 1).float()
    return float(functional.cross_entropy(logits, targets.flatten(), reduction="sum"))


def _windows(tokens: torch.Tensor, context: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(inputs, targets) of shape (batch, context); the last, shorter window as (1, rest)."""
    inputs, targets = tokens[:-1], tokens[1:]
    end_of_full = len(inputs) // context * context
    for start in range(0, end_of_full, _WINDOWS_AT_ONCE * context):
        end = min(start + _WINDOWS_AT_ONCE * context, end_of_full)
        yield inputs[start:end].view(-1, context), targets[start:end].view(-1, context)
    if end_of_full < len(inputs):
        yield inputs[end_of_full:].view(1, -1), targets[end_of_full:].view(1, -1)


# -- folders --


def trained_models(out: Path) -> list[Path]:
    """The complete model folders in `out/models`."""
    folders = sorted(path.parent for path in (out / "models").glob("*/config.json"))
    return list(filter(is_whole, folders))


def _hash_of(ids: np.ndarray) -> str:
    return hashlib.sha256(ids.tobytes()).hexdigest()


def check_vocabulary(folder: Path, store: TokenStore, field: str = "models") -> None:
    """Raises VocabMismatchError if folder and token files have different tokenizers."""
    pair = open_tokenizer(folder, field), open_tokenizer(store.tokenizer_folder)
    differs = first_differing_id(*pair)
    if differs is not None:
        in_folder, in_corpora = (one.convert_ids_to_tokens(differs) for one in pair)
        raise VocabMismatchError.of(
            field,
            str(folder),
            "a model with the tokenizer that the corpora were "
            f"prepared with; token id {differs} is {in_folder!r} there and {in_corpora!r} in the "
            "corpora",
        )


# -- showing --


def table(scores: Mapping[str, Scores]) -> list[str]:
    """A row for each model: loss in nats per token and bits per byte of each domain."""
    domains = list(dict.fromkeys(name for each in scores.values() for name in each))
    width = max(len("model"), *map(len, scores))
    head = f"{'model':{width}}" + "".join(f"  {name:>18}" for name in domains)
    unit = " " * width + "  nats/tok bits/byte" * len(domains)
    return [head, unit, *(_row(name, each, domains, width) for name, each in scores.items())]


def _row(model: str, scores: Scores, domains: Sequence[str], width: int) -> str:
    cells = (scores[name] for name in domains)
    return f"{model:{width}}" + "".join(f"  {c.loss:8.3f} {c.bits_per_byte:9.3f}" for c in cells)


def as_json(scores: Mapping[str, Scores], context: int) -> dict[str, Any]:
    """The scores and the `context` they were measured with, as plain values."""
    models = {
        model: {domain: asdict(each) for domain, each in domains.items()}
        for model, domains in scores.items()
    }
    return {"context": context, "models": models}
