"""Generates a chat LLM's texts in large batches, with the most probable tokens at each position."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from core.errors import ConfigError
from core.models.fastest import torch_forward
from core.models.forward import KeysValues
from core.models.hf_model import HfModel
from core.models.loading.load import LoadedModels
from core.models.machine import available_bytes, without_cudnn_attention

__all__ = ["TOP", "BatchGenerator", "Generated", "BatchLimits"]

TOP = 32
"""How many probabilities of each distribution are kept; only their tokens are sampled."""
# The most texts of a batch; larger batches are no faster.
LARGEST_BATCH, LARGEST_BATCH_ON_CPU = 3072, 64
PREFILL_TEXTS = 512  # texts in one forward pass over prompts
# The number of KV slots is rounded up to a multiple of EXTENT: attention kernels need aligned
# masks, and memory is allocated in few sizes.
EXTENT = 64
CHECKED_EVERY = 16  # tokens; each check for ended texts waits for the device


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch ends: after `max_new_tokens` of each text, once the share `ended_share` of its
    texts has ended, or at the `deadline`, in seconds of the generator's clock. Share and deadline
    are checked every CHECKED_EVERY tokens."""

    max_new_tokens: int
    ended_share: float = 1.0
    deadline: float = math.inf


class Generated(NamedTuple):
    """Texts of a batch, padded on the left so that all new tokens begin in the column `first_new`.

    `ids` (texts, columns): a text begins in the column `starts` and ends before the column `ends`,
    both (texts,). If a text has an end token, the end token is its last token. `top_ids` int32 and
    `top_probs` float16 (texts, new columns, TOP): the most probable tokens for each new column and
    their probabilities at temperature 1, descending.
    """

    ids: Tensor
    starts: Tensor
    ends: Tensor
    first_new: int
    top_ids: Tensor
    top_probs: Tensor

    def new_tokens(self) -> Iterator[list[int]]:
        """The tokens of each text after its prompt."""
        for row, end in zip(self.ids.tolist(), self.ends.tolist(), strict=True):
            yield row[self.first_new : end]


