"""One model in training: weights, optimizer and data order, with all state for checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from zoo.data_order import DataOrder
from zoo.losses import Loss, Total, next_token
from zoo.models import autocast
from zoo.parallel_gradients import ParallelGradients
from zoo.presets import ModelRecipe, Preset, Schedule

__all__ = ["Trainer", "learning_rate", "new_model", "window_length"]

_SMOOTHING = 0.05  # weight of the newest step in the running loss, after the first 20 steps


def new_model(recipe: ModelRecipe, preset: Preset, vocab_size: int, seed: int) -> LlamaForCausalLM:
    """The recipe's architecture with random float32 weights, determined by `seed`."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        head_dim=recipe.head_dim,
        max_position_embeddings=preset.max_position_embeddings,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    # Weights are drawn from the global generator on the CPU; its state is restored.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def learning_rate(schedule: Schedule, peak: float, fraction: float) -> float:
    """Linear warm-up from `peak` / 10 to `peak`, then a cosine down to `peak` x `final_rate`."""
    warmup = schedule.warmup_fraction
    if fraction < warmup:
        return peak * (0.1 + 0.9 * fraction / warmup)
    progress = min((fraction - warmup) / (1.0 - warmup), 1.0)
    cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
    return peak * (schedule.final_rate + (1.0 - schedule.final_rate) * cosine)


def window_length(schedule: Schedule, fraction: float) -> int:
    """Tokens in a window: short for most of the budget, longer for its last part."""
    late = fraction >= 1.0 - schedule.late_fraction
    return schedule.late_context if late else schedule.context


@dataclass(slots=True)
class Trainer:
    """The state of one training run. `running_loss` stays on the device: steps need not wait."""

    recipe: ModelRecipe
    schedule: Schedule
    model: PreTrainedModel
    optimizer: torch.optim.AdamW
    order: DataOrder
    loss_function: Loss = next_token
    sharing: ParallelGradients = field(default_factory=lambda: ParallelGradients(1))
    num_steps: int = 0
    num_tokens: int = 0
    running_loss: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        recipe: ModelRecipe,
        schedule: Schedule,
        model: PreTrainedModel,
        order: DataOrder,
        loss_function: Loss = next_token,
    ) -> Trainer:
        """A run that starts with the model's present weights."""
        model.train()
        return cls(recipe, schedule, model, _optimizer(model, schedule), order, loss_function)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def step(self, fraction: float) -> None:
        """One optimizer step. `fraction`: the part of the time budget that is spent."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.schedule, self.recipe.learning_rate, fraction)
        loss = self._backward(self._next_windows(fraction))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.schedule.max_gradient_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.num_steps += 1
        # The mean of the first steps, later an exponential moving average.
        before = loss if self.running_loss is None else self.running_loss
        self.running_loss = before.lerp(loss, max(_SMOOTHING, 1.0 / self.num_steps))

    def _next_windows(self, fraction: float) -> torch.Tensor:
        length = window_length(self.schedule, fraction)
        size = max(self.recipe.tokens_per_step // length, 1)
        self.num_tokens += size * length
        return torch.from_numpy(self.order.next_batch(size, length)).to(self.device)

    def _backward(self, windows: torch.Tensor) -> torch.Tensor:
        def total_of(part: torch.Tensor) -> Total:
            with autocast(self.device):
                return self.loss_function(self.model, part)

        return self.sharing.set_gradients(total_of, windows, list(self.model.parameters()))

    def loss(self) -> float:
        """The running mean of the training loss in nats a token; waits for the device."""
        return float("nan") if self.running_loss is None else self.running_loss.item()

    # -- saving --

    def state(self) -> dict[str, Any]:
        """Tensors and plain values from which training resumes."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order.state(),
            "num_steps": self.num_steps,
            "num_tokens": self.num_tokens,
            "running_loss": self.running_loss,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores the `state()` of a trainer of the same recipe."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.order.load_state(state["order"])
        self.num_steps, self.num_tokens = state["num_steps"], state["num_tokens"]
        loss = state["running_loss"]
        self.running_loss = None if loss is None else loss.to(self.device)


def _optimizer(model: PreTrainedModel, schedule: Schedule) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    gains = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": schedule.weight_decay},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=True)
