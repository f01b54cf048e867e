"""The endpoints of prompts and proofs, and of what is kept, through a real server and a client."""

from __future__ import annotations

import pytest
from gradio_client.exceptions import AppError

from tests.ui.api.sites import Site, wait
from tests.ui.fakes import endless


def test_a_study_of_prompts_is_waited_for(api: Site) -> None:
    found = api(
        "/prompts",
        prompts=["Once", {"prompt": "x = 1", "domain": "code", "id": "x"}],
        configurations=["specinfer", {"name": "short", "fields": {"speculation_length": 2}}],
        max_new_tokens=8,
        repeats=2,
    )
    assert (found["kind"], found["state"], found["done"]) == ("prompts", "completed", 12)
    told = [(row["prompt"], row["domain"], row["settings"]) for row in found["prompts"]]
    both = [("Once", ""), ("x = 1", "code")]
    assert told[-2:] == [(*one, "plain decoding") for one in both]  # what accepts nothing goes last
    assert told[:-2] == [(*one, name) for one in both for name in ("specinfer", "short")]
    row = found["prompts"][0]
    assert len(row["runs"]) == 2 and api.store.run(row["runs"][0]).prompt == "Once"
    assert row["speed_up"] > 0 and row["against"].startswith("plain decoding")
    asked = {one["name"]: one["speculation"] for one in found["asked"]["configurations"]}
    assert asked["short"]["speculation_length"] == 2
    same = api("/prompt_rows", study_id=found["study_id"])
    assert same == {"rows": found["prompts"], "looked_at": 12, "total": 12}
    some = api("/prompt_rows", study_id=found["study_id"], domain="none", settings="short")
    assert [(row["prompt"], row["settings"]) for row in some["rows"]] == [("Once", "short")]


def test_rows_of_past_runs_are_found_and_filtered(api: Site) -> None:
    for prompt in ("Once", "Twice"):
        for preset in ("specinfer", "minions"):
            api("/generate", prompt=prompt, preset=preset)
    api("/generate", prompt="Once", preset="autoregressive")
    api.store.flush()
    found = api("/prompt_rows")
    assert (len(found["rows"]), found["looked_at"], found["total"]) == (4, 5, 5)
    assert {row["prompt"] for row in found["rows"] if row["speed_up"]} == {"Once"}
    (one,) = api("/prompt_rows", search="Once", settings="minions")["rows"]
    assert (one["prompt"], one["settings"]) == ("Once", "minions")
    assert one["against"] == "1 plain run of the same prompt, sampling and LLM"
    few = api("/prompt_rows", limit=2)
    assert (few["looked_at"], few["total"]) == (2, 5)
    for none in ({"settings": "min"}, {"domain": "code"}, {"drafter": "nobody"}):
        assert api("/prompt_rows", **none)["rows"] == [], none


def test_a_run_is_measured_beside_plain_decoding_and_proved(api: Site) -> None:
    run_id = api("/generate", prompt="Once")["run_id"]
    found = api("/baseline", run_id=run_id)
    assert found["run_id"] == run_id
    assert found["speed_up"] == found["tokens_per_second"] / found["plain_tokens_per_second"]
    plain = api.store.run(found["plain_run_id"])
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


def test_a_client_that_cancels_stops_the_plain_run(api: Site) -> None:
    run_id = api("/generate", prompt="Once")["run_id"]
    api.worker.set_script(endless, speed=5.0)
    job = api.submit("/prove", run_id=run_id)
    wait(lambda: len(api.worker.runs) > 1)
    job.cancel()
    wait(lambda: api.worker.runs[-1].is_cancelled)


def test_retention_is_told_and_set_by_who_owns_the_server(api: Site, elsewhere: Site) -> None:
    assert api("/retention") == {"runs": None}
    assert api("/set_retention", runs=7, sure=True) == {"runs": 7}
    assert api.store.retention() == 7
    assert api("/set_retention", runs=None) == {"runs": None}
    for name, asked in (("/retention", {}), ("/set_retention", {"runs": 5, "sure": True})):
        with pytest.raises(AppError, match="only who owns this server"):
            elsewhere(name, **asked)
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
