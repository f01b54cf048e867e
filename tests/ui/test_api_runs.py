"""The endpoints of past runs, through a real server and Gradio's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from storage import RunStore
from storage.exports import EXPORTS
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui.boards import context
from tests.ui.serving import served
from ui.server.context import Context
from ui.server.page import build_page
from ui.sessions.exporting import FORMATS, FROM_STORE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    with RunStore(tmp_path_factory.mktemp("api") / "runs.db") as store:
        for seed in range(4):
            for event in synthetic_run(4, seed=seed):
                store.record(event, "somebody")
        yield context(store)


@pytest.fixture(scope="module")
def client(made: Context) -> Iterator[Client]:
    with served(build_page(made)) as url:
        client = Client(url, verbose=False)
        yield client
        client.close()


def test_the_formats_are_those_of_the_store_and_the_report() -> None:
    assert set(FORMATS) == {*FROM_STORE, "html"} and set(FROM_STORE.values()) == set(EXPORTS)


def test_a_note_is_kept_found_and_taken_away(client: Client) -> None:
    note = "für die Vorlesung " + HOSTILE_TEXTS[0]
    told = client.predict(run_id="synthetic-0", note=note, api_name="/annotate")
    assert told == {"run_id": "synthetic-0", "note": note}
    assert client.predict(run_id="synthetic-0", api_name="/run")["note"] == note
    for filters in ({"noted": True}, {"search": "Vorlesung"}):
        found = client.predict(**filters, api_name="/runs")
        assert [row["run_id"] for row in found["rows"]] == ["synthetic-0"]
        assert found["rows"][0]["note"] == note and found["rows"][0]["thinned"] is False
    assert client.predict(run_id="synthetic-0", api_name="/annotate")["note"] == ""
    assert client.predict(noted=True, api_name="/runs")["total"] == 0


@pytest.mark.parametrize(
    ("filters", "total"),
    [
        ({"llm": "synthetic-llm"}, 4),
        ({"llm": "another"}, 0),
        ({"drafter": "ssm-code"}, 4),
        ({"drafter": "none"}, 0),
        ({"since": "2000-01-01"}, 4),
        ({"since": "2999-01-01T12:00"}, 0),
        ({"until": "2000-01-01"}, 0),
        ({"order": "passes", "limit": 2}, 4),
    ],
)
def test_filters_restrict_the_runs(client: Client, filters: dict[str, Any], total: int) -> None:
    assert client.predict(**filters, api_name="/runs")["total"] == total


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_is_exported(client: Client, name: str) -> None:
    file = client.predict(run_id="synthetic-1", format=name, api_name="/export")
    assert set(file) == {"name", "media_type", "text"}
    assert file["name"].startswith("synthetic-1.") and file["text"]
    if file["media_type"] == "application/json":
        assert json.loads(file["text"])


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("/export", {"run_id": "nosuch"}, "run_id is 'nosuch'"),
        ("/export", {"run_id": "synthetic-1", "format": "pdf"}, "format is 'pdf': one of json"),
        ("/export", {"run_id": None}, "run_id is None"),
        ("/annotate", {"run_id": "synthetic-1", "note": 3}, "note is 3: a text"),
        ("/annotate", {"run_id": "nosuch", "note": "x"}, "run_id is 'nosuch'"),
        ("/annotate", {"run_id": "synthetic-1", "note": "x" * 200_000}, "note is"),
        ("/delete", {"run_id": "nosuch"}, "run_id is 'nosuch'"),
        ("/delete", {"run_id": ""}, "run_id is ''"),
        ("/runs", {"noted": "yes"}, "noted is 'yes': true or false"),
        ("/runs", {"llm": 3}, "llm is 3"),
        ("/runs", {"since": "yesterday"}, "since is 'yesterday'"),
        ("/runs", {"until": 7}, "until is 7"),
    ],
)
def test_wrong_values_are_refused_in_words(
    client: Client, name: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(AppError) as caught:
        client.predict(**arguments, api_name=name)
    assert words in str(caught.value)


def test_a_deleted_run_is_gone(client: Client) -> None:
    told = client.predict(run_id="synthetic-3", api_name="/delete")
    assert told == {"run_id": "synthetic-3", "deleted": True}
    for name in ("/delete", "/run", "/export"):
        with pytest.raises(AppError, match="synthetic-3"):
            client.predict(run_id="synthetic-3", api_name=name)


def test_elsewhere_nobody_changes_or_takes_away_another_visitors_run(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        for event in synthetic_run(3, seed=9):
            store.record(event, "somebody else")
        with served(build_page(context(store, host="0.0.0.0"))) as url:
            client = Client(url, verbose=False)
            mine = client.predict(prompt="mine", api_name="/generate")["run_id"]
            assert client.predict(run_id=mine, note="x", api_name="/annotate")["note"] == "x"
            for name in ("/export", "/annotate", "/delete"):
                with pytest.raises(AppError, match="no such run of yours"):
                    client.predict(run_id="synthetic-9", api_name=name)
            assert client.predict(run_id=mine, api_name="/delete")["deleted"]
            client.close()
        assert store.run("synthetic-9").note == ""
