"""Fixtures of the tests of loading: a complete folder, and a copy of it to damage."""

import shutil
from pathlib import Path

import pytest

from tests.core.models.folders import save_tiny_model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete folder of a tiny Llama and its tokenizer."""
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of `whole` to damage."""
    return Path(shutil.copytree(whole, tmp_path / "mine"))
