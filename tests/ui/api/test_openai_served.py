"""The `openai` client against a served page with real tiny models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

import openai
import pytest
import torch
from gradio_client import Client
from openai import OpenAI

from bench.page.site import serve
from core.events import Combined, RunStarted
from storage import RunQuery, RunStore, RunSummary
from storage.exports import EXPORTS
from tests.core.models.folders import save_tiny_model
from tests.fakes import CONTEXT, tiny_module, word_tokenizer
from tests.logs import log_at
from tests.ui.api.scrapes import Scrape
from tests.ui.api.sites import wait
from tests.ui.given_back import load
from ui.openai.routes import openai_routes
from ui.server.context import make_context
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair
from ui.server.page import build_page
from ui.server.visitors import Access

TEMPLATE = (
    "{% for message in messages %}w1 {{ message.content }} "
    "{% if message.role == 'user' %}w2 {% endif %}{% endfor %}w3"
)
GREEDY = {"prompt": "w4 w5 w6", "max_tokens": 24, "temperature": 0}
MESSAGES: list[Any] = [
    {"role": "system", "content": "w9"},
    {"role": "user", "content": [{"type": "text", "text": "w7 "}, {"type": "text", "text": "w8"}]},
]


@dataclass
class Served:
    """`page`: Gradio's client of the same server."""

    url: str
    store: RunStore
    page: Client
    openai: OpenAI

    def complete(self, **fields: Any) -> Any:
        return self.openai.completions.create(**{"model": "llm", **GREEDY, **fields})

    def chat(self, **fields: Any) -> Any:
        defaults = {"model": "llm", "messages": MESSAGES, "max_tokens": 16, "temperature": 0}
        return self.openai.chat.completions.create(**{**defaults, **fields})

    def generate(self, **arguments: Any) -> dict[str, Any]:
        results: dict[str, Any] = self.page.predict(**arguments, api_name="/generate")
        return results

    def run(self, answer: Any) -> RunSummary:
        self.store.flush()
        return self.store.run(answer.id.partition("-")[2])

    def scrape(self) -> Scrape:
        with urlopen(f"{self.url}metrics") as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return Scrape(answer.read().decode())


@pytest.fixture(scope="module")
def openai_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("openai")
    tokenizer = word_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tiny_module("llama", seed=1, dtype=torch.float32).save_pretrained(folder / "llm")
    tokenizer.save_pretrained(folder / "llm")
    save_tiny_model(folder / "ssm")
    host = ModelHost.open(load, ModelPair(str(folder / "llm"), (str(folder / "ssm"),)))
    with RunStore(log_at(folder / "runs.db")) as store:
        context = make_context(host, store, Access("127.0.0.1"), "specinfer", RunQuery, EXPORTS)
        with (
            serve(build_page(context), routes=openai_routes(context)) as url,
            OpenAI(base_url=f"{url}v1", api_key="none", max_retries=0) as client,
        ):
            site = Served(url, store, Client(url, verbose=False), client)
            yield site
            site.page.close()
        context.conductor.close()
        host.close()


# -- texts --


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "seed": 5}])
def test_a_completion_is_the_text_of_generate_streamed_or_not(
    openai_site: Served, sampling: dict[str, Any]
) -> None:
    expected = openai_site.generate(prompt=GREEDY["prompt"], max_new_tokens=24, **sampling)
    answer = openai_site.complete(**sampling)
    assert answer.choices[0].text == expected["text"] != ""
    assert answer.choices[0].finish_reason == "length" and answer.object == "text_completion"
    assert answer.usage.completion_tokens == 24 and answer.usage.prompt_tokens == 3
    chunks = list(openai_site.complete(**sampling, stream=True))
    pieces = [chunk.choices[0].text for chunk in chunks]
    assert "".join(pieces) == expected["text"] and len(list(filter(None, pieces))) > 1
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    ids = openai_site.complete(prompt=[[4, 5, 6]], **sampling)
    assert ids.choices[0].text == expected["text"]


def test_fields_left_out_have_openais_defaults(openai_site: Served) -> None:
    fields = {"model": "llm", "prompt": ["w4 w5"], "seed": 3}
    answer = openai_site.openai.completions.create(**fields)
    expected = openai_site.generate(prompt="w4 w5", max_new_tokens=16, temperature=1.0, seed=3)
    assert answer.choices[0].text == expected["text"]
    assert answer.usage.completion_tokens == 16
    answer = openai_site.chat(max_tokens=None)
    assert answer.usage.total_tokens == CONTEXT and answer.choices[0].finish_reason == "length"


def test_a_chat_message_gets_the_answer_of_generate(openai_site: Served) -> None:
    expected = openai_site.generate(prompt="w7 w8", max_new_tokens=16, chat=True)
    answer = openai_site.chat(messages=[{"role": "user", "content": "w7 w8"}])
    assert answer.object == "chat.completion" and answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == expected["text"] != ""


