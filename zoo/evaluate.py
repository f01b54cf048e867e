"""`python -m zoo evaluate`: held-out loss and bits per byte of any model of the family's
vocabulary, domain by domain.

Every held-out token but the first is predicted once, from the tokens before it in its window. Knows
nothing of training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from core.errors import ConfigError, VocabMismatchError
from zoo.models import open_model
from zoo.tokenizer import first_difference, open_tokenizer
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

    ModelLoadError where it does not open, VocabMismatchError where its tokenizer is another.
    """
    model = open_model(folder)
    limit = model.config.max_position_embeddings
    if not 1 <= context <= limit:
        raise ConfigError.of("context", context, f"1 to {limit}, the positions of {folder.name}")
    check_vocabulary(folder, store)
    return measure(model.to(device), store, context)


def measure(
    model: nn.Module, store: TokenStore, context: int, max_tokens: int | None = None
) -> dict[str, HeldOut]:
    """Held-out scores by domain; with `max_tokens`, of each domain's first so many.

    Leaves the model in its mode.
    """
    was_training = model.training
    model.eval()
    scores = {
        name: _measure_domain(model, ids[:max_tokens], store.byte_lengths, context)
        for name, ids in store.held_out.items()
    }
    model.train(was_training)
    return scores


@torch.inference_mode()
def _measure_domain(
    model: nn.Module, ids: np.ndarray, byte_lengths: np.ndarray, context: int
) -> HeldOut:
    device = next(model.parameters()).device
    tokens = torch.from_numpy(ids.astype(np.int64)).to(device)
    nats = sum(
        functional.cross_entropy(
            model(input_ids=inputs, use_cache=False).logits.flatten(0, 1).float(),
            targets.flatten(),
            reduction="sum",
        ).item()
        for inputs, targets in _windows(tokens, context)
    )
    num_tokens = len(ids) - 1
    num_bytes = int(byte_lengths[ids[1:]].sum())
    if num_tokens < 1 or num_bytes < 1:
        raise ConfigError.of("out", len(ids), "held-out tokens of every domain, two at least")
    return HeldOut(nats / num_tokens, nats / math.log(2) / num_bytes, num_tokens)


def _windows(tokens: torch.Tensor, context: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(inputs, targets) of shape (batch, context), and last what is left as (1, rest)."""
    inputs, targets = tokens[:-1], tokens[1:]
    whole = len(inputs) // context * context
    for start in range(0, whole, _WINDOWS_AT_ONCE * context):
        end = min(start + _WINDOWS_AT_ONCE * context, whole)
        yield inputs[start:end].view(-1, context), targets[start:end].view(-1, context)
    if whole < len(inputs):
        yield inputs[whole:].view(1, -1), targets[whole:].view(1, -1)


# -- folders --


def trained_models(out: Path) -> list[Path]:
    """The model folders that `train` wrote under `out`."""
    return sorted(path.parent for path in (out / "models").glob("*/config.json"))


def check_vocabulary(folder: Path, store: TokenStore) -> None:
    """VocabMismatchError where the folder's tokenizer is not the one of the token files."""
    differs = first_difference(open_tokenizer(folder), open_tokenizer(store.tokenizer_folder))
    if differs is not None:
        raise VocabMismatchError(
            f"models is {str(folder)!r}: a model with the tokenizer that the corpora were "
            f"prepared with; token id {differs} differs"
        )


# -- showing --


def table(scores: Mapping[str, Scores]) -> list[str]:
    """A line a model: loss in nats per token and bits per byte of each domain."""
    domains = list(dict.fromkeys(name for each in scores.values() for name in each))
    width = max(len("model"), *map(len, scores))
    head = f"{'model':{width}}" + "".join(f"  {name:>18}" for name in domains)
    unit = " " * width + "  nats/tok bits/byte" * len(domains)
    return [head, unit, *(_row(name, each, domains, width) for name, each in scores.items())]


def _row(model: str, scores: Scores, domains: Sequence[str], width: int) -> str:
    cells = (scores[name] for name in domains)
    return f"{model:{width}}" + "".join(f"  {c.loss:8.3f} {c.bits_per_byte:9.3f}" for c in cells)


def as_json(scores: Mapping[str, Scores], context: int) -> dict[str, Any]:
    """The same figures as plain values."""
    models = {
        model: {domain: asdict(each) for domain, each in domains.items()}
        for model, domains in scores.items()
    }
    return {"context": context, "models": models}
