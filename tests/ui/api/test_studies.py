"""The endpoints of studies, through a real server and Gradio's own client."""

from __future__ import annotations

import pytest
from gradio_client.exceptions import AppError

from tests.ui.api.sites import Site, wait
from tests.ui.fakes import endless, scripted


@pytest.fixture
def slow(api: Site) -> Site:
    """Every run goes on for minutes unless it is stopped."""
    api.worker.set_script(endless, speed=5.0)
    return api


def test_compare_waits_and_returns_a_row_each(api: Site) -> None:
    own = {"name": "short", "preset": "sequence", "fields": {"speculation_length": 2}}
    asked = {"configurations": ["specinfer", own], "repeats": 2, "max_new_tokens": 8}
    result = api("/compare", prompt="Once", **asked)
    assert (result["state"], result["done"], result["total"]) == ("completed", 6, 6)
    plain, tree, _ = result["rows"]
    assert [row["name"] for row in result["rows"]] == ["plain decoding", "specinfer", "short"]
    assert plain["ratio"] is None and plain["same_text"] == "base"
    assert tree["same_text"] == "identical" and tree["runs"] == 2
    assert tree["ratio_low"] <= tree["ratio"] <= tree["ratio_high"]
    assert api.store.run(tree["run_id"]).prompt == "Once"
    found = {one["name"]: one["speculation"] for one in result["asked"]["configurations"]}
    assert found["short"]["speculation_length"] == 2
    assert {one["record_top_k"] for one in found.values()} == {5}  # what it costs, all pay alike
    assert api("/study", study_id=result["study_id"]) == result


def test_studies_lists_and_study_gives_the_cells(api: Site) -> None:
    result = api("/compare", prompt="A", configurations=["specinfer"], repeats=1)
    listed = api("/studies", kind="compare", limit=1)["rows"]
    assert [row["study_id"] for row in listed] == [result["study_id"]]
    assert "owner" not in listed[0] and listed[0]["done"] == 2
    assert api("/studies", kind="tune")["rows"] == []
    cells = api("/study", study_id=result["study_id"], cells=True)["cells"]
    assert [cell["contestant"] for cell in cells] == ["plain decoding", "specinfer"]
    assert cells[1]["stats"]["tokens_per_second"] == result["rows"][1]["tokens_per_second"]


def test_a_client_that_cancels_stops_the_study_and_another_goes_on(slow: Site) -> None:
    conductor = slow.context.conductor
    job = slow.submit("/compare", prompt="long", configurations=["specinfer"], repeats=1)
    wait(lambda: conductor.progress().cell is not None)
    study_id = conductor.progress().study_id
    job.cancel()
    assert conductor.wait(20)
    assert conductor.progress().state == "stopped"
    slow.worker.set_script(scripted(6), speed=0.0)
    result = slow("/resume_study", study_id=study_id)
    assert (result["state"], result["done"]) == ("completed", 2)


def test_a_study_stopped_by_another_is_told(slow: Site) -> None:
    conductor = slow.context.conductor
    job = slow.submit("/compare", prompt="long", configurations=["specinfer"])
    wait(lambda: conductor.progress().cell is not None)
    study_id = conductor.progress().study_id
    with pytest.raises(AppError, match="one at a time"):
        slow("/compare", prompt="x")
    assert slow("/stop_study", study_id=study_id)["state"] == "stopped"
    with pytest.raises(AppError, match=f"study {study_id} stopped; 0 of 6 runs are kept"):
        job.result(timeout=20)


def test_a_study_that_is_measured_is_not_deleted(slow: Site) -> None:
    study_id = slow("/prompts", prompts=["long"], wait=False)["study_id"]
    with pytest.raises(AppError, match="is being measured: stop it first"):
        slow("/delete_study", study_id=study_id)
    slow("/stop_study", study_id=study_id)
    told = slow("/delete_study", study_id=study_id)
    assert told == {"study_id": study_id, "deleted": True}
    with pytest.raises(AppError, match="no such study"):
        slow("/study", study_id=study_id)


def test_elsewhere_a_client_sees_only_its_own_studies(elsewhere: Site) -> None:
    found = elsewhere("/compare", prompt="mine", configurations=["specinfer"], repeats=1)
    assert len(elsewhere("/studies")["rows"]) == 1
    other = elsewhere.client(1)
    assert other.predict(api_name="/studies")["rows"] == []
    for name in ("/study", "/stop_study", "/resume_study", "/delete_study"):
        with pytest.raises(AppError, match="no such study of yours"):
            other.predict(study_id=found["study_id"], api_name=name)
