"""Fixtures, and the mark of the folder's tests."""

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core import load_models
from core.models.loading.load import LoadedModels
from tests.zoo.chat_models import llm_folder
from tests.zoo.small import SMALL, TickingClock
from zoo.prepare import Inputs, prepare
from zoo.presets import Preset
from zoo.tokens import TokenStore, open_tokens
from zoo.train import TrainingRun


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("gpu"):
            item.add_marker("nightly")


@pytest.fixture(autouse=True)
def _few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.distil._PROMPTS", 2)
    monkeypatch.setattr("zoo.distil._MEASURED_TOKENS", 18)  # the fewest that are allowed


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests must not change this folder."""
    out = tmp_path_factory.mktemp("prepared")
    prepare(SMALL, Inputs(), out)
    return out


@pytest.fixture
def store(prepared_folder: Path, tmp_path: Path) -> TokenStore:
    return open_tokens(shutil.copytree(prepared_folder, tmp_path / "family"))


@pytest.fixture
def ticking_run(store: TokenStore) -> Callable[..., TrainingRun]:
    """Makes a training run of `preset` with `num_steps` steps of the first model. Other models'
    steps are in proportion to their budget shares."""

    def make(preset: Preset, num_steps: int, **changes: object) -> TrainingRun:
        shares = sum(each.budget_share for each in preset.models)
        minutes = (num_steps - 0.5) / 60.0 * shares / preset.models[0].budget_share
        run = TrainingRun(preset, store, minutes, torch.device("cpu"), stream=io.StringIO())
        return replace(run, clock=TickingClock(), **changes)

    return make


@pytest.fixture
def models(tmp_path: Path) -> LoadedModels:
    return load_models(str(llm_folder(tmp_path / "llm")), [], "float32", "cpu")
