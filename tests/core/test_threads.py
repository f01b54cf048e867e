"""Threads of a CPU pass: one core is left to everybody else, unless a number is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from core.errors import ConfigError
from core.threads import use_threads


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7), (None, 1)])
def test_one_core_is_left(cores: int | None, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert use_threads() == threads == torch.get_num_threads()


def test_a_number_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert use_threads(4) == torch.get_num_threads() == 4
    for wrong in (0, 5, -1, 1.5):
        with pytest.raises(ConfigError, match=rf"^threads is {wrong}: a whole number from 1 to 4$"):
            use_threads(wrong)  # type: ignore[arg-type]