def test_a_conversation_is_rendered_by_the_template_and_streamed(openai_site: Served) -> None:
    answer = openai_site.chat()
    started = openai_site.store.events(openai_site.run(answer).run_id)[0]
    assert isinstance(started, RunStarted) and started.prompt == "w7 w8"
    assert started.prompt_token_ids == (1, 9, 1, 7, 8, 2, 3)
    chunks = list(openai_site.chat(stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == answer.choices[0].message.content
    history = [*MESSAGES, answer.choices[0].message.model_dump(), {"role": "user", "content": "w6"}]
    answer = openai_site.chat(messages=history)
    ids = openai_site.store.events(openai_site.run(answer).run_id)[0].prompt_token_ids
    assert ids == (1, 9, 1, 7, 8, 2, 1, 0, 1, 6, 2, 3), "the answer is one unknown word, token 0"


@pytest.mark.parametrize("number", [1, 2])
def test_a_stop_string_ends_the_text_and_is_not_in_it(openai_site: Served, number: int) -> None:
    sampling = {"temperature": 0.8, "seed": 5}
    text = openai_site.complete(**sampling).choices[0].text
    stop = text[10 : 10 + 4 * number]  # it begins within a word
    kept = text[: text.index(stop)]
    assert kept
    for stops in (stop, ["absent", stop]):
        answer = openai_site.complete(**sampling, stop=stops)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == (kept, "stop")
        assert stop in openai_site.run(answer).output, "the log has the text with its stop string"
        chunks = list(openai_site.complete(**sampling, stop=stops, stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks) == kept
        assert chunks[-1].choices[0].finish_reason == "stop"


def test_speculation_can_be_chosen(openai_site: Served) -> None:
    fields = {"preset": "sequence", "speculation": {"speculation_length": 3}, "top_k": 4}
    answer = openai_site.complete(extra_body=fields)
    config = openai_site.run(answer).config
    assert config["speculation"]["drafters"] == ["ssm"]
    assert config["speculation"]["speculation_length"] == 3 and config["sampling"]["top_k"] == 4
    assert answer.metrics["speculative_decoding"]["num_spec_tokens"] == 3
    plain = openai_site.complete(extra_body={"preset": "autoregressive"})
    assert plain.metrics["speculative_decoding"] is None
    assert plain.choices[0].text == openai_site.complete().choices[0].text == answer.choices[0].text


def test_a_prompt_beyond_the_context_is_refused(openai_site: Served) -> None:
    long = "w1 " * CONTEXT
    with pytest.raises(openai.BadRequestError) as caught:
        openai_site.complete(prompt=long)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        openai_site.chat(messages=[{"role": "user", "content": long}])
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(
        openai.BadRequestError, match="prompt is 64: it must be a whole number from 0 to 63"
    ):
        openai_site.complete(prompt=[64])


# -- figures --


def test_usage_and_metrics_of_an_answer_are_those_of_the_log(openai_site: Served) -> None:
    answer = openai_site.complete()
    options = {"include_usage": True}
    for reply in (answer, list(openai_site.complete(stream=True, stream_options=options))[-1]):
        stats = openai_site.run(reply).stats
        assert stats is not None and reply.usage.total_tokens == 3 + stats.num_new_tokens == 27
        counts = reply.metrics["speculative_decoding"]
        assert counts["num_draft_tokens"] == stats.num_draft_tokens > 0
        assert counts["num_accepted_draft_tokens"] == stats.num_accepted_tokens > 0
        assert reply.metrics["time_to_first_token_ms"] == stats.ttft_ms > 0
        assert reply.metrics["queue_time_ms"] == stats.queue_ms
        assert 0 < reply.metrics["generation_time_ms"] < stats.total_ms
        mean_ms = reply.metrics["generation_time_ms"] / 23
        assert reply.metrics["mean_itl_ms"] == pytest.approx(mean_ms)
    assert reply.choices == []


def test_every_chunk_can_have_the_usage_so_far(openai_site: Served) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(openai_site.complete(stream=True, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts) and 0 < counts[0] < counts[-1] == 24
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {3}


def test_the_counters_are_the_sums_of_the_log(openai_site: Served) -> None:
    openai_site.generate(prompt="w8", max_new_tokens=9, preset="autoregressive")
    openai_site.chat()
    comparison = {"prompt": "w1 w2", "max_new_tokens": 8, "repeats": 1}
    openai_site.page.predict(**comparison, api_name="/compare")
    stream = openai_site.complete(max_tokens=100, stream=True)
    next(iter(stream))
    stream.close()
    wait(lambda: openai_site.scrape()["vllm:num_requests_running"] == 0)
    openai_site.store.flush()
    scrape, rows = openai_site.scrape(), openai_site.store.runs(RunQuery(limit=1000)).rows
    stats = [row.stats for row in rows if row.stats is not None]
    assert len(stats) == len(rows) > 4
    logs = [openai_site.store.events(row.run_id) for row in rows]
    spec = "vllm:spec_decode_num"
    drafts = sum(isinstance(e, Combined) and bool(e.token_ids) for log in logs for e in log)
    assert scrape[f"{spec}_drafts_total"] == drafts > 0
    assert scrape[f"{spec}_draft_tokens_total"] == sum(s.num_draft_tokens for s in stats) > 0
    accepted = sum(s.num_accepted_tokens for s in stats)
    assert scrape[f"{spec}_accepted_tokens_total"] == accepted > 0
    per_position = [s.value for s in scrape.samples if "position" in s.labels]
    assert sum(per_position) == accepted
    assert scrape["vllm:generation_tokens_total"] == sum(s.num_new_tokens for s in stats)
    prompts = sum(len(log[0].prompt_token_ids) for log in logs)
    assert scrape["vllm:prompt_tokens_total"] == prompts
    reasons = {"abort": {"cancelled"}, "length": {"length", "context"}, "stop": {"stop", "eos"}}
    for name, ends in reasons.items():
        ended = sum(not ends.isdisjoint((row.status, row.finish_reason)) for row in rows)
        assert scrape.one("vllm:request_success_total", finished_reason=name) == ended
    assert scrape["vllm:time_to_first_token_seconds_count"] == len(rows)


# -- models --


def test_the_loaded_llm_is_listed(openai_site: Served) -> None:
    (model,) = openai_site.openai.models.list().data
    assert model.id == "llm" and model.max_model_len == CONTEXT
    assert openai_site.openai.models.retrieve("llm") == model
