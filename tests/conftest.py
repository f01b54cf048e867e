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
