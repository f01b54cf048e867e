"""OpenAI's API with a fake worker: refused requests, logins, slow and large requests."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import openai
import pytest
from openai import OpenAI

from core.errors import ConfigError
from storage import RunQuery
from tests.source import ROOT
from tests.synthetic import synthetic_run
from tests.ui.api.sites import LOGIN, Site, wait
from tests.ui.fakes import endless, script_of
from ui.openai import fields, routes
from ui.openai.answers import COMPLETION, Completion
from ui.openai.fields import NEUTRAL
from ui.openai.server_metrics import ServerMetrics
from ui.server import page
from ui.server.arguments import parse

MESSAGES = [{"role": "user", "content": "hi"}]


def client_of(site: Site, key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"{site.url}v1", api_key=key, max_retries=0)


@pytest.fixture
def client(api: Site) -> Iterator[OpenAI]:
    with client_of(api) as connected:
        yield connected


def complete(client: OpenAI, prompt: Any = "Once", **body: Any) -> Any:
    return client.completions.create(model="synthetic-llm", prompt=prompt, extra_body=body)


def open_stream(client: OpenAI, **body: Any) -> Any:
    return client.completions.create(
        model="synthetic-llm", prompt="Once", stream=True, extra_body=body
    )


def post(site: Site, data: bytes, content_type: str = "application/json", **headers: str) -> Any:
    request = Request(f"{site.url}v1/completions", data, {"Content-Type": content_type, **headers})
    with urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


# -- fields --

REFUSED = [
    ({"n": 2}, "n is 2: only 1 is served", "n"),
    ({"logprobs": 0}, "logprobs is 0: only false is served", "logprobs"),
    ({"echo": True}, "echo is True: only false", "echo"),
    ({"presence_penalty": 0.5}, "presence_penalty is 0.5: only 0", "presence_penalty"),
    ({"logit_bias": {"1": 5}}, "logit_bias is ", "logit_bias"),
    ({"response_format": {"type": "json_object"}}, "response_format is ", "response_format"),
    ({"warp": 9}, "warp is not a field of this endpoint", "warp"),
    ({"messages": []}, "messages is not a field of this endpoint", "messages"),
    ({"temperature": -1}, "temperature is -1", None),
    ({"max_tokens": 0}, "max_tokens is 0", None),
    ({"seed": "x"}, "seed is 'x'", None),
    ({"stop": [""]}, "stop is ['']", None),
    ({"stream": "yes"}, "stream is 'yes': it must be true or false", None),
    ({"stream_options": {"x": 1}}, "field of stream_options is 'x'", None),
    ({"ignore_eos": 1}, "ignore_eos is 1", None),
    ({"preset": "warp"}, "preset is 'warp': it must be one of", None),
    ({"speculation": []}, "speculation is []: it must be an object", None),
    ({"speculation": {"warp": 9}}, "field is 'warp': it must be one of", None),
    ({"speculation": {"verify": "greedy"}}, "verify is 'greedy': with draft", None),
]


@pytest.mark.parametrize(("body", "words", "param"), REFUSED, ids=[str(b) for b, *_ in REFUSED])
def test_a_field_that_cannot_be_served_is_refused_in_one_line(
    client: OpenAI, body: dict[str, Any], words: str, param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, **body)
    error = caught.value
    assert words in error.body["message"] and "\n" not in error.body["message"]
    assert (error.type, error.param) == ("invalid_request_error", param)


WRONG_PROMPTS = [3, "", "  ", [], ["a", "b"], [[1], [2]], [1, "a"], [True], [-1]]


@pytest.mark.parametrize("prompt", WRONG_PROMPTS, ids=map(str, WRONG_PROMPTS))
def test_anything_but_one_prompt_is_refused(client: OpenAI, prompt: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="prompt is "):
        complete(client, prompt)


def test_a_field_without_effect_is_accepted(api: Site, client: OpenAI) -> None:
    neutral = {"n": 1, "echo": False, "logprobs": None, "presence_penalty": 0.0, "logit_bias": {}}
    ignored = {"user": "x", "metadata": {"a": "b"}, "store": True}
    options = {"include_usage": None, "include_obfuscation": True}
    complete(client, **neutral, **ignored, stop=None, best_of=1, stream_options=options)
    assert api.worker.requests[-1].sampling.temperature == 1.0


def test_another_model_is_not_found(client: OpenAI) -> None:
    for call in (
        lambda: client.completions.create(model="gpt-9", prompt="Once"),
        lambda: client.models.retrieve("gpt-9"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (MESSAGES, "model synthetic-llm has no chat template: send its prompt to /v1/completions"),
        ([], "messages is []"),
        ([{"role": "user"}], "content is None"),
        ([{"content": "hi"}], "messages is {'content': 'hi'}"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "content is "),
        ([{"role": "assistant", "content": "", "tool_calls": [1]}], "tool_calls of a message"),
    ],
)
def test_messages_that_cannot_be_answered_are_refused(
    client: OpenAI, messages: Any, words: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="synthetic-llm", messages=messages)
    assert words in caught.value.body["message"]


def test_a_body_that_is_no_json_object_is_refused(api: Site) -> None:
    for data, content_type, status in (
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[]", "Application/JSON; charset=utf-8", 400),
        (b'{"prompt": "Once"}', "text/plain", 415),
    ):
        with pytest.raises(HTTPError) as caught:
            post(api, data, content_type)
        assert caught.value.code == status
        assert json.loads(caught.value.read())["error"]["type"] == "invalid_request_error"
        caught.value.close()
    assert not api.worker.requests


# -- runs --


def test_a_request_to_a_full_queue_is_refused(
    api: Site, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_WAITING", 0)
    with pytest.raises(openai.RateLimitError, match="0 requests wait already") as caught:
        complete(client)
    assert caught.value.code == "rate_limit_exceeded" and not api.worker.requests


def test_a_prompt_that_is_being_tokenized_counts_as_waiting(
    api: Site, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_WAITING", 1)
    started, may_start, start = threading.Event(), threading.Event(), api.context.hub.start

    def start_slowly(*arguments: Any, **keywords: Any) -> Any:
        started.set()
        assert may_start.wait(10)
        return start(*arguments, **keywords)

    monkeypatch.setattr(api.context.hub, "start", start_slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(complete, client)
        assert started.wait(10)
        with pytest.raises(openai.RateLimitError, match="1 requests wait already"):
            complete(client)
        may_start.set()
        assert first.result().choices
    assert len(api.worker.requests) == 1
    assert complete(client).choices, "no prompt is being tokenized any more"


def test_a_prompt_is_not_answered_by_other_models_than_it_was_sent_to(
    api: Site, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.worker.set_script(endless, slowdown=5.0)
    hub, start = api.context.hub, api.context.hub.start

    def exchange_and_start(request: Any, owner: str) -> Any:
        monkeypatch.setattr(hub.model_host, "_version", hub.model_host.version + 1)
        return start(request, owner)

    monkeypatch.setattr(hub, "start", exchange_and_start)
    with pytest.raises(openai.InternalServerError, match="exchanged meanwhile") as caught:
        complete(client, max_tokens=400)
    assert caught.value.status_code == 503
    wait(lambda: api.worker.runs[0].has_ended)


def test_a_run_that_fails_is_an_error_of_the_server(api: Site, client: OpenAI) -> None:
    api.worker.set_script(script_of(4, end="failed"), slowdown=0.0)
    with pytest.raises(openai.InternalServerError) as caught:
        complete(client)
    assert caught.value.type == "server_error"
    with pytest.raises(openai.APIError) as error:
        list(open_stream(client))
    assert error.value.message == caught.value.body["message"]


def test_a_run_that_is_stopped_elsewhere_is_aborted(api: Site, client: OpenAI) -> None:
    api.worker.set_script(script_of(4, end="cancelled"), slowdown=0.0)
    assert complete(client).choices[0].finish_reason == "abort"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_its_run(api: Site, client: OpenAI, stream: bool) -> None:
    api.worker.set_script(endless, slowdown=5.0)
    if stream:
        pieces = open_stream(client, max_tokens=400)
        assert next(iter(pieces)).choices
        pieces.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            complete(client.with_options(timeout=0.5), max_tokens=400)
    (run,) = api.worker.runs
    wait(lambda: run.is_cancelled and run.has_ended)
    assert run.num_tokens < 400


def test_runs_are_in_the_log_and_no_other_visitor_sees_them(elsewhere: Site) -> None:
    with client_of(elsewhere) as client:
        answers = [complete(client) for _ in range(2)]
    elsewhere.store.flush()
    rows = elsewhere.store.runs(RunQuery(order="oldest")).rows
    for answer, row in zip(answers, rows, strict=True):
        assert answer.id == f"cmpl-{row.run_id}" and row.output == answer.choices[0].text
    assert elsewhere("/runs")["rows"] == []
    assert len({row.owner for row in rows}) == 2, "each request without a login has its own owner"


# -- access --


@pytest.mark.parametrize("path", ["v1/completions", "v1/chat/completions", "v1/models", "metrics"])
def test_a_request_without_the_pages_login_is_refused(login_site: Site, path: str) -> None:
    data = b"{}" if "completions" in path else None
    for login in ("", "Bearer none", "Bearer eve:guess", "Basic !!", "Basic ZXZlOmd1ZXNz"):
        with pytest.raises(HTTPError) as caught:
            urlopen(Request(f"{login_site.url}{path}", data, {"Authorization": login}), timeout=20)
        assert caught.value.code == 401 and caught.value.headers["WWW-Authenticate"].startswith(
            "Bearer"
        )
        error = json.loads(caught.value.read())["error"]
        assert error["code"] == "invalid_api_key" and "secret" not in str(error)
        caught.value.close()
    assert not login_site.worker.requests


def test_runs_with_the_login_belong_to_its_user(login_site: Site) -> None:
    with client_of(login_site, ":".join(LOGIN)) as client:
        answer = complete(client)
    basic = {"Authorization": "Basic ZXZlOnNlY3JldA=="}
    other = post(login_site, b'{"prompt": "Once"}', **basic)
    login_site.store.flush()
    ids = {row["run_id"] for row in login_site("/runs")["rows"]}
    assert {answer.id, other["id"]} == {f"cmpl-{run_id}" for run_id in ids}


class LaunchRecorder:
    server_port = 1

    def launch(self, **options: Any) -> tuple[None, str, None]:
        self.paths = {route.path for route in options["app_kwargs"]["routes"]}
        return None, "http://127.0.0.1:1/", None

    def block_thread(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("flag", [[], ["--no-openai"]])
def test_no_openai_leaves_the_routes_out(
    api: Site, flag: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = LaunchRecorder()
    monkeypatch.setattr(page, "build_page", lambda context: recorder)
    monkeypatch.setattr(page, "request_once", lambda url: None)
    page.launch(api.context, parse(flag), 0.0)
    served = {"/v1/completions", "/v1/chat/completions", "/v1/models", "/metrics"}
    assert recorder.paths and served & recorder.paths == (set() if flag else served)


# -- docs/api.md --


def test_the_documentation_names_every_field_and_series() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    section = text[text.index("## OpenAI's API") :]
    words = set(re.findall(r"`([a-z_:]+)`", section))
    assert words >= {"prompt", "messages"} | fields.READ | fields.IGNORED | NEUTRAL.keys()
    answer = Completion(COMPLETION, "llm", "run")
    for event in synthetic_run(4):
        answer.observe(event)
    metrics = answer.usage_chunk()["metrics"]
    assert words >= metrics.keys() | metrics["speculative_decoding"].keys()
    lines = ServerMetrics().text("llm", 0, 0).splitlines()
    series = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {word for word in words if word.startswith("vllm:")} == series


# -- slow and large requests --


@pytest.mark.parametrize("slow", ["chat_tokens", "submit"])
def test_others_are_answered_while_a_prompt_is_tokenized(
    api: Site, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, answered = threading.Event(), threading.Event()

    def work_slowly(*_: object, **__: object) -> Any:
        entered.set()
        assert answered.wait(20)
        raise ConfigError("has ended")

    monkeypatch.setattr(api.worker, slow, work_slowly, raising=False)
    monkeypatch.setattr(api.context.model_host._served, "chat", True)
    path = "chat/completions" if slow == "chat_tokens" else "completions"
    body = {"messages": MESSAGES} if slow == "chat_tokens" else {"prompt": "Once"}
    request = Request(
        f"{api.url}v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with ThreadPoolExecutor(1) as pool:
        slow_answer = pool.submit(urlopen, request, timeout=20)
        try:
            assert entered.wait(20)
            with urlopen(f"{api.url}v1/models", timeout=2) as other:
                assert json.loads(other.read())["object"] == "list"
            assert not slow_answer.done()
        finally:
            answered.set()
        with pytest.raises(HTTPError) as refused:
            slow_answer.result()
    assert "has ended" in json.loads(refused.value.read())["error"]["message"]


def test_a_body_above_the_size_limit_is_refused(api: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_BODY_BYTES", 1000)
    assert post(api, json.dumps({"prompt": "Once"}).encode())["object"] == "text_completion"
    with pytest.raises(HTTPError) as refused:
        post(api, json.dumps({"prompt": "x" * 1000}).encode())
    assert refused.value.code == 413
    message = json.loads(refused.value.read())["error"]["message"]
    assert message == "the body has more than 1000 bytes"
