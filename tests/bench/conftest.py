from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from bench import contestants
from bench.context import Context
from bench.ggml import peer
from bench.prompts import load_prompts, take_round_robin
from bench.results import Results
from bench.settings import Settings
from bench.suites import cpu_bundled, cpu_tables, passes
from core import Engine
from core.models.loading.catalog import bundled_llm, bundled_ssms
from core.models.loading.load import LoadedModels
from core.speculation_length.cost_model import ledger

TINY = Settings(prompts=2, tokens=8, repeats=1, dtypes=("float32",), threads=1)


@pytest.fixture(scope="session", autouse=True)
def _timed_once() -> Iterator[None]:
    """A model's passes are timed once for all its engines. A transformers module is loaded once for
    all contestants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "measure_verify_costs", cache(ledger.measure_verify_costs))
        load_module = cache(contestants.load_module)
        for module in (contestants, cpu_tables, passes):
            patch.setattr(module, "load_module", load_module)
        yield


@pytest.fixture(scope="session")
def family(bundled: Engine) -> LoadedModels:
    """The bundled models in float32."""
    return bundled.models


@pytest.fixture(scope="session")
def modules(_timed_once: None) -> None:
    """Loads transformers' modules before the first test that uses them: a test's time is
    limited."""
    for folder in (bundled_llm(), *bundled_ssms()):
        contestants.load_module(folder, torch.float32)


@pytest.fixture
def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that check no speed."""
    monkeypatch.setattr(cpu_bundled, "SWEEP_PROMPTS", 2)
    monkeypatch.setattr(passes, "PASSES", 3)


@pytest.fixture(autouse=True)
def _without_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp counts as not installed: tests see the same contestants on every machine."""
    monkeypatch.setattr(peer, "PACKAGES", ("no_such_package",))


@pytest.fixture
def make_context(family: LoadedModels, tmp_path: Path) -> Callable[..., Context]:
    """Makes a Context with two prompts, eight new tokens each. `changes` override the settings of
    TINY. A further call continues the same results file."""

    def make(say: Callable[[str], None] = lambda message: None, **changes: object) -> Context:
        settings = TINY.with_changes(**changes)
        results = Results.open(tmp_path / "out.json", {"settings": settings.to_plain()})
        prompts = load_prompts()
        chosen = take_round_robin(prompts, settings.prompts)
        return Context(settings, chosen, prompts, results, lambda dtype: family, say)

    return make
