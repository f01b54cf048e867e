"""Several students of one shape that share one embedding, trained together on an LLM's answers.

Each student learns from all texts, with a weight for each kind of question. The students'
parameters are stacked along a leading dimension. One batched product for all students keeps a GPU
busy; the products of one small model would not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from core.errors import ConfigError
from core.models.layer_ops import cos_sin_table, rotate
from core.models.lean import LeanLayer, LeanWeights, map_tensors
from zoo.initial_weights import narrow_embeddings
from zoo.own_answers import TrainingTokens
from zoo.presets import Schedule
from zoo.trainer import learning_rate

__all__ = [
    "StudentBatch",
    "StudentShape",
    "SharedTrainer",
    "SoftCrossEntropy",
    "hidden_states",
    "member",
    "new_students",
]

# Standard deviations of new weights. A matrix whose product is added to the residual stream has its
# deviation divided by the square root of the number of these additions, as in GPT-2.
EMBEDDING, MATRIX, DOWN = 0.03, 0.03, 0.02
EPS, ROPE_THETA = 1e-5, 10_000.0
SCHEDULE = Schedule(warmup_fraction=0.05, final_rate=0.03, weight_decay=0.05, max_gradient_norm=2.0)
PEAK_RATE = 3e-3
# Positions whose logits are in memory at once.
CHUNK = 16_384


@dataclass(frozen=True, slots=True)
class StudentShape:
    """The shape of each student. `head`: only ids below it have logits (see
    `core.models.loading.narrow_head`)."""

    layers: int = 4
    hidden: int = 256
    intermediate: int = 704
    head_size: int = 64
    head: int = 16_384


@dataclass(frozen=True, slots=True)
class StudentBatch:
    """The most windows of a training step, and the tokens of each window."""

    windows: int = 24
    length: int = 1024


def new_students(shape: StudentShape, count: int, wide: Tensor, seed: int) -> LeanWeights:
    """Random students, stacked: matrices (count, inputs, outputs), norms (count, hidden). The
    students share one embedding (V, hidden), the principal components of the LLM's embedding `wide`
    (V, the LLM's width)."""
    noise = torch.Generator(wide.device).manual_seed(seed)

    def normal(*size: int, scale: float) -> Tensor:
        return torch.randn(size, generator=noise, device=wide.device) * scale

    hidden, inner = shape.hidden, shape.intermediate
    embedding = narrow_embeddings(wide.float(), normal(len(wide), hidden, scale=EMBEDDING))
    # Scaled as random embeddings would be, since the LLM's embeddings may be larger or smaller.
    embedding *= EMBEDDING / embedding.pow(2).mean().sqrt()
    ones = torch.ones(count, hidden, device=wide.device)
    shrink = (2 * shape.layers) ** -0.5
    layers = [
        LeanLayer(
            input_norm=ones.clone(),
            qkv=normal(count, hidden, 3 * hidden, scale=MATRIX),
            out=normal(count, hidden, hidden, scale=MATRIX * shrink),
            post_norm=ones.clone(),
            gate_up=normal(count, hidden, 2 * inner, scale=MATRIX),
            down=normal(count, inner, hidden, scale=DOWN * shrink),
            q_norm=None, k_norm=None, sliding=False,
            qkv_bias=None, out_bias=None, gate_up_bias=None, down_bias=None,
        )
        for _ in range(shape.layers)
    ]  # fmt: skip
    halves = torch.arange(0, shape.head_size, 2, device=wide.device) / shape.head_size
    heads = hidden // shape.head_size
    return LeanWeights(
        embedding=embedding,
        layers=tuple(layers),
        norm=ones,
        head=embedding.t()[:, : shape.head],
        inverse=ROPE_THETA**-halves,
        rope_scale=1.0,
        eps=EPS,
        heads=heads,
        kv_heads=heads,
        head_size=shape.head_size,
    )


def member(students: LeanWeights, number: int) -> LeanWeights:
    """One student, with the shared embedding."""
    layers = tuple(
        replace(layer, **{name: tensor[number] for name, tensor in _tensors(layer).items()})
        for layer in students.layers
    )
    return replace(students, layers=layers, norm=students.norm[number])


def hidden_states(w: LeanWeights, ids: Tensor) -> Tensor:
    """The last hidden states, after the norm, (students, windows x length, hidden), for ids
    (windows, length)."""
    windows, length = ids.shape
    students, tokens = len(w.norm), windows * length
    cos_sin = [
        part[:, None].to(w.norm.dtype) for part in cos_sin_table(w.inverse, w.rope_scale, length)
    ]
    x = F.embedding(ids.reshape(-1), w.embedding).expand(students, -1, -1)
    for layer in w.layers:
        qkv = torch.bmm(_rms_norm(x, layer.input_norm, w.eps), layer.qkv)
        # Attention stays within a window: the windows of all students are one dimension, (students
        # x windows, length, heads, size).
        qkv = qkv.view(students * windows, length, -1, w.head_size)
        both = rotate(qkv[:, :, : 2 * w.heads], (cos_sin[0], cos_sin[1]))
        parts = both[:, :, : w.heads], both[:, :, w.heads :], qkv[:, :, 2 * w.heads :]
        q, k, v = (part.transpose(1, 2) for part in parts)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + torch.bmm(attention.reshape(students, tokens, -1), layer.out)
        gate, up = torch.bmm(_rms_norm(x, layer.post_norm, w.eps), layer.gate_up).chunk(2, -1)
        x = x + torch.bmm(F.silu(gate) * up, layer.down)
    return _rms_norm(x, w.norm, w.eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], None, eps) * weight[:, None]


