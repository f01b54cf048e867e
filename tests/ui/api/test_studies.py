"""Endpoints of studies, prompts, runs and retention, through a real server and a client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gradio_client.exceptions import AppError

from core.events import RunFailed
from tests.synthetic import synthetic_run
from tests.ui.api.sites import Site, wait
from tests.ui.fakes import endless, script_of


@pytest.fixture
def slow(api: Site) -> Site:
    """A server whose runs of more than 8 tokens take 40 seconds unless they are stopped."""
    api.worker.set_script(endless, slowdown=5.0)
    return api


def test_compare_waits_and_returns_a_row_per_configuration(api: Site) -> None:
    own = {"name": "short", "preset": "sequence", "fields": {"speculation_length": 2}}
    arguments = {"configurations": ["specinfer", own], "repeats": 2, "max_new_tokens": 8}
    result = api("/compare", prompt="Once", **arguments)
    _, tree, short = result["rows"]
    assert short["name"] == "short" and tree["same_text"] == "identical" and tree["runs"] == 2
    assert tree["ratio_low"] <= tree["ratio"] <= tree["ratio_high"]
    assert api.store.run(tree["run_id"]).prompt == "Once"
    settings = {one["name"]: one["speculation"] for one in result["asked"]["configurations"]}
    assert settings["short"]["speculation_length"] == 2
    assert api("/study", study_id=result["study_id"]) == result
    assert len(api("/studies", kind="compare", limit=1)["rows"]) == 1
    assert api("/studies", kind="tune")["rows"] == []


def test_a_cancelled_call_stops_its_study_which_can_be_resumed(slow: Site) -> None:
    conductor = slow.context.conductor
    job = slow.submit("/compare", prompt="long", configurations=["specinfer"], repeats=1)
    wait(lambda: conductor.progress().cell is not None)
    study_id = conductor.progress().study_id
    job.cancel()
    assert conductor.wait(20) and conductor.progress().state == "stopped"
    slow.worker.set_script(script_of(6), slowdown=0.0)
    result = slow("/resume_study", study_id=study_id)
    assert (result["state"], result["done"]) == ("completed", 2)


def test_a_study_stopped_by_another_call_is_reported_and_a_running_one_not_deleted(
    slow: Site,
) -> None:
    conductor = slow.context.conductor
    job = slow.submit("/compare", prompt="long", configurations=["specinfer"])
    wait(lambda: conductor.progress().cell is not None)
    study_id = conductor.progress().study_id
    with pytest.raises(AppError, match="one at a time"):
        slow("/compare", prompt="x")
    assert slow("/stop_study", study_id=study_id)["state"] == "stopped"
    with pytest.raises(AppError, match=f"study {study_id} stopped; 0 of 6 runs are kept"):
        job.result(timeout=20)
    study_id = slow("/prompts", prompts=["long"], wait=False)["study_id"]
    with pytest.raises(AppError, match="is being measured: stop it first"):
        slow("/delete_study", study_id=study_id)
    slow("/stop_study", study_id=study_id)
    assert slow("/delete_study", study_id=study_id) == {"study_id": study_id, "deleted": True}
    with pytest.raises(AppError, match="no such study"):
        slow("/study", study_id=study_id)


def test_elsewhere_a_client_sees_only_its_own_studies(elsewhere: Site) -> None:
    result = elsewhere("/compare", prompt="mine", configurations=["specinfer"], repeats=1)
    assert len(elsewhere("/studies")["rows"]) == 1
    other = elsewhere.client(1)
    assert other.predict(api_name="/studies")["rows"] == []
    for name in ("/study", "/stop_study", "/resume_study", "/delete_study"):
        with pytest.raises(AppError, match="no such study of yours"):
            other.predict(study_id=result["study_id"], api_name=name)


GRID: dict[str, Any] = {
    "prompts": ["Once", "Twice"],
    "fields": {"speculation_length": [2, 4], "expansion": [[1], [2, 1]]},
    "max_new_tokens": 8,
}


def test_tune_names_the_best_point_of_a_grid(api: Site) -> None:
    result = api("/tune", **GRID, repeats=2)
    assert (result["done"], result["total"]) == (20, 20)
    (best,) = [row for row in result["rows"][1:] if row["configuration"] == result["best"]]
    assert best["found"] == "best" and best["speed_up"] > 0 and best["runs"] == 4


def test_a_second_study_is_refused_and_a_cancelled_one_stops(api: Site) -> None:
    conductor = api.context.conductor
    api.worker.set_script(script_of(20), slowdown=100.0)  # a run takes at least 30 seconds
    running = api("/tune", **GRID, wait=False)
    assert running["state"] == "running" and running["best"] is None
    with pytest.raises(AppError, match="one at a time"):
        api("/tune", **GRID)
    conductor.stop(running["study_id"])
    assert conductor.wait(20)
    job = api.submit("/tune", **GRID)
    wait(lambda: conductor.progress().is_active)
    job.cancel()
    wait(lambda: conductor.progress().state == "stopped")


def test_a_study_of_prompts_is_waited_for(api: Site) -> None:
    result = api(
        "/prompts",
        prompts=["Once", {"prompt": "x = 1", "domain": "code", "id": "x"}],
        configurations=["specinfer", {"name": "short", "fields": {"speculation_length": 2}}],
        max_new_tokens=8,
        repeats=2,
    )
    assert (result["kind"], result["state"], result["done"]) == ("prompts", "completed", 12)
    listed = [(row["prompt"], row["domain"], row["settings"]) for row in result["prompts"]]
    prompts = [("Once", ""), ("x = 1", "code")]
    # Settings that draft nothing come last.
    assert listed[-2:] == [(*prompt, "plain decoding") for prompt in prompts]
    assert listed[:-2] == [(*prompt, name) for prompt in prompts for name in ("specinfer", "short")]
    row = result["prompts"][0]
    assert len(row["runs"]) == 2 and api.store.run(row["runs"][0]).prompt == "Once"
    assert row["speed_up"] > 0 and row["against"].startswith("plain decoding")
    settings = {one["name"]: one["speculation"] for one in result["asked"]["configurations"]}
    assert settings["short"]["speculation_length"] == 2
    rows = api("/prompt_rows", study_id=result["study_id"])
    assert rows == {"rows": result["prompts"], "looked_at": 12, "total": 12}
    filtered = api("/prompt_rows", study_id=result["study_id"], domain="none", settings="short")
    assert [(row["prompt"], row["settings"]) for row in filtered["rows"]] == [("Once", "short")]


def test_rows_of_past_runs_are_found_and_filtered(api: Site) -> None:
    for prompt in ("Once", "Twice"):
        for preset in ("specinfer", "minions"):
            api("/generate", prompt=prompt, preset=preset)
    api("/generate", prompt="Once", preset="autoregressive")
    api.store.flush()
    result = api("/prompt_rows")
    assert (len(result["rows"]), result["looked_at"], result["total"]) == (4, 5, 5)
    assert {found["prompt"] for found in result["rows"] if found["speed_up"]} == {"Once"}
    (row,) = api("/prompt_rows", search="Once", settings="minions")["rows"]
    assert (row["prompt"], row["settings"]) == ("Once", "minions")
    assert row["against"] == "1 plain run of the same prompt, sampling and LLM"
    limited = api("/prompt_rows", limit=2)
    assert (limited["looked_at"], limited["total"]) == (2, 5)
    for filters in ({"settings": "min"}, {"domain": "code"}, {"drafter": "nobody"}):
        assert api("/prompt_rows", **filters)["rows"] == [], filters


def test_a_run_is_compared_with_plain_decoding_and_proved(api: Site) -> None:
    run_id = api("/generate", prompt="Once")["run_id"]
    result = api("/baseline", run_id=run_id)
    assert result["run_id"] == run_id
    assert result["speed_up"] == result["tokens_per_second"] / result["plain_tokens_per_second"]
    plain = api.store.run(result["plain_run_id"])
    assert plain.prompt == "Once" and not plain.drafters
    proof = api("/prove", run_id=run_id)
    assert (proof["answer"], proof["at"]) == ("identical", None)
    assert not api.store.run(proof["plain_run_id"]).drafters


def test_a_run_of_other_models_is_not_proved(fresh: Site) -> None:
    run_id = fresh("/generate", prompt="Once")["run_id"]
    fresh("/load_models", llm="other", ssms=["small"], dtype="bfloat16")
    for name in ("/prove", "/baseline"):
        with pytest.raises(AppError, match="which is loaded; not of synthetic-llm float32 cpu"):
            fresh(name, run_id=run_id)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("cancelled", "cancelled"),
        ("refused", "interrupted"),
        ("lost", "incomplete in the log"),
    ],
)
def test_a_run_that_did_not_complete_is_not_compared_with_plain_decoding(
    api: Site, end: str, state: str
) -> None:
    kinds = {"refused": "failed", "lost": "completed"}
    *events, last = synthetic_run(3, end=kinds.get(end, end))
    refused = replace(last, message=None) if isinstance(last, RunFailed) else last
    if end == "lost":
        del events[-2]
    for event in (*events, refused):
        api.store.record(event, "")
    assert api.store.flush()
    with pytest.raises(AppError, match=f"run is '{state}': only a completed run can be compared"):
        api("/baseline", run_id="synthetic-0")
    assert not api.worker.runs, "plain decoding is not run"


def test_a_client_that_cancels_stops_the_plain_run(api: Site) -> None:
    run_id = api("/generate", prompt="Once")["run_id"]
    api.worker.set_script(endless, slowdown=5.0)
    job = api.submit("/prove", run_id=run_id)
    wait(lambda: len(api.worker.runs) > 1)
    job.cancel()
    wait(lambda: api.worker.runs[-1].is_cancelled)


def test_retention_is_reported_to_and_set_by_the_servers_owner(api: Site, elsewhere: Site) -> None:
    assert api("/retention") == {"runs": None}
    assert api("/set_retention", runs=7, sure=True) == {"runs": 7} and api.store.retention() == 7
    assert api("/set_retention", runs=None) == {"runs": None}
    for name, arguments in (("/retention", {}), ("/set_retention", {"runs": 5, "sure": True})):
        with pytest.raises(AppError, match="only by the server's owner"):
            elsewhere(name, **arguments)
    assert elsewhere.store.retention() is None


def test_elsewhere_rows_and_proofs_are_of_the_callers_own_runs(elsewhere: Site) -> None:
    elsewhere.record(9)
    other = elsewhere.client(1)
    study = elsewhere("/prompts", prompts=["mine"], max_new_tokens=8)
    rows = elsewhere("/prompt_rows")["rows"]
    assert [row["prompt"] for row in rows] == ["mine"]
    assert other.predict(api_name="/prompt_rows")["rows"] == []
    with pytest.raises(AppError, match="no such study of yours"):
        other.predict(study_id=study["study_id"], api_name="/prompt_rows")
    for name in ("/prove", "/baseline"):
        for run_id in (rows[0]["runs"][0], "synthetic-9"):
            with pytest.raises(AppError, match="no such run of yours"):
                other.predict(run_id=run_id, api_name=name)


def test_a_prompt_id_that_is_no_text_is_refused(api: Site) -> None:
    with pytest.raises(AppError, match="prompt id is 0: it must be a text"):
        api("/prompts", prompts=[{"prompt": "Once", "id": 0}], configurations=["specinfer"])
