"""Shared by all tests: one torch thread, float32 as written, no network."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")


@pytest.fixture(scope="session", autouse=True)
def _pinned_arithmetic() -> None:
    """What the exactness laws are pinned to (ALGORITHMS 9.1)."""
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True)
def _no_drafter_is_lost(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Runs go on without a drafter that failed, with the same text: what breaks drafters would go
    unnoticed. A test in which one is meant to fail is marked `loses_drafters`."""
    from core.turn import Live

    lose, lost = Live.lose, []

    def noting(live: Live, index: int, error: BaseException) -> None:
        lost.append(error)
        lose(live, index, error)

    monkeypatch.setattr(Live, "lose", noting)
    yield
    assert not lost or request.node.get_closest_marker("loses_drafters"), lost


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that drive a browser take turns with others: a browser beside a browser starves both,
    and whoever came to a long file last would keep all waiting."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    kinds: list[list[Path]] = [[], []]
    for path in sorted(files, key=lambda path: _haste(files[path][0])):
        kinds[_haste(files[path][0]) > 0].append(path)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*kinds))
    items[:] = [item for path in turns if path is not None for item in files[path]]


def _haste(item: pytest.Item) -> int:
    """0 for what drives a browser, 1 for what trains or enumerates, 2 for the thousands of rest."""
    if item.get_closest_marker("browser"):
        return 0
    return 1 if {"laws", "zoo"} & {folder.name for folder in item.path.parents} else 2
