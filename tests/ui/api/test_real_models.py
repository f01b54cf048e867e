"""Endpoints with real tiny models and chat templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gradio_client import Client
from gradio_client.exceptions import AppError

from bench.page.site import serve
from core import Engine, Worker, load_models
from storage import RunQuery, RunStore
from storage.exports import EXPORTS
from tests.core.models.folders import save_tiny_model
from tests.fakes import shared_templates, tiny_module, word_tokenizer
from tests.logs import log_at
from ui.server.context import make_context
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair, Say
from ui.server.page import build_page
from ui.server.visitors import Access

# The time determines the word that this chat template adds.
CLOCK = "{{ messages[0].content }} w{{ strftime_now('%f')|int % 50 + 3 }}"
TEMPLATES = {
    "clock": CLOCK,
    "type": "{{ messages[0].content + 1 }}",
    "named": {"tools": "{{ messages }}"},
    "empty": "{# #}",
}


def save_llm(folder: Path, template: Any = CLOCK, seed: int = 1) -> str:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = template
    tiny_module("llama", seed=seed, dtype=torch.float32).save_pretrained(folder / "llm")
    tokenizer.save_pretrained(folder / "llm")
    return str(folder / "llm")


def load(pair: ModelPair, say: Say) -> Worker:
    models = load_models(pair.llm, pair.ssms, pair.dtype, pair.device, say)
    return Worker(Engine(replace(models, templates=shared_templates())))


class RealServer:
    def __init__(self, url: str, folder: Path) -> None:
        self.client, self.folder = Client(url, verbose=False), folder

    def __call__(self, endpoint: str, **arguments: Any) -> Any:
        return self.client.predict(**arguments, api_name=endpoint)

    def load(self, name: str) -> None:
        self("/load_models", llm=str(self.folder / name / "llm"), ssms=[str(self.folder / "ssm")])

    def run(self, **arguments: Any) -> dict[str, Any]:
        defaults = {"prompt": "w1 w2", "max_new_tokens": 8, "preset": "specinfer", "chat": True}
        results: dict[str, Any] = self("/generate", **{**defaults, **arguments})
        return results


@pytest.fixture(scope="module")
def real_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("real")
    for name, template in TEMPLATES.items():
        save_llm(folder / name, template)
    save_llm(folder / "other", seed=2)
    save_tiny_model(folder / "ssm")
    pair = ModelPair(str(folder / "clock" / "llm"), (str(folder / "ssm"),))
    host = ModelHost.open(load, pair)
    with RunStore(log_at(folder / "runs.db")) as store:
        access = Access("127.0.0.1")
        context = make_context(host, store, access, "specinfer", RunQuery, EXPORTS)
        with serve(build_page(context)) as url:
            site = RealServer(url, folder)
            yield site
            site.client.close()
        context.conductor.close()
        host.close()


@pytest.fixture
def clock(real_site: RealServer) -> RealServer:
    real_site.load("clock")
    return real_site


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_runs_whose_template_writes_the_time_are_proved(
    clock: RealServer, temperature: float
) -> None:
    runs = [clock.run(temperature=temperature) for _ in range(4)]
    assert len({tuple(run["prompt_token_ids"]) for run in runs}) > 1
    for run in runs:
        assert clock("/prove", run_id=run["run_id"])["answer"] == "identical"
    assert clock("/baseline", run_id=runs[0]["run_id"])["speed_up"] > 0


def test_a_study_renders_a_template_that_writes_the_time_once(clock: RealServer) -> None:
    study = clock("/compare", prompt="w1 w2", max_new_tokens=8, chat=True, repeats=2)
    assert study["state"] == "completed"
    assert {row["same_text"] for row in study["rows"]} == {"identical", "base"}
    for row in clock("/runs")["rows"][:3]:
        assert clock("/prove", run_id=row["run_id"])["answer"] == "identical"


@pytest.mark.parametrize("endpoint", ["/prove", "/baseline"])
def test_a_run_of_another_llm_of_the_same_name_is_refused(clock: RealServer, endpoint: str) -> None:
    run = clock.run()
    clock.load("other")
    with pytest.raises(AppError, match="not of another LLM of that name"):
        clock(endpoint, run_id=run["run_id"])
    clock.load("clock")
    assert clock(endpoint, run_id=run["run_id"])["run_id"] == run["run_id"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("type", "fails"), ("named", "fails"), ("empty", "renders nothing")],
)
def test_a_refused_chat_names_the_chat_template(
    real_site: RealServer, name: str, words: str
) -> None:
    real_site.load(name)
    for endpoint in ("/generate", "/compare"):
        with pytest.raises(AppError, match=f"chat is True: .* the chat template of llm {words}"):
            real_site(endpoint, prompt="w1", chat=True)
    assert real_site.run(chat=False)["token_ids"]
