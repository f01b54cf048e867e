"""A LanguageModel without a network: logits looked up in a table, of any vocabulary.

For measuring what the engine itself costs at vocabularies for which no model is at hand. Token ids
above those of the borrowed tokenizer are never likely, so that every token has a text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from core.events import ModelInfo
from core.models.loading.load import LoadedModels
from core.models.protocol import Feed

__all__ = ["SyntheticModel", "synthetic_family"]

TABLE_ROWS = 64
CONTEXT = 1024
LIKELY = 40.0  # far enough that no noise lifts a token without a text
AGREEMENT = 1.5  # how much an SSM's table differs from the LLM's


class SyntheticModel:
    """See LanguageModel. The logits after a token depend on that token alone."""

    def __init__(self, info: ModelInfo, table: torch.Tensor) -> None:
        self.info = info
        self.vocab_size = table.shape[1]
        self.context_length = CONTEXT
        self.device = table.device
        self.slots = CONTEXT
        self._table = table
        self._lengths: dict[int, int] = {}

    def open_row(self) -> int:
        row = next(i for i in range(len(self._lengths) + 1) if i not in self._lengths)
        self._lengths[row] = 0
        return row

    def close_row(self, row: int) -> None:
        self._lengths.pop(row, None)

    def length(self, row: int) -> int:
        return self._lengths[row]

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        wanted = [feed.token_ids[-1:] if feed.last_only else feed.token_ids for feed in feeds]
        return [self._table[[token_id % TABLE_ROWS for token_id in ids]] for ids in wanted]

    def commit(self, row: int, nodes: Sequence[int]) -> None:
        self._lengths[row] += len(nodes)


def synthetic_family(models: LoadedModels, vocab_size: int, seed: int = 0) -> LoadedModels:
    """A family like `models`, of `vocab_size`, borrowing its tokenizer and its names."""
    known = min(models.llm.vocab_size, vocab_size)
    generator = torch.Generator().manual_seed(seed)

    def noise() -> torch.Tensor:
        return torch.randn((TABLE_ROWS, vocab_size), generator=generator)

    table = noise()
    table[:, :known] = 3 * table[:, :known] + LIKELY

    def model(info: ModelInfo, logits: torch.Tensor) -> Any:
        own = dataclasses.replace(info, vocab_size=vocab_size, context_length=CONTEXT)
        return SyntheticModel(own, logits)

    ssms = {
        name: model(each.info, table + AGREEMENT * noise()) for name, each in models.ssms.items()
    }
    return dataclasses.replace(models, llm=model(models.llm.info, table), ssms=ssms)
