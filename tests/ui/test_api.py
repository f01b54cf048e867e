"""The named endpoints, through a real server and Gradio's own client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from core.events import event_from_plain
from storage import RunQuery, RunStore, queries
from storage.exports import EXPORTS
from tests.synthetic import synthetic_run
from tests.ui.fakes import FakeWorker, scripted
from tests.ui.serving import served
from ui.run.view import reduce_all
from ui.server.context import Context, make_context
from ui.server.page import build_page
from ui.server.visitors import Access
from ui.sessions.history import ORDERS, STATUSES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    with RunStore(tmp_path_factory.mktemp("api") / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=6), speed=0.1)
        yield make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery, EXPORTS)


@pytest.fixture(scope="module")
def url(made: Context) -> Iterator[str]:
    with served(build_page(made)) as address:
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    made = Client(url, verbose=False)
    yield made
    made.close()


def test_generate_returns_what_core_prints(client: Client) -> None:
    result = client.predict(prompt="Once", max_new_tokens=20, seed=3, api_name="/generate")
    assert set(result) >= {
        "text",
        "token_ids",
        "prompt_token_ids",
        "summary",
        "config",
        "models",
        "run_id",
    }
    view = reduce_all(synthetic_run(6))
    assert result["text"] == view.text and result["token_ids"] == list(view.token_ids)
    assert result["config"]["sampling"]["max_new_tokens"] == 20
    assert result["config"]["sampling"]["seed"] == 3
    assert result["summary"]["finish_reason"] == "length"


def test_generate_takes_a_preset_and_fields(client: Client, made: Context) -> None:
    fields = {"expansion": [2, 1], "record_top_k": 3}
    client.predict(prompt="x", preset="sequence", fields=fields, api_name="/generate")
    asked = made.hub.worker.requests[-1]  # type: ignore[attr-defined]
    assert asked.speculation.drafters == ("first",)
    assert asked.speculation.expansion == (2, 1) and asked.speculation.record_top_k == 3


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "  "}, "prompt is '  ': a text with at least one visible character"),
    ({"prompt": 3}, "prompt is 3"),
    ({"preset": "fastest"}, "preset is 'fastest': one of autoregressive"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0: a whole number from 1"),
    ({"max_new_tokens": "12"}, "max_new_tokens is '12': a whole number"),
    ({"temperature": -1}, "temperature is -1: 0 or a number from 0.001"),
    ({"temperature": True}, "temperature is True"),
    ({"top_p": 0}, "top_p is 0: a number above 0"),
    ({"top_k": 1.5}, "top_k is 1.5"),
    ({"seed": "lucky"}, "seed is 'lucky'"),
    ({"stop": "abc"}, "stop is 'abc': a list"),
    ({"ignore_eos": "yes"}, "ignore_eos is 'yes': true or false"),
    ({"chat": 1}, "chat is 1: true or false"),
    ({"fields": {"warp": 9}}, "field is 'warp': one of carry_over"),
    (
        {"fields": {"verify": "mss"}},
        "verify is 'mss': with draft=topk and combine=union at temperature 0",
    ),
    ({"fields": [1]}, "fields is [1]: an object"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=lambda value: str(value)[:30])
def test_bad_values_come_back_in_the_same_words(
    client: Client, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(AppError) as caught:
        client.predict(**{"prompt": "x", **changes}, api_name="/generate")
    assert words in str(caught.value)


def test_runs_and_run_give_back_what_generate_made(client: Client) -> None:
    result = client.predict(prompt="A fox", api_name="/generate")
    listed = client.predict(search="fox", limit=1, api_name="/runs")
    assert listed["total"] >= 1 and listed["rows"][0]["run_id"] == result["run_id"]
    assert "owner" not in listed["rows"][0]
    assert client.predict(search="fox", limit=1, status="all", api_name="/runs") == listed
    again = client.predict(run_id=result["run_id"], api_name="/run")
    assert again.pop("status") == "completed"
    assert again.pop("note") == "" and again.pop("thinned") is False
    assert again == result
    whole = client.predict(run_id=result["run_id"], events=True, api_name="/run")
    events = [event_from_plain(event) for event in whole["events"]]
    assert reduce_all(events).text == result["text"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("/run", {"run_id": "nosuch"}, "run_id is 'nosuch'"),
        ("/run", {"run_id": ""}, "run_id is ''"),
        ("/run", {"run_id": None}, "run_id is None"),
        ("/run", {"run_id": "x", "events": "yes"}, "events is 'yes': true or false"),
        ("/run", {"run_id": "x", "events": 1}, "events is 1: true or false"),
        ("/runs", {"limit": 0}, "limit is 0: a whole number from 1 to 1000"),
        ("/runs", {"limit": 1001}, "limit is 1001: a whole number from 1 to 1000"),
        ("/runs", {"limit": True}, "limit is True: a whole number from 1 to 1000"),
        ("/runs", {"offset": -1}, "offset is -1: a whole number from 0"),
        ("/runs", {"status": "lost"}, "status is 'lost': one of completed, running"),
        ("/runs", {"status": None}, "status is None: one of completed, running"),
        ("/runs", {"status": 0}, "status is 0: one of completed, running"),
        ("/runs", {"order": None}, "order is None: one of newest"),
        ("/runs", {"order": []}, "order is []: one of newest"),
        ("/runs", {"order": "best"}, "order is 'best': one of newest"),
        ("/runs", {"search": 3}, "search is 3: a text"),
    ],
)
def test_questions_about_runs_are_checked(
    client: Client, name: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(AppError) as caught:
        client.predict(**arguments, api_name=name)
    assert words in str(caught.value)


def test_the_filters_of_runs_are_those_of_the_store() -> None:
    assert set(STATUSES) == set(queries.STATUSES) and set(ORDERS) == set(queries.ORDERS)


def test_a_client_that_cancels_stops_the_engine(client: Client, made: Context) -> None:
    worker: Any = made.hub.worker
    worker.script, script = scripted(rounds=500), worker.script
    worker.speed = 1.0
    try:
        count = len(worker.runs)
        job = client.submit(prompt="long", api_name="/generate")
        wait(lambda: len(worker.runs) > count)
        # Before it knows its event, Gradio's client has nothing to tell the server.
        wait(lambda: job.communicator is not None and job.communicator.event_id)
        job.cancel()
        wait(lambda: worker.runs[-1].cancelled)
    finally:
        worker.script, worker.speed = script, 0.1


def test_many_clients_at_once_hold_no_threads(client: Client, made: Context) -> None:
    jobs = [client.submit(prompt=f"number {i}", api_name="/generate") for i in range(12)]
    results = [job.result(timeout=30) for job in jobs]
    assert len({result["run_id"] for result in results}) == 12


def test_the_api_page_names_what_there_is(client: Client) -> None:
    endpoints = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    past = {"/runs", "/run", "/export", "/annotate", "/delete"}
    asked = {"/baseline", "/prove", "/retention", "/set_retention", "/prompt_rows"}
    models = {"/models", "/load_models"}
    studies = {"/compare", "/tune", "/prompts", "/studies", "/study", "/stop_study"}
    studies |= {"/resume_study", "/delete_study"}
    assert set(endpoints) == {"/generate", *past, *asked, *models, *studies}
    first = endpoints["/generate"]["parameters"][0]
    assert first["parameter_name"] == "prompt" and not first["parameter_has_default"]
    rest = endpoints["/generate"]["parameters"][1:]
    assert all(parameter["parameter_has_default"] for parameter in rest)


def test_elsewhere_a_client_sees_only_its_own_runs(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        for event in synthetic_run(3, seed=9):
            store.record(event, "somebody else")
        worker = FakeWorker(scripted(rounds=4), speed=0.1)
        made = make_context(worker, store, Access("0.0.0.0"), "specinfer", RunQuery, EXPORTS)
        with served(build_page(made)) as address:
            mine, other = Client(address, verbose=False), Client(address, verbose=False)
            result = mine.predict(prompt="mine", api_name="/generate")
            assert mine.predict(api_name="/runs")["total"] == 1
            assert mine.predict(run_id=result["run_id"], api_name="/run")["text"]
            assert other.predict(api_name="/runs")["total"] == 0
            for run_id in (result["run_id"], "synthetic-9"):
                with pytest.raises(AppError, match="no such run of yours"):
                    other.predict(run_id=run_id, api_name="/run")
            mine.close()
            other.close()


def test_with_auth_runs_belong_to_the_user_who_logged_in(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=3), speed=0.1)
        access = Access("0.0.0.0", auth=True)
        made = make_context(worker, store, access, "specinfer", RunQuery, EXPORTS)
        with served(build_page(made), auth=("eve", "secret")) as address:
            with pytest.raises(HTTPError) as refused:
                urlopen(f"{address}config", timeout=10)
            assert refused.value.code == 401
            refused.value.close()
            for _ in range(2):  # a new session, the same user
                client = Client(address, auth=("eve", "secret"), verbose=False)
                client.predict(prompt="mine", api_name="/generate")
                total = client.predict(api_name="/runs")["total"]
                client.close()
            assert total == 2
            assert {row.owner for row in store.runs(RunQuery()).rows} == {"user-eve"}


def wait(condition: Any, timeout: float = 10.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
