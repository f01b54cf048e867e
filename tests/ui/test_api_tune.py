"""`/tune` through a real server and Gradio's own client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from storage import RunQuery, RunStore
from tests.ui.fakes import FakeWorker, scripted
from tests.ui.serving import served
from ui.server.context import Context, make_context
from ui.server.page import build_page
from ui.server.visitors import Access


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    with RunStore(tmp_path_factory.mktemp("tune") / "runs.db") as store:
        worker = FakeWorker(scripted(rounds=4), speed=0.0)
        yield make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)


@pytest.fixture(scope="module")
def client(made: Context) -> Iterator[Client]:
    with served(build_page(made)) as address:
        opened = Client(address, verbose=False)
        yield opened
        opened.close()
        made.conductor.close()


GRID: dict[str, Any] = {
    "prompts": ["Once", "Twice"],
    "fields": {"speculation_length": [2, 4], "expansion": [[1], [2, 1]]},
    "max_new_tokens": 8,
}


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def test_a_grid_is_measured_to_its_end(client: Client, made: Context) -> None:
    found = client.predict(**GRID, repeats=2, api_name="/tune")
    assert (found["state"], found["done"], found["total"]) == ("completed", 20, 20)
    assert [row["configuration"] for row in found["rows"]] == [
        "plain decoding",
        "speculation_length=2, expansion=1",
        "speculation_length=2, expansion=2,1",
        "speculation_length=4, expansion=1",
        "speculation_length=4, expansion=2,1",
    ]
    assert found["best"] in [row["configuration"] for row in found["rows"][1:]]
    best = next(row for row in found["rows"] if row["configuration"] == found["best"])
    assert best["found"] == "best" and best["speed_up"] > 0 and best["runs"] == 4
    assert (
        found["rows"][1]["same_text"] == "identical"
        and found["rows"][1]["speculation_length"] == "2"
    )
    json.dumps(found)
    row, _ = made.store.studies.study(found["study_id"])
    assert row.kind == "tune" and row.state == "completed"


def test_what_cannot_run_is_among_the_rows(client: Client) -> None:
    fields = {"speculation_length": [2, 99]}
    found = client.predict(prompts=["x"], fields=fields, api_name="/tune")
    assert found["rows"][-1]["configuration"] == "speculation_length=99"
    assert found["rows"][-1]["found"].startswith("refused: speculation_length is 99")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": "Once"}, "prompts is 'Once': a list of texts"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [3]}, "prompt is 3"),
        ({"prompts": ["x", "so on " * 300]}, 'prompt 2 ("so on so on'),
        ({"fields": {}}, "fields is []: at least one field"),
        ({"fields": [1]}, "fields is [1]: an object"),
        ({"fields": {"warp": [9]}}, "field is 'warp': one of drafters"),
        ({"fields": {"eta": 0.1}}, "eta is 0.1: a list"),
        ({"fields": {"verify": ["mss"]}}, "no point of the grid can run"),
        (
            {"fields": {"eta": [1], "vote_nodes": [1], "verify": ["auto"], "combine": ["vote"]}},
            "fields is 4: at most 3",
        ),
        ({"preset": "fastest"}, "preset is 'fastest'"),
        ({"repeats": 0}, "repeats is 0"),
        ({"temperature": -1}, "temperature is -1"),
        ({"wait": "no"}, "wait is 'no'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_values_come_back_in_words(client: Client, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(AppError) as caught:
        client.predict(**{**GRID, **changes}, api_name="/tune")
    assert words in str(caught.value)


def test_a_study_left_to_itself_is_one_at_a_time_and_a_cancelled_one_stops(
    client: Client, made: Context
) -> None:
    worker: Any = made.hub.worker
    worker.cast(scripted(400), speed=5.0)
    try:
        left = client.predict(**GRID, wait=False, api_name="/tune")
        assert left["state"] == "running" and left["best"] is None
        with pytest.raises(AppError, match="one at a time"):
            client.predict(**GRID, api_name="/tune")
        made.conductor.stop(left["study_id"])
        assert made.conductor.wait(20)
        job = client.submit(**GRID, api_name="/tune")
        until(lambda: made.conductor.progress().live)
        until(lambda: job.communicator is not None and bool(job.communicator.event_id))
        job.cancel()
        until(lambda: made.conductor.progress().state == "stopped")
    finally:
        made.conductor.stop()
        made.conductor.wait(20)
        worker.clear()
        worker.cast(scripted(4), speed=0.0)