class SoftCrossEntropy(torch.autograd.Function):
    """The weighted mean over positions of - sum over v of p(v) log q(v), in nats. p: the LLM's kept
    probabilities, of tokens that the head has; q: the softmax of hidden x head.

    The gradient is computed in the forward pass, chunk by chunk, so that no logits are kept or
    computed twice. The gradient with respect to the logits is w (m q - p), with m = sum of p and w
    the position's normalised weight.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, top_ids: Tensor, top_probs: Tensor, weights: Tensor
    ) -> Tensor:
        """`hidden` (n, d), `head` (d, V); `top_ids`, `top_probs` (n, k), `weights` (n,)."""
        w = weights / weights.sum()
        in_head = top_ids < head.shape[1]
        top_ids, top_probs = top_ids.long().where(in_head, 0), top_probs.float() * in_head
        hidden_gradient = torch.empty_like(hidden)
        head_gradient = torch.zeros(head.shape, device=head.device)
        cost = torch.zeros((), device=head.device)
        for first in range(0, len(hidden), CHUNK):
            part = slice(first, first + CHUNK)
            x, ids, p, weight = hidden[part], top_ids[part], top_probs[part], w[part, None]
            log_q = (x @ head).float().log_softmax(-1)
            cost -= (weight * p * log_q.gather(1, ids)).sum()
            grad = log_q.exp_().mul_(p.sum(-1, keepdim=True) * weight)
            grad = grad.scatter_add_(1, ids, -p * weight).to(x.dtype)
            hidden_gradient[part] = grad @ head.t()
            head_gradient += (x.t() @ grad).float()
        ctx.save_for_backward(hidden_gradient, head_gradient.to(head.dtype))
        return cost

    @staticmethod
    def backward(ctx: Any, *scale: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, head_gradient = ctx.saved_tensors
        return hidden_gradient * scale[0], head_gradient * scale[0], None, None, None


class SharedTrainer:
    """Takes training steps. `kind_weights` (students, kinds): how much a token of a kind counts for
    a student. `dtype`: the type of the matrix products (the parameters themselves are float32).
    Raises ConfigError if there are too few tokens for a window that begins with a text."""

    def __init__(
        self,
        students: LeanWeights,
        tokens: TrainingTokens,
        kind_weights: Sequence[Sequence[float]],
        batch: StudentBatch,
        dtype: torch.dtype,
        seed: int = 0,
    ) -> None:
        self.students = students
        self.num_steps = self.num_tokens = self.num_targets = 0
        self._tokens, self._batch, self._dtype = tokens, batch, dtype
        device = tokens.ids.device
        self._kind_weights = torch.tensor(kind_weights, device=device)
        # A window begins with a text; the texts after it fill the window.
        self._starts = tokens.starts[tokens.starts <= len(tokens.ids) - batch.length]
        if not len(self._starts):
            allowed = f"at least {batch.length}; raise generation_minutes"
            raise ConfigError.of("num_tokens", len(tokens.ids), allowed)
        self._noise = torch.Generator(device).manual_seed(seed)
        self._order = self._starts[:0]
        of_layers = [tensor for layer in students.layers for tensor in _tensors(layer).values()]
        self._parameters = [students.embedding, students.norm, *of_layers]
        for parameter in self._parameters:
            parameter.requires_grad_(True)
        # Stacked matrices decay, the embedding and the gains of norms do not.
        matrices = [p for p in self._parameters if p.dim() == 3]
        others = [p for p in self._parameters if p.dim() < 3]
        groups = [
            {"params": matrices, "weight_decay": SCHEDULE.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=True)

    @property
    def weights(self) -> LeanWeights:
        """The students in the dtype of the products."""
        return map_tensors([self.students], lambda parts: parts[0].to(self._dtype))

    def step(self, fraction: float) -> Tensor:
        """One optimizer step after `fraction` of the time; returns the students' losses."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(SCHEDULE, PEAK_RATE, fraction)
        losses = self._losses()
        losses.sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._parameters, SCHEDULE.max_gradient_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.num_steps += 1
        return losses.detach()

    def state(self) -> dict[str, Any]:
        """Tensors and plain values from which training resumes."""
        return {
            "parameters": [parameter.detach() for parameter in self._parameters],
            "optimizer": self._optimizer.state_dict(),
            "noise": self._noise.get_state(),
            "order": self._order.clone(),
            "counts": (self.num_steps, self.num_tokens, self.num_targets),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores the `state()` of a trainer of the same students and tokens."""
        with torch.no_grad():
            for parameter, stored in zip(self._parameters, state["parameters"], strict=True):
                parameter.copy_(stored)
        self._optimizer.load_state_dict(state["optimizer"])
        self._noise.set_state(state["noise"].cpu())
        self._order = state["order"]
        self.num_steps, self.num_tokens, self.num_targets = state["counts"]

    def _losses(self) -> Tensor:
        tokens, w = self._tokens, self.weights
        index = self._next_windows()
        positions = index.flatten()
        # Positions without a target need no logits.
        has_target = (tokens.top_probs[positions, 0] > 0).nonzero()[:, 0]
        self.num_tokens += len(positions)
        self.num_targets += len(has_target)
        hidden = hidden_states(w, tokens.ids[index].long())[:, has_target]
        positions = positions[has_target]
        of_kind = self._kind_weights[:, tokens.kinds[positions].long()]
        targets = tokens.top_ids[positions], tokens.top_probs[positions]
        losses = [
            SoftCrossEntropy.apply(x, w.head, *targets, weights)  # type: ignore[no-untyped-call]
            for x, weights in zip(hidden, of_kind, strict=True)
        ]
        return torch.stack(losses)

    def _next_windows(self) -> Tensor:
        """Indices (windows, length) of tokens; the last batch of an epoch may be smaller."""
        if not len(self._order):
            count, device = len(self._starts), self._starts.device
            order = torch.randperm(count, generator=self._noise, device=device)
            self._order = self._starts[order]
        starts = self._order[: self._batch.windows]
        self._order = self._order[self._batch.windows :]
        return starts[:, None] + torch.arange(self._batch.length, device=starts.device)


def _tensors(layer: LeanLayer) -> dict[str, Any]:
    parts = ((field.name, getattr(layer, field.name)) for field in fields(layer))
    return {name: part for name, part in parts if isinstance(part, Tensor)}
