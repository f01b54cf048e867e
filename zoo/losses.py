"""Losses of a training step: cross entropy of the next token, or divergence from a teacher.

A loss maps (model, windows) to a weighted sum over positions and the sum of their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.teacher_cache import TeacherCache, TopTokens

__all__ = ["Distillation", "Loss", "Total", "next_token"]


class Total(NamedTuple):
    """The summed cost of positions in nats, and the sum of their weights, both scalars."""

    cost: Tensor
    weight: Tensor

    @property
    def mean(self) -> Tensor:
        """The value to minimise."""
        return self.cost / self.weight


_LEAST_REST = 1e-6  # for `_divergence_with_rest`: a float32 sum may be slightly above 1
Loss = Callable[[nn.Module, Tensor], Total]


def next_token(model: nn.Module, windows: Tensor) -> Total:
    """Cross entropy of the next tokens in nats. `windows`: int64, (batch, length + 1)."""
    logits = model(input_ids=windows[:, :-1], use_cache=False).logits.flatten(0, 1).float()
    targets = windows[:, 1:].flatten()
    cost = functional.cross_entropy(logits, targets, reduction="sum")
    return Total(cost, torch.tensor(float(targets.numel()), device=cost.device))


@dataclass(frozen=True, slots=True)
class Distillation:
    """Forward KL, sum over v of p(v) (log p(v) - log q(v)) in nats, where p is the `teacher`'s and
    q the model's distribution of the next token (SpecInfer 3, learning-based speculator).

    With `memory` (the teacher's cached most probable tokens), all other tokens count as one token,
    which can only make the divergence smaller.

    If one of the `earlier` models has the same most probable token as the teacher at a position,
    the position has the weight `covered`. All other positions have the weight 1. This is collective
    boost-tuning (SpecInfer 3.1) by positions instead of texts.
    """

    teacher: nn.Module
    earlier: Sequence[nn.Module] = ()
    covered: float = 0.1
    memory: TeacherCache | None = None

    def __call__(self, model: nn.Module, windows: Tensor) -> Total:
        inputs = windows[:, :-1]
        if self.memory is None:
            with torch.no_grad():
                teacher = log_probabilities(self.teacher, inputs)
            best = teacher.argmax(-1)
            student = log_probabilities(model, inputs)
            # A narrow head has only the first tokens. Terms of other tokens do not depend on the
            # student.
            teacher = teacher[..., : student.shape[-1]]
            each = functional.kl_div(student, teacher, log_target=True, reduction="none").sum(-1)
        else:
            top_tokens = self.memory.top_tokens(inputs)
            best = top_tokens.ids[..., 0]
            each = _divergence_with_rest(top_tokens, log_probabilities(model, inputs))
        with torch.no_grad():
            weights = self.weights(inputs, best)
        return Total((each * weights).sum(), weights.sum())

    def weights(self, inputs: Tensor, best: Tensor) -> Tensor:
        """Weights (batch, length); `best` (batch, length): the teacher's likeliest tokens."""
        weights = torch.ones_like(best, dtype=torch.float32)
        for model in self.earlier:
            agrees = log_probabilities(model, inputs).argmax(-1) == best
            weights = weights.masked_fill(agrees, self.covered)
        return weights


def _divergence_with_rest(top_tokens: TopTokens, student: Tensor) -> Tensor:
    """The divergence (batch, length). All tokens that are not in `top_tokens`, or not in the
    student's head, count as one token: the rest. `student`: log-probabilities."""
    in_head = top_tokens.ids < student.shape[-1]
    log_q = student.gather(-1, top_tokens.ids.where(in_head, 0))
    p, q = top_tokens.log_p.exp() * in_head, log_q.exp() * in_head
    p_rest, q_rest = ((1 - each.sum(-1)).clamp(min=_LEAST_REST) for each in (p, q))
    return (p * (top_tokens.log_p - log_q)).sum(-1) + p_rest * (p_rest / q_rest).log()


def log_probabilities(model: nn.Module, inputs: Tensor) -> Tensor:
    """Log-probabilities of the next tokens: float32, (batch, length, V)."""
    logits: Tensor = model(input_ids=inputs, use_cache=False).logits
    return logits.float().log_softmax(-1)
