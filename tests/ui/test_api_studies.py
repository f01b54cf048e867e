"""The endpoints of studies, through a real server and Gradio's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from storage import RunQuery, RunStore
from tests.ui.fakes import FakeWorker, endless, scripted
from tests.ui.serving import served
from tests.ui.test_api import wait
from ui.server.context import Context, make_context
from ui.server.page import build_page
from ui.server.visitors import Access


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    with RunStore(tmp_path_factory.mktemp("api") / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=6), speed=0.0)
        context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)
        yield context
        context.conductor.close()
        worker.clear()


@pytest.fixture(scope="module")
def client(made: Context) -> Iterator[Client]:
    with served(build_page(made)) as address:
        client = Client(address, verbose=False)
        yield client
        client.close()


@pytest.fixture
def slow(made: Context) -> Iterator[FakeWorker]:
    """Every run goes on for minutes unless it is stopped."""
    worker: Any = made.hub.worker
    worker.cast(endless, speed=5.0)
    yield worker
    made.conductor.close()
    worker.cast(scripted(6), speed=0.0)


def test_compare_waits_and_returns_a_row_each(client: Client, made: Context) -> None:
    own = {"name": "short", "preset": "sequence", "fields": {"speculation_length": 2}}
    result = client.predict(
        prompt="Once",
        configurations=["specinfer", own],
        repeats=2,
        max_new_tokens=8,
        api_name="/compare",
    )
    assert (result["state"], result["done"], result["total"]) == ("completed", 6, 6)
    plain, tree, short = result["rows"]
    assert [row["name"] for row in result["rows"]] == ["plain decoding", "specinfer", "short"]
    assert plain["ratio"] is None and plain["same_text"] == "base"
    assert tree["same_text"] == "identical" and tree["runs"] == 2
    assert tree["ratio_low"] <= tree["ratio"] <= tree["ratio_high"]
    assert made.store.run(tree["run_id"]).prompt == "Once"
    asked = {one["name"]: one["speculation"] for one in result["asked"]["configurations"]}
    assert asked["short"]["speculation_length"] == 2
    assert {one["record_top_k"] for one in asked.values()} == {5}  # what it costs, all pay alike
    again = client.predict(study_id=result["study_id"], api_name="/study")
    assert again == result


def test_studies_lists_and_study_gives_the_cells(client: Client) -> None:
    result = client.predict(
        prompt="A", configurations=["specinfer"], repeats=1, api_name="/compare"
    )
    listed = client.predict(kind="compare", limit=1, api_name="/studies")["rows"]
    assert [row["study_id"] for row in listed] == [result["study_id"]]
    assert "owner" not in listed[0] and listed[0]["done"] == 2
    assert client.predict(kind="tune", api_name="/studies")["rows"] == []
    cells = client.predict(study_id=result["study_id"], cells=True, api_name="/study")["cells"]
    assert [cell["contestant"] for cell in cells] == ["plain decoding", "specinfer"]
    assert cells[1]["stats"]["tokens_per_second"] == result["rows"][1]["tokens_per_second"]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("/compare", {"prompt": ""}, "prompt is ''"),
    ("/compare", {"configurations": "specinfer"}, "configurations is 'specinfer': a list"),
    ("/compare", {"configurations": []}, "configurations is 0: 1 to 5"),
    ("/compare", {"configurations": ["autoregressive"]}, "configurations is 0: 1 to 5"),
    ("/compare", {"configurations": ["warp"]}, "preset is 'warp': one of"),
    ("/compare", {"configurations": [7]}, "configurations is 7: a preset's name"),
    ("/compare", {"configurations": [{"nom": "x"}]}, "a preset's name, or an object"),
    ("/compare", {"configurations": [{"fields": 3}]}, "fields is 3: an object"),
    ("/compare", {"configurations": [{"fields": {"warp": 1}}]}, "field is 'warp'"),
    ("/compare", {"configurations": ["specinfer", "specinfer"]}, "each name once"),
    ("/compare", {"configurations": [{"name": 3}]}, "name is 3"),
    ("/compare", {"repeats": 0}, "repeats is 0: a whole number from 1 to 50"),
    ("/compare", {"temperature": "hot"}, "temperature is 'hot'"),
    ("/compare", {"seed": -1}, "seed is -1"),
    ("/studies", {"kind": "best"}, "kind is 'best': one of compare"),
    ("/studies", {"limit": 0}, "limit is 0: a whole number from 1 to 1000"),
    ("/studies", {"offset": -1}, "offset is -1"),
    ("/study", {"study_id": "nosuch"}, "study_id is 'nosuch': no such study"),
    ("/study", {"study_id": ""}, "study_id is ''"),
    ("/study", {"study_id": "x", "cells": 1}, "cells is 1: true or false"),
    ("/stop_study", {"study_id": "nosuch"}, "no such study"),
    ("/resume_study", {"study_id": "nosuch"}, "no such study"),
    ("/delete_study", {"study_id": "nosuch"}, "no such study"),
    ("/delete_study", {"study_id": ""}, "study_id is ''"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), BAD, ids=lambda value: str(value)[:40])
def test_bad_values_come_back_in_words(
    client: Client, name: str, arguments: dict[str, Any], words: str
) -> None:
    if name == "/compare":
        arguments = {"prompt": "x", **arguments}
    with pytest.raises(AppError) as caught:
        client.predict(**arguments, api_name=name)
    assert words in str(caught.value)


def test_a_client_that_cancels_stops_the_study_and_another_goes_on(
    client: Client, made: Context, slow: FakeWorker
) -> None:
    job = client.submit(prompt="long", configurations=["specinfer"], repeats=1, api_name="/compare")
    wait(lambda: made.conductor.progress().cell is not None)
    wait(lambda: job.communicator is not None and job.communicator.event_id)
    study_id = made.conductor.progress().study_id
    job.cancel()
    assert made.conductor.wait(20)
    assert made.conductor.progress().state == "stopped"
    slow.cast(scripted(6), speed=0.0)
    result = client.predict(study_id=study_id, api_name="/resume_study")
    assert (result["state"], result["done"]) == ("completed", 2)


def test_a_study_stopped_by_another_is_told(
    client: Client, made: Context, slow: FakeWorker
) -> None:
    job = client.submit(prompt="long", configurations=["specinfer"], api_name="/compare")
    wait(lambda: made.conductor.progress().cell is not None)
    study_id = made.conductor.progress().study_id
    with pytest.raises(AppError, match="one at a time"):
        client.predict(prompt="x", api_name="/compare")
    line = client.predict(study_id=study_id, api_name="/stop_study")
    assert line["state"] == "stopped"
    with pytest.raises(AppError, match=f"study {study_id} stopped; 0 of 6 runs are kept"):
        job.result(timeout=20)


def test_a_study_that_is_measured_is_not_deleted(
    client: Client, made: Context, slow: FakeWorker
) -> None:
    begun = client.predict(prompts=["long"], wait=False, api_name="/prompts")
    study_id = begun["study_id"]
    with pytest.raises(AppError, match="is being measured: stop it first"):
        client.predict(study_id=study_id, api_name="/delete_study")
    client.predict(study_id=study_id, api_name="/stop_study")
    told = client.predict(study_id=study_id, api_name="/delete_study")
    assert told == {"study_id": study_id, "deleted": True}
    with pytest.raises(AppError, match="no such study"):
        client.predict(study_id=study_id, api_name="/study")


def test_elsewhere_a_client_sees_only_its_own_studies(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=4), speed=0.0)
        made = make_context(worker, store, Access("0.0.0.0"), "specinfer", RunQuery)
        with served(build_page(made)) as address:
            mine, other = Client(address, verbose=False), Client(address, verbose=False)
            found = mine.predict(
                prompt="mine", configurations=["specinfer"], repeats=1, api_name="/compare"
            )
            assert len(mine.predict(api_name="/studies")["rows"]) == 1
            assert other.predict(api_name="/studies")["rows"] == []
            for name in ("/study", "/stop_study", "/resume_study", "/delete_study"):
                with pytest.raises(AppError, match="no such study of yours"):
                    other.predict(study_id=found["study_id"], api_name=name)
            mine.close()
            other.close()
        made.conductor.close()
