"""How well SSMs predict the LLM's next tokens, on held-out texts that the LLM wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from zoo.losses import log_probabilities

__all__ = ["DraftAccuracy", "coverage", "draft_accuracy", "runs_of"]

_AT_ONCE = 8  # texts of a pass
LONGEST = 8
"""Tokens of the chain that `tokens_per_pass` is computed for."""


@dataclass(frozen=True, slots=True)
class DraftAccuracy:
    """One SSM's accuracy after the first `prefix` tokens of each text. `agreement`: how often its
    most probable token is the LLM's most probable token. `overlap`: the mean over positions of the
    sum over v of min(p(v), q(v)), where p is the LLM's and q the SSM's distribution. This is the
    rate at which tokens sampled from q are accepted. `tokens_per_pass`: 1 + the mean number of
    accepted tokens of a greedy chain of LONGEST tokens, on texts that the LLM wrote greedily."""

    agreement: float
    overlap: float
    tokens_per_pass: float


def draft_accuracy(
    teacher: nn.Module, drafter: nn.Module, texts: Sequence[np.ndarray], prefix: int
) -> DraftAccuracy:
    """The drafter's accuracy on batches of texts (n, length); batches 0, 2, 4, ... were written
    greedily."""
    agreements, overlaps, per_pass = [], [], []
    for number, batch in enumerate(texts):
        agrees, overlap = _agreement_and_overlap(teacher, drafter, batch, prefix)
        agreements.append(agrees.float().mean().item())
        overlaps.append(overlap.mean().item())
        if number % 2 == 0:
            per_pass.append(1.0 + runs_of(agrees, LONGEST).float().mean().item())
    return DraftAccuracy(_mean(agreements), _mean(overlaps), _mean(per_pass))


def coverage(
    teacher: nn.Module, drafters: Mapping[str, nn.Module], texts: Sequence[np.ndarray], prefix: int
) -> dict[str, float]:
    """How often the LLM's most probable token is among n proposals, where n is the number of
    drafters. `union`: one proposal of each drafter; under a drafter's name: its own n most probable
    tokens."""
    count, hits = len(drafters), dict.fromkeys(("union", *drafters), 0.0)
    for batch in texts:
        inputs = _inputs(batch, teacher)
        best = _log_probabilities(teacher, inputs)[:, prefix - 1 :].argmax(-1, keepdim=True)
        in_union = torch.zeros_like(best, dtype=torch.bool)
        for name, drafter in drafters.items():
            proposed = _log_probabilities(drafter, inputs)[:, prefix - 1 :].topk(count, -1).indices
            hits[name] += (proposed == best).any(-1).float().mean().item() / len(texts)
            in_union |= proposed[..., :1] == best
        hits["union"] += in_union.float().mean().item() / len(texts)
    return hits


def runs_of(agrees: torch.Tensor, longest: int) -> torch.Tensor:
    """Agreements in a row from each position, at most `longest`: (n, length - longest + 1)."""
    windows = agrees.unfold(1, longest, 1)
    return windows.int().cumprod(-1).sum(-1)


def _agreement_and_overlap(
    teacher: nn.Module, drafter: nn.Module, batch: np.ndarray, prefix: int
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = _inputs(batch, teacher)
    log_p, log_q = (_log_probabilities(one, inputs)[:, prefix - 1 :] for one in (teacher, drafter))
    # A narrow head has only the first tokens of the vocabulary; all other tokens add nothing to the
    # overlap.
    overlap = torch.minimum(log_p[..., : log_q.shape[-1]].exp(), log_q.exp()).sum(-1)
    return log_p.argmax(-1) == log_q.argmax(-1), overlap


@torch.inference_mode()
def _log_probabilities(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """`log_probabilities` (n, length, V), in passes over _AT_ONCE texts to use less memory."""
    was_training = model.training
    model.train(False)
    starts = range(0, len(inputs), _AT_ONCE)
    log_probs = torch.cat([log_probabilities(model, inputs[i : i + _AT_ONCE]) for i in starts])
    model.train(was_training)
    return log_probs


def _inputs(batch: np.ndarray, model: nn.Module) -> torch.Tensor:
    device = next(model.parameters()).device
    return torch.from_numpy(batch[:, :-1].astype(np.int64)).to(device)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
