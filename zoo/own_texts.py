"""The LLM's own continuations of corpus prefixes, in batches of one shape; each batch is a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from core.errors import ConfigError
from core.models.forward import cache_argument
from core.plurals import number_of
from zoo.files import replace_file
from zoo.tokenizer import token_id_dtype

__all__ = ["HELD_OUT_FORM", "TRAIN_FORM", "BatchShape", "OwnTexts", "continue_prefixes"]


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The shape of a batch: the number of its texts, the number of tokens in each text, and the
    prefix lengths and temperatures that successive batches take in turn."""

    texts: int = 64
    length: int = 257
    prefixes: tuple[int, ...] = (16, 64, 32, 128)
    temperatures: tuple[float, ...] = (0.8, 1.0, 0.8, 0.0)


TRAIN_FORM = BatchShape()
# Greedy and sampled batches in turn; measurements use the positions after the prefix.
HELD_OUT_FORM = BatchShape(texts=16, length=129, prefixes=(48,), temperatures=(0.0, 0.8))


@dataclass(frozen=True, slots=True)
class OwnTexts:
    """A teacher's texts, stored in `folder`. `tokens`: the rows that prefixes are taken from, with
    `separator` before each document."""

    teacher: PreTrainedModel
    tokens: Mapping[str, np.ndarray]
    folder: Path
    form: BatchShape
    seed: int = 0
    separator: int = 0

    def prefix(self, number: int) -> int:
        """How many tokens of each text in batch `number` come from the corpora."""
        return self.form.prefixes[number % len(self.form.prefixes)]

    def batch(
        self, domain: str, number: int, say: Callable[[str], None] = lambda _: None
    ) -> np.ndarray:
        """The ids of one batch, (texts, length); generated and stored if it is not stored yet."""
        path = self.folder / f"{domain}-{number:04}.npy"
        if path.is_file():
            return self._read(path)
        windows = self._generate_batch(domain, number)
        replace_file(path, lambda file: np.save(file, windows))
        say(f"{domain}: batch {number + 1} of the LLM's own texts")
        return windows

    def _read(self, path: Path) -> np.ndarray:
        try:
            tokens: np.ndarray = np.load(path)
        except (OSError, ValueError, EOFError) as error:
            raise ConfigError.of("out", str(path), "a batch of texts; remove it") from error
        if tokens.shape != (self.form.texts, self.form.length):
            raise ConfigError.of("out", str(path), "texts of the same form; remove it")
        return tokens

    def _generate_batch(self, domain: str, number: int) -> np.ndarray:
        form = self.form
        domains = sorted(self.tokens)
        # Each batch has its own noise, so that a missing batch is generated with the same texts.
        noise = np.random.default_rng((self.seed, domains.index(domain), number))
        prefixes = self._prefixes(self.tokens[domain], self.prefix(number), noise)
        temperature = form.temperatures[number % len(form.temperatures)]
        seed = int(noise.integers(2**63))
        return continue_prefixes(self.teacher, prefixes, form.length, temperature, seed)

    def _prefixes(self, row: np.ndarray, length: int, noise: np.random.Generator) -> np.ndarray:
        """(texts, length); every other prefix begins a document, if the row has separators."""
        last = len(row) - length
        if last < 1:
            raise ConfigError.of(
                "corpora", len(row), f"more than {number_of(length, 'token')} of a domain"
            )
        begins = np.flatnonzero(row[: last + 1] == self.separator)
        starts = noise.integers(last, size=self.form.texts)
        if len(begins):
            starts[::2] = noise.choice(begins, size=len(starts[::2]))
        return np.stack([row[start : start + length] for start in starts]).astype(np.int64)


@torch.inference_mode()
def continue_prefixes(
    model: PreTrainedModel, prefixes: np.ndarray, length: int, temperature: float, seed: int
) -> np.ndarray:
    """Continues prefixes (texts, n) int64 with a model; returns ids (texts, length). An end-of-text
    token does not stop the generation: another text begins after it."""
    was_training = model.training
    model.train(False)
    device = model.device
    noise = torch.Generator(device).manual_seed(seed)
    columns = [torch.from_numpy(prefixes).to(device)]
    cache = DynamicCache(config=model.config)
    cache_arguments: dict[str, Any] = {cache_argument(model): cache, "use_cache": True}
    for _ in range(length - prefixes.shape[1]):
        out = model(input_ids=columns[-1], **cache_arguments)
        columns.append(_sample(out.logits[:, -1].float(), temperature, noise))
    model.train(was_training)
    token_ids: np.ndarray = torch.cat(columns, 1).cpu().numpy()
    return token_ids.astype(token_id_dtype(model.config.vocab_size))


def _sample(logits: torch.Tensor, temperature: float, noise: torch.Generator) -> torch.Tensor:
    if temperature == 0.0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=noise)
