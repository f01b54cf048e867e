"""Swaps of real models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import Request, SamplingParams, SpeculationConfig
from core.events import RunCompleted
from tests.core.engines import ids_of_events
from tests.core.models.folders import save_tiny_model
from tests.family import SSMS
from tests.ui.fakes import FakeStore
from tests.ui.given_back import load
from tests.ui.model_hosts import wait_settled
from ui.run.source import LiveSource
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair
from ui.server.session import Hub

pytestmark = pytest.mark.nightly


@pytest.fixture
def model_host() -> Iterator[ModelHost]:
    host = ModelHost.open(load, ModelPair("bundled", ("bundled",), "float32", "cpu"))
    yield host
    host.close()


def request_of(tokens: int, prompt: str = "Once upon a time", preset: str = "specinfer") -> Request:
    sampling = SamplingParams(max_new_tokens=tokens, ignore_eos=True)
    return Request(prompt, sampling, SpeculationConfig.preset(preset))


def tokens_of(source: LiveSource) -> list[int]:
    source.wait_done(120)
    events = source.events(0, source.count)
    assert isinstance(events[-1], RunCompleted), events[-1]
    return ids_of_events(events)


def test_a_bundled_llm_with_one_ssm_writes_the_same_text(model_host: ModelHost) -> None:
    hub = Hub(model_host, FakeStore())
    before = tokens_of(hub.start(request_of(40)))
    model_host.begin(ModelPair("bundled", ("ssm-stories",), "float32", "cpu"))
    wait_settled(model_host)
    assert model_host.swap.state == "done" and model_host.names() == ("llm", "ssm-stories")
    assert tokens_of(hub.start(request_of(40))) == before


def test_a_run_is_not_changed_by_models_that_are_loaded_meanwhile(model_host: ModelHost) -> None:
    hub = Hub(model_host, FakeStore())
    expected = tokens_of(hub.start(request_of(120)))
    running = hub.start(request_of(120))
    # A loader changes torch's default dtype while it makes models in bfloat16.
    model_host.begin(ModelPair("bundled", ("bundled",), "bfloat16", "cpu"))
    wait_settled(model_host)
    assert model_host.swap.state == "done", model_host.swap.reason
    assert tokens_of(running) == expected
    model_host.begin(ModelPair("bundled", ("bundled",), "float32", "cpu"))
    wait_settled(model_host)
    assert tokens_of(hub.start(request_of(120))) == expected


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="a system without /proc")
def test_models_that_were_swapped_out_free_their_memory_though_their_runs_can_be_read(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tests.ui.given_back", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stderr
    figures = json.loads(process.stdout.splitlines()[-1])
    assert figures["left"] == []
    assert figures["events"] > 12, "the run can still be read"
    assert figures["size"] > 60_000_000 and figures["less"] > 0.7 * figures["size"]


def test_a_tiny_pair_is_loaded_and_wrong_pairs_are_refused(
    model_host: ModelHost, tmp_path: Path
) -> None:
    tiny, fewer = save_tiny_model(tmp_path / "tiny"), save_tiny_model(tmp_path / "fewer", vocab=60)
    model_host.begin(ModelPair(str(tiny), (str(tiny),)))
    wait_settled(model_host)
    assert model_host.names() == ("tiny", *model_host.drafter_names)
    assert model_host.drafter_names == ("tiny",)
    loaded = model_host.worker
    for pair, words in (
        (ModelPair(str(tiny), (str(fewer),)), "token id 60 is None there and 'w60' in"),
        (ModelPair("bundled", (str(tiny),)), "token id 0 is 'w0' there"),
        (ModelPair(str(tmp_path / "nowhere"), ()), "no such folder"),
        (ModelPair(str(tiny), (), "float8"), "dtype is 'float8'"),
    ):
        model_host.begin(pair)
        wait_settled(model_host)
        assert model_host.swap.state == "failed" and words in model_host.swap.reason
        assert model_host.worker is loaded
    assert tokens_of(Hub(model_host, FakeStore()).start(request_of(12, "w1 w2 w3")))


def test_an_unreachable_hub_is_reported(
    model_host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import HfApi

    def time_out(*_: Any, **__: Any) -> None:
        raise TimeoutError("slow")

    monkeypatch.setattr(HfApi, "model_info", time_out)
    model_host.begin(ModelPair("some/model", ()))
    wait_settled(model_host)
    assert "the hub cannot be reached" in model_host.swap.reason
    assert model_host.names() == ("llm", *SSMS)
