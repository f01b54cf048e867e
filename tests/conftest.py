"""Shared by all tests: one torch thread, float32 as written, no network."""

from __future__ import annotations

import os

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long goes first: whoever came to such a file last would keep all waiting."""
    items.sort(key=_haste)


def _haste(item: pytest.Item) -> int:
    """0 for what drives a browser, 1 for what trains or enumerates, 2 for the thousands of rest."""
    if item.get_closest_marker("browser"):
        return 0
    return 1 if {"laws", "zoo"} & {folder.name for folder in item.path.parents} else 2


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than cores: a test of the page waits half its time for a browser."""
    return (os.cpu_count() or 1) + 1
