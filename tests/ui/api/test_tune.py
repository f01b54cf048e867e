"""`/tune` through a real server and Gradio's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gradio_client.exceptions import AppError

from tests.ui.api.sites import Site, wait
from tests.ui.fakes import scripted

GRID: dict[str, Any] = {
    "prompts": ["Once", "Twice"],
    "fields": {"speculation_length": [2, 4], "expansion": [[1], [2, 1]]},
    "max_new_tokens": 8,
}


def test_a_grid_is_measured_to_its_end(api: Site) -> None:
    found = api("/tune", **GRID, repeats=2)
    assert (found["state"], found["done"], found["total"]) == ("completed", 20, 20)
    assert [row["configuration"] for row in found["rows"]] == [
        "plain decoding",
        "speculation_length=2, expansion=1",
        "speculation_length=2, expansion=2,1",
        "speculation_length=4, expansion=1",
        "speculation_length=4, expansion=2,1",
    ]
    (best,) = [row for row in found["rows"][1:] if row["configuration"] == found["best"]]
    assert best["found"] == "best" and best["speed_up"] > 0 and best["runs"] == 4
    first = found["rows"][1]
    assert first["same_text"] == "identical" and first["speculation_length"] == "2"
    json.dumps(found)
    row, _ = api.store.studies.study(found["study_id"])
    assert row.kind == "tune" and row.state == "completed"


def test_what_cannot_run_is_among_the_rows(api: Site) -> None:
    found = api("/tune", prompts=["x"], fields={"speculation_length": [2, 99]})
    assert found["rows"][-1]["configuration"] == "speculation_length=99"
    assert found["rows"][-1]["found"].startswith("refused: speculation_length is 99")


def test_a_study_left_to_itself_is_one_at_a_time_and_a_cancelled_one_stops(api: Site) -> None:
    conductor = api.context.conductor
    api.worker.set_script(scripted(400), speed=5.0)
    left = api("/tune", **GRID, wait=False)
    assert left["state"] == "running" and left["best"] is None
    with pytest.raises(AppError, match="one at a time"):
        api("/tune", **GRID)
    conductor.stop(left["study_id"])
    assert conductor.wait(20)
    job = api.submit("/tune", **GRID)
    wait(lambda: conductor.progress().live)
    job.cancel()
    wait(lambda: conductor.progress().state == "stopped")