class BatchGenerator:
    """Generates texts of an LLM in batches. Raises ConfigError if the LLM is not Llama-like or has
    an attention window."""

    def __init__(
        self, models: LoadedModels, seed: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        llm = models.llm
        if not isinstance(llm, HfModel) or llm.lean_weights is None or llm.masks.window:
            raise ConfigError.of("llm", llm.info.name, "a Llama-like model without a window")
        self.weights = llm.lean_weights
        self._forward = torch_forward(llm.lean_weights, llm.masks)
        self.device, self._dtype = self._forward.device, self._forward.dtype
        self._ends = torch.tensor(models.eos_ids, dtype=torch.int64, device=self.device)
        self._noise = torch.Generator(self.device).manual_seed(seed)
        self.clock = clock
        if self.device.type == "cuda":
            without_cudnn_attention()

    def state(self) -> Tensor:
        """The state of the noise that texts are sampled with."""
        return self._noise.get_state()

    def load_state(self, state: Tensor) -> None:
        """Restores a state that `state` returned."""
        self._noise.set_state(state.cpu())

    def batch_size(self, tokens: int) -> int:
        """The number of texts in a batch whose texts have `tokens` tokens."""
        shapes = self._forward.shapes
        per_slot = sum(shape.heads * (shape.key_size + shape.value_size) for shape in shapes)
        largest = LARGEST_BATCH if self.device.type == "cuda" else LARGEST_BATCH_ON_CPU
        free = available_bytes(self.device)
        if free is None:
            return largest
        # Keys and values take at most half of the available memory.
        return max(1, min(largest, free // (2 * per_slot * tokens * self._dtype.itemsize)))

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[Sequence[int]], temperatures: Sequence[float], stop: BatchLimits
    ) -> Generated:
        """Continues each prompt at its own temperature (0: greedy), sampling from the TOP most
        probable tokens. A text ends with an end token of the LLM, or when `stop` ends the batch."""
        width = max(map(len, prompts))
        columns = width + stop.max_new_tokens
        ids, starts = self._left_padded(prompts, columns, width)
        kv, slots = self._cache(len(prompts), columns)
        self._forward.reach(slots)
        slot = torch.arange(slots, device=self.device)
        is_text = slot >= starts[:, None]
        logits = self._prefill(ids[:, :width], starts, kv, is_text)
        new = (len(prompts), stop.max_new_tokens, TOP)
        top_ids = torch.zeros(new, dtype=torch.int32, device=self.device)
        top_probs = torch.zeros(new, dtype=torch.float16, device=self.device)
        temperature = torch.tensor(temperatures, dtype=torch.float32, device=self.device)[:, None]
        ends = torch.full_like(starts, columns)
        for column in range(width, columns):
            step = column - width
            if step and step % CHECKED_EVERY == 0 and self._is_over(ends < columns, stop):
                columns = column
                break
            top, order = logits.topk(TOP)
            top_ids[:, step] = order
            top_probs[:, step] = (top - logits.logsumexp(-1, keepdim=True)).exp()
            ids[:, column] = self._sample(top, order, temperature)
            new_ends = torch.isin(ids[:, column], self._ends) & (ends > column)
            ends = ends.where(~new_ends, column + 1)
            if column + 1 < columns:
                extent = _round_up(column + 1)
                visible = (is_text & (slot <= column))[:, None, :extent]
                position = (column - starts)[:, None]
                logits = self._pass(ids[:, column : column + 1], position, kv, column, visible)
        count = columns - width
        ids, ends = ids[:, :columns], ends.clamp(max=columns)
        return Generated(ids, starts, ends, width, top_ids[:, :count], top_probs[:, :count])

    def _left_padded(
        self, prompts: Sequence[Sequence[int]], columns: int, width: int
    ) -> tuple[Tensor, Tensor]:
        """Ids (texts, columns), and the column in which each text begins (texts,)."""
        ids = torch.zeros(len(prompts), columns, dtype=torch.int64)
        for row, prompt in zip(ids, prompts, strict=True):
            row[width - len(prompt) : width] = torch.tensor(prompt)
        starts = torch.tensor([width - len(prompt) for prompt in prompts])
        return ids.to(self.device), starts.to(self.device)

    def _cache(self, texts: int, columns: int) -> tuple[Tensor, int]:
        """Keys and values (layers, 2, texts, heads, slots, size), and the number of slots."""
        shapes, slots = self._forward.shapes, _round_up(columns)
        size = (len(shapes), 2, texts, shapes[0].heads, slots, shapes[0].key_size)
        return torch.zeros(size, dtype=self._dtype, device=self.device), slots

    def _prefill(self, ids: Tensor, starts: Tensor, kv: Tensor, is_text: Tensor) -> Tensor:
        """Logits (texts, V) after the prompts. `is_text` (texts, slots): false for padding."""
        width = ids.shape[1]
        column = torch.arange(width, device=self.device)
        slots = torch.arange(_round_up(width), device=self.device)
        logits = []
        for first in range(0, len(ids), PREFILL_TEXTS):
            part = slice(first, first + PREFILL_TEXTS)
            visible = (slots <= column[:, None]) & is_text[part, None, : len(slots)]
            positions = (column - starts[part, None]).clamp(min=0)
            logits.append(self._pass(ids[part], positions, kv[:, :, part], 0, visible))
        return torch.cat(logits)

    def _pass(
        self, ids: Tensor, positions: Tensor, kv: Tensor, first: int, visible: Tensor
    ) -> Tensor:
        """Logits (texts, V), float32, after the last token of `ids` (texts, width). `first`: the
        slot of the first token. `visible` (texts, width, extent): the slots that each token sees.
        """
        width, extent = visible.shape[1:]

        def write(layer: int, keys: Tensor, values: Tensor) -> KeysValues:
            layer_kv = kv[layer]
            for store, new in zip(layer_kv, (keys, values), strict=True):
                store[:, :, first : first + width] = new
            return layer_kv[0, :, :, :extent], layer_kv[1, :, :, :extent]

        hidden = torch.zeros(visible.shape, dtype=self._dtype, device=self.device)
        # Not -inf: a padded query that sees no slot would become NaN, and so would its stored keys
        # and values.
        mask = hidden.masked_fill_(~visible, torch.finfo(self._dtype).min)[:, None]
        logits = self._forward.over(ids, positions, (mask, mask), write, last_only=True)
        return logits[:, 0].float()

    def _sample(self, top: Tensor, order: Tensor, temperature: Tensor) -> Tensor:
        """One token per text (texts,). `order`: the ids of the largest logits `top`."""
        # Clamped for greedy texts, whose drawn token is not used.
        p = (top / temperature.clamp(min=0.01)).softmax(-1)
        token_ids = torch.multinomial(p, 1, generator=self._noise)
        # The most probable token is first.
        return order.gather(1, token_ids.where(temperature > 0, 0))[:, 0]

    def _is_over(self, has_ended: Tensor, stop: BatchLimits) -> bool:
        return has_ended.float().mean().item() >= stop.ended_share or self.clock() > stop.deadline


def _round_up(slots: int) -> int:
    return -(-slots // EXTENT) * EXTENT
