"""Counts from an LLM's distributions, as `python -m zoo tables` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.drafters.count_table import ONCE
from core.errors import ConfigError
from core.models.loading.count_file import FILE, read_counts
from tests.zoo.test_distil import family, taught_folder, teach  # noqa: F401  # fixtures
from zoo.count_tables import count_texts, write_counts
from zoo.distil import Teaching
from zoo.teacher_cache import TeacherCache

VOCABULARY, LENGTH = 12, 8


class Cyclic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        one = torch.nn.functional.one_hot((input_ids + 1) % VOCABULARY, VOCABULARY)
        two = torch.nn.functional.one_hot((input_ids + 2) % VOCABULARY, VOCABULARY)
        logits = (0.75 * one + 0.25 * two + 1e-9).log()

        class Out:
            pass

        out = Out()
        out.logits = logits  # type: ignore[attr-defined]
        return out


def test_the_llms_probable_tokens_are_counted(tmp_path: Path) -> None:
    texts = {"a": np.arange(4 * LENGTH + 1, dtype=np.uint16) % VOCABULARY}
    distributions = TeacherCache(Cyclic(), tmp_path, texts, LENGTH, 3)
    rows, num_tokens = count_texts(texts, distributions, LENGTH)
    assert num_tokens == 4 * LENGTH
    (row,) = rows[(rows[:, 15] == 1) & (rows[:, 0] == 5)]
    weights = {int(i): int(w) >> 2 for i, w in zip(row[:7], row[7:14], strict=True) if w}
    assert set(weights) == {5, 6}
    assert weights[5] / (weights[5] + weights[6]) == pytest.approx(0.75, abs=0.02)
    assert (weights[5] + weights[6]) % ONCE <= 2 or (weights[5] + weights[6]) % ONCE >= ONCE - 2


def test_the_heaviest_rows_are_written_and_read_again(
    teach: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    _, teaching = teach(1)
    teaching = Teaching(teaching.run, teaching.llm, own_share=0.0, remembered=4, corpus_tokens=2000)
    line = write_counts(teaching, tmp_path, 50)
    assert line.startswith(str(tmp_path / FILE)) and ": 50 of " in line
    rows = read_counts(tmp_path, teaching.run.store.manifest.vocab_size)
    assert rows is not None and rows.shape == (50, 16)


def test_distributions_that_are_not_cached_are_refused(
    teach: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    _, teaching = teach(1)
    with pytest.raises(ConfigError, match="remembered is 0"):
        write_counts(teaching, tmp_path, 50)
